#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""Builds uniprof in every way and runs all tests; what ./check is about.

Steps run in two lanes, one for each of two CPUs: builds with their unit tests, and everything that
needs a booted Xen. Each step's output is shown when it fails and kept in build/check/. The last line
counts single tests: N passed, N failed, N skipped.
"""

import argparse
import sys
import threading
import time

sys.path.insert(0, __file__.rsplit("/", 1)[0])

from checks import results, steps  # noqa: E402


def run_lane(lane, finished, lock):
    broken = set()
    for step in lane:
        missing = [name for name in step.needs if name in broken]
        start = time.monotonic()
        result = results.failed_to_start(missing) if missing else step.run()
        if result.failed:
            broken.add(step.name)
        with lock:
            finished.append(result)
            print(f"{step.name:<28} {result.summary():<40} {time.monotonic() - start:6.1f} s", flush=True)
            if result.failed:
                print(result.tail(), flush=True)
            for reason in result.skip_reasons:
                print(f"    skipped: {reason}", flush=True)


def main():
    parser = argparse.ArgumentParser(prog="./check", description=__doc__.split("\n\n")[0])
    parser.add_argument("step", nargs="*", help="only these steps (the build is always made)")
    parser.add_argument("--list", action="store_true", help="show the steps")
    args = parser.parse_args()
    lanes = steps.lanes()
    names = [step.name for lane in lanes for step in lane]
    if args.list:
        print("\n".join(names))
        return 0
    unknown = set(args.step) - set(names)
    if unknown:
        parser.error(f"no such step: {', '.join(sorted(unknown))}")
    if args.step:
        lanes = [[step for step in lane if step.name in args.step] for lane in lanes]

    start = time.monotonic()
    finished, lock = [], threading.Lock()
    run_lane(steps.builds(), finished, lock)
    if not any(result.failed for result in finished):
        threads = [threading.Thread(target=run_lane, args=(lane, finished, lock)) for lane in lanes]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    print(f"{time.monotonic() - start:.0f} s")
    total = [sum(getattr(result, kind) for result in finished) for kind in ("passed", "failed", "skipped")]
    print("{} passed, {} failed, {} skipped".format(*total))
    return 1 if total[1] else 0


if __name__ == "__main__":
    sys.exit(main())
