# SPDX-License-Identifier: BSD-3-Clause
"""The command line of the benchmark of views."""

import argparse
import itertools
import json
import subprocess
import sys
import tempfile
from pathlib import Path

from . import measure

ABOUT = """\
Makes up recordings of stacks of 30 frames, and measures what it takes to report, draw and export them: CPU
seconds, peak memory (MiB) and the size of the result. In the recordings with a million distinct stacks the
leaves have a million distinct addresses, too. All of it takes long, and 20 GB below $TMPDIR:
some formats have a line for each frame of each sample. With the programs that people used before it
measures these as well, on the same million samples:

  --flamegraph DIR   github.com/brendangregg/FlameGraph: stackcollapse.pl and flamegraph.pl
  --symbolize FILE   symbolize of the uniprof of 2017 (github.com/sysml/uniprof), or its symbolize.cc

The exit status is 1 if a figure is over its limit.
"""

# Views by name: the arguments of uniprof.
VIEWS = {"report": ("report",), "tree": ("report", "--tree"), "tree up": ("report", "--tree=up"), "svg": ("flamegraph",),
         "svg leaf first": ("flamegraph", "--reverse"), "page": ("flamegraph", "--html"), "report json": ("report", "--json"),
         "report heat": ("report", "--heat"), "svg heat": ("flamegraph", "--heat"), "svg chart": ("flamegraph", "--chart")}
EXPORTS = ("folded", "raw", "perf-script", "perf.data", "chrome", "speedscope", "firefox", "pprof", "callgrind", "otlp")
VIEWS |= {name: ("export", f"--format={name}") for name in EXPORTS}
VIEWS |= {"diff": ("diff",), "merge": ("merge",)}  # of the recording and itself

MILLION = 1_000_000
SAMPLES = (MILLION, 10 * MILLION)
STACKS = (1_000, 100_000, MILLION)
# These have to sum up ten million samples in 5 s; others write each sample.
SUMMARIES = ("report", "tree", "svg")
PAGE = 5  # CPU seconds for a million samples: a page packs all that it can show
# Nobody has set limits for these.
UNLIMITED = ("diff", "merge")


def parse(arguments):
    parser = argparse.ArgumentParser(description=ABOUT, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=Path, help="the build directory (default: build)")
    parser.add_argument("--flamegraph", type=Path, metavar="DIR")
    parser.add_argument("--symbolize", type=Path, metavar="FILE")
    parser.add_argument("--only", metavar="VIEWS", help=f"of {', '.join(VIEWS)}; several with commas")
    parser.add_argument("--samples", type=int, choices=SAMPLES, help="only recordings of so many samples (default: both)")
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
    for samples, stacks in itertools.product([options.samples] if options.samples else SAMPLES, STACKS):
        scaled = [max(1, int(number * options.scale)) for number in (samples, stacks)]
        recording = bench.record(*scaled, depth=30)
        about = {"samples": samples, "stacks": stacks}
        for view in options.views:
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
    if row["view"] not in VIEWS or row["view"] in UNLIMITED:
        return
    summary = row["samples"] > MILLION and row["view"] in SUMMARIES
    seconds = PAGE if row["view"] == "page" else 2
    yield "cpu", 5 if summary else seconds * row["samples"] // MILLION, "most"
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
        measured = []
        for row in rows(bench, options, compiled(options.symbolize, directory)):
            measured.append(row)
            if options.json:
                print(json.dumps(row), flush=True)
    if not options.json:
        print(*table(measured), sep="\n")
    failures = list(over(measured)) if options.scale == 1 else []
    for failure in failures:
        print(failure, file=sys.stderr)
    return 1 if failures else 0
