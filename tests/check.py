#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""Builds uniprof and tests it: what one runs before a commit, or, with --all, everything.

A pool of as many workers as there are CPUs runs the steps; those that name a common resource never run
at the same time. Each step's output is shown when it fails and kept in build/check/. The last line counts
single tests: N passed, N failed, N skipped.
"""

import argparse
import os
import shutil
import sys
import time

sys.path.insert(0, __file__.rsplit("/", 1)[0])

from checks import steps  # noqa: E402
from checks.pool import Pool  # noqa: E402


def show(step, result, seconds):
    print(f"{step.name:<28} {result.summary():<40} {seconds:6.1f} s", flush=True)
    if result.failed:
        print(result.tail(), flush=True)
    for reason in result.skip_reasons:
        print(f"    skipped: {reason}", flush=True)


def chosen(args, parser):
    if not args.step:
        return steps.everything() if args.all else steps.short()
    everything = steps.everything()
    unknown = set(args.step) - {step.name for step in everything}
    if unknown:
        parser.error(f"no such step: {', '.join(sorted(unknown))}; ./check --list names them")
    return steps.with_needed([step for step in everything if step.name in args.step], everything)


def main():
    parser = argparse.ArgumentParser(prog="./check", description=__doc__.split("\n\n")[0])
    parser.add_argument("step", nargs="*", help="only these steps, whole, and what they need")
    parser.add_argument("--all", action="store_true", help="every step")
    parser.add_argument("--list", action="store_true", help="show the steps; those of the short check have a *")
    args = parser.parse_args()
    if args.list:
        in_short = {step.name for step in steps.short()}
        for step in steps.everything():
            print(f"{'*' if step.name in in_short else ' '} {step.name}")
        return 0

    shutil.rmtree(steps.RAN, ignore_errors=True)
    start = time.monotonic()
    pool = Pool(chosen(args, parser), show)
    pool.run(os.cpu_count() or 1)
    print(f"{time.monotonic() - start:.0f} s")
    total = [sum(getattr(result, kind) for result in pool.finished) for kind in ("passed", "failed", "skipped")]
    print("{} passed, {} failed, {} skipped".format(*total))
    return 1 if total[1] else 0


if __name__ == "__main__":
    sys.exit(main())
