#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""Compares the profile of the demo guest with what the guest counted itself.

usage: rig/demo/shares.py DIRECTORY, which holds app1.folded and app1.truth; writes shares.json there.
"""

import json
import sys
from pathlib import Path

FUNCTIONS = ["function_1", "function_2", "function_3"]


def read_folded(path):
    """[(names of a stack, samples)]"""
    stacks = []
    for line in path.read_text().splitlines():
        names, count = line.rsplit(" ", 1)
        stacks.append((names.split(";"), int(count)))
    return stacks


def read_truth(path):
    """{function: share}, of lines such as "truth function_1 calls 100 ticks 2000 share 0.1003"."""
    words = [line.split() for line in path.read_text().splitlines()]
    return {line[1]: float(line[line.index("share") + 1]) for line in words}


def main():
    directory = Path(sys.argv[1])
    # The guest's count begins with its work and ends before it prints what it counted.
    stacks = [(names, samples) for names, samples in read_folded(directory / "app1.folded")
              if "main" in names and "print_truth" not in names]
    truth = read_truth(directory / "app1.truth")
    total = sum(samples for _, samples in stacks)
    if not total:
        sys.exit("demo: the profile is empty")
    shares = {}
    for name in FUNCTIONS:
        samples = sum(samples for names, samples in stacks if name in names)
        shares[name] = {"share": round(samples / total, 4), "expected": truth[name], "samples": samples}
    (directory / "shares.json").write_text(json.dumps(shares, indent=1) + "\n")

    print(f"\n{'function':<12} {'profiled':>9} {'expected':>9} {'samples':>9}")
    for name, row in shares.items():
        print(f"{name:<12} {100 * row['share']:7.2f} % {100 * row['expected']:7.2f} % {row['samples']:9}")


if __name__ == "__main__":
    main()
