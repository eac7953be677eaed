# SPDX-License-Identifier: BSD-3-Clause
"""The command line of the benchmark of views."""

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

from . import measure

ABOUT = """\
Makes up recordings of stacks of 30 frames, and measures what it takes to report, draw and export them: CPU
seconds, peak memory (MiB) and the size of the result. In the recording with a million distinct stacks the
leaves have a million distinct addresses, too. With the programs that people used before it measures these
as well, on the same samples:

  --flamegraph DIR   github.com/brendangregg/FlameGraph: stackcollapse.pl and flamegraph.pl
  --symbolize FILE   symbolize of the uniprof of 2017 (github.com/sysml/uniprof), or its symbolize.cc

The exit status is 1 if a figure is over its limit.
"""

# Views by name: the arguments of uniprof.
VIEWS = {"report": ("report",), "tree": ("report", "--tree"), "tree up": ("report", "--tree=up"), "svg": ("flamegraph",),
         "svg leaf first": ("flamegraph", "--reverse"), "page": ("flamegraph", "--html")}
EXPORTS = ("folded", "raw", "perf-script", "perf.data", "chrome", "speedscope", "firefox", "pprof", "callgrind", "otlp")
VIEWS |= {name: ("export", f"--format={name}") for name in EXPORTS}

MILLION = 1_000_000
RECORDINGS = [(MILLION, 1_000), (MILLION, 100_000), (MILLION, MILLION), (10 * MILLION, MILLION)]
# Of ten million samples only these: the others write each sample, or hundreds of megabytes.
LARGE = ("report", "tree", "svg")


def parse(arguments):
    parser = argparse.ArgumentParser(description=ABOUT, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=Path, help="the build directory (default: build)")
    parser.add_argument("--flamegraph", type=Path, metavar="DIR")
    parser.add_argument("--symbolize", type=Path, metavar="FILE")
    parser.add_argument("--only", metavar="VIEWS", help=f"of {', '.join(VIEWS)}; several with commas")
    parser.add_argument("--rounds", type=int, default=3, help="of each the one with the least CPU time counts (default 3)")
    parser.add_argument("--scale", type=float, default=1, help="so many times as many samples and stacks (default 1)")
    parser.add_argument("--json", action="store_true", help="one object a line")
    options = parser.parse_args(arguments)
    options.views = options.only.split(",") if options.only else list(VIEWS)
    if unknown := set(options.views) - set(VIEWS):
        parser.error(f"no such view: {', '.join(sorted(unknown))}")
    return options


def compiled(symbolize, directory):
    if symbolize and symbolize.suffix == ".cc":
        program = Path(directory) / "symbolize-2017"
        subprocess.run(["c++", "-O2", "-o", program, symbolize], check=True)
        return program
    return symbolize


def rows(bench, options, old):
    """Measurements: {"view", "samples", "stacks", "seconds", "cpu", "mib", "bytes"}, and of older ways {"old_cpu", "old_mib", "ratio"}."""
    for samples, stacks in RECORDINGS:
        scaled = [max(1, int(number * options.scale)) for number in (samples, stacks)]
        recording = bench.record(*scaled, depth=30)
        about = {"samples": samples, "stacks": stacks}
        for view in options.views:
            if samples == MILLION or view in LARGE:
                cost = measure.best(options.rounds, lambda: bench.view(recording, *VIEWS[view]))
                yield {"view": view} | about | cost
        if old and samples == MILLION:
            yield from older(bench, options, old, recording, about)
        recording.unlink()


def older(bench, options, old, recording, about):
    """The same stacks as a classic trace, through the programs of 2017 and ours."""
    trace = bench.trace(recording)
    names = {"view": "symbolize"} | about | measure.best(options.rounds, lambda: bench.symbolize(bench.ours(), trace))
    yield compare(names, bench.symbolize(old, trace))
    if options.flamegraph:
        picture = {"view": "svg of 2017"} | about | measure.best(options.rounds, lambda: bench.view(recording, *VIEWS["svg"]))
        yield compare(picture, bench.chain(old, options.flamegraph, trace))
    trace.unlink()


def compare(row, old):
    return row | {"old_cpu": old["cpu"], "old_mib": old["mib"], "ratio": old["cpu"] / row["cpu"]}


def limits(row):
    """(figure, the least or most that it may be, which of these)."""
    if row["view"] == "symbolize" and row["stacks"] == 100_000:
        yield "ratio", 20, "least"
    if row["view"] not in VIEWS or row["view"] == "page":
        return
    yield "cpu", 2 if row["samples"] == MILLION else 5, "most"
    yield "mib", 200, "most"


def over(measured):
    """Sentences about figures that are not within their limits."""
    for row in measured:
        for figure, limit, kind in limits(row):
            value = row[figure]
            if value < limit if kind == "least" else value > limit:
                yield (f"{row['view']} of {row['samples']:,} samples, {row['stacks']:,} stacks: "
                       f"{figure} is {value:.4g}, and should be at {kind} {limit}")


def table(measured):
    line = "{:16} {:>11} {:>10} {:>8} {:>8} {:>9} {:>10} {:>8} {:>7}"
    yield line.format("", "samples", "stacks", "CPU s", "MiB", "MB", "before s", "MiB", "times")
    for row in measured:
        old = (f"{row['old_cpu']:.2f}", f"{row['old_mib']:.0f}", f"{row['ratio']:.0f}") if "ratio" in row else ("-", "-", "-")
        size = f"{row['bytes'] / 1e6:.1f}" if "bytes" in row else "-"
        yield line.format(row["view"], f"{row['samples']:,}", f"{row['stacks']:,}", f"{row['cpu']:.2f}", f"{row['mib']:.0f}", size, *old)


def main(root, arguments=None):
    options = parse(arguments)
    with tempfile.TemporaryDirectory(prefix="uniprof-views-") as directory:
        bench = measure.Bench(options.build or root / "build", directory)
        measured = list(rows(bench, options, compiled(options.symbolize, directory)))
    for line in map(json.dumps, measured) if options.json else table(measured):
        print(line)
    failures = list(over(measured)) if options.scale == 1 else []
    for failure in failures:
        print(failure, file=sys.stderr)
    return 1 if failures else 0
