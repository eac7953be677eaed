# SPDX-License-Identifier: BSD-3-Clause
"""The command line of the benchmark of drawing."""

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

from . import measure

ABOUT = """\
Makes up recordings and measures how long it takes to draw them, and how much memory. With the programs
that people used before it measures these as well, on the same samples:

  --flamegraph DIR   github.com/brendangregg/FlameGraph: stackcollapse.pl and flamegraph.pl
  --symbolize FILE   symbolize of the uniprof of 2017 (github.com/sysml/uniprof), or its symbolize.cc

The exit status is 1 if a figure is over its limit.
"""


def parse(arguments):
    parser = argparse.ArgumentParser(description=ABOUT, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=Path, help="the build directory (default: build)")
    parser.add_argument("--flamegraph", type=Path, metavar="DIR")
    parser.add_argument("--symbolize", type=Path, metavar="FILE")
    parser.add_argument("--rounds", type=int, default=3, help="of each the fastest counts (default 3)")
    parser.add_argument("--scale", type=float, default=1, help="so many times as many samples (default 1)")
    parser.add_argument("--json", action="store_true", help="one object a line")
    return parser.parse_args(arguments)


def compiled(symbolize, directory):
    if symbolize and symbolize.suffix == ".cc":
        program = Path(directory) / "symbolize-2017"
        subprocess.run(["c++", "-O2", "-o", program, symbolize], check=True)
        return program
    return symbolize


def rows(bench, options, old):
    """Measurements: {"what", "seconds", "cpu", "mib"}, and of older ways {"old_seconds", "old_mib", "ratio"}."""
    million, stacks = int(1_000_000 * options.scale), max(1, int(5_000 * options.scale))
    recording = bench.record(million, stacks)
    small = {"what": "SVG of 1,000,000 samples, 5,000 stacks", **measure.best(options.rounds, lambda: bench.draw(recording))}
    trace = bench.trace(recording)
    names = {"what": "symbolize of 1,000,000 stacks",
             **measure.best(options.rounds, lambda: bench.symbolize(bench.ours(), trace))}
    if old:
        compare(names, measure.best(1, lambda: bench.symbolize(old, trace)))
    if old and options.flamegraph:
        compare(small, bench.chain(old, options.flamegraph, trace))
    trace.unlink()
    large = bench.record(10 * million, 10 * stacks)
    yield small
    yield names
    yield {"what": "SVG of 10,000,000 samples, 50,000 stacks", **measure.best(options.rounds, lambda: bench.draw(large))}


def compare(row, old):
    row |= {"old_seconds": old["seconds"], "old_mib": old["mib"], "ratio": old["seconds"] / row["seconds"]}


# Limits: the beginning of `what`, a figure, and the least or most that it may be.
LIMITS = [("SVG of 1,", "ratio", "least", 100), ("symbolize", "ratio", "least", 20),
          ("SVG of 10,", "seconds", "most", 5), ("SVG of 10,", "mib", "most", 200)]


def over(measured):
    """Sentences about figures that are not within their limits."""
    for begin, figure, kind, limit in LIMITS:
        for row in measured:
            value = row.get(figure) if row["what"].startswith(begin) else None
            if value is not None and (value < limit if kind == "least" else value > limit):
                yield f"{row['what']}: {figure} is {value:.4g}, and should be at {kind} {limit}"


def table(measured):
    line = "{:42} {:>8} {:>8} {:>8}   {:>9} {:>8} {:>7}"
    yield line.format("", "s", "CPU s", "MiB", "before s", "MiB", "times")
    for row in measured:
        old = (f"{row['old_seconds']:.2f}", f"{row['old_mib']:.0f}", f"{row['ratio']:.0f}") if "ratio" in row else ("-", "-", "-")
        yield line.format(row["what"], f"{row['seconds']:.3f}", f"{row['cpu']:.3f}", f"{row['mib']:.1f}", *old)


def main(root, arguments=None):
    options = parse(arguments)
    with tempfile.TemporaryDirectory(prefix="uniprof-draw-") as directory:
        bench = measure.Bench(options.build or root / "build", directory)
        measured = list(rows(bench, options, compiled(options.symbolize, directory)))
    for line in map(json.dumps, measured) if options.json else table(measured):
        print(line)
    failures = list(over(measured))
    for failure in failures:
        print(failure, file=sys.stderr)
    return 1 if failures else 0
