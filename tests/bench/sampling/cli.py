# SPDX-License-Identifier: BSD-3-Clause
"""The command line of tests/bench/sample."""

import argparse
import json
import os
import sys
from pathlib import Path

from . import measure, picture, render

DESCRIPTION = """Measures what a sample costs, in the rig, beside the bare hypercalls, the classic way and xenctx,
and what a guest gets done while it is sampled. Takes about 20 minutes; leave the machine alone meanwhile
for the sake of the figures of two CPUs. Prints tables and how the figures stand to their limits."""

BEGINS = {False: "<!-- made by tests/bench/sample --docs -->\n", True: "<!-- made by tests/bench/sample --docs, of arm64 -->\n"}
ENDS = "<!-- end of what was made -->\n"


def write_docs(root, rows):
    """Puts the tables between the marks of docs/cost.md, those of the machines that were measured, and the picture beside it."""
    page = root / "docs" / "cost.md"
    text = page.read_text(encoding="utf-8")
    for arm64, begin in BEGINS.items():
        chosen = [row for row in rows if row["unit"].startswith("arm64") == arm64]
        if chosen:
            before, rest = text.split(begin)
            text = before + begin + "\n" + render.text(chosen) + "\n" + ENDS + rest.split(ENDS, 1)[1]
    page.write_text(text, encoding="utf-8")
    if any(row["unit"].startswith("icount") for row in rows):
        (root / "docs" / "images" / "cost.svg").write_text(picture.draw(rows), encoding="utf-8")


def parse():
    parser = argparse.ArgumentParser(prog="tests/bench/sample", description=DESCRIPTION)
    parser.add_argument("--json", action="store_true", help="print one object a line instead of tables")
    parser.add_argument("--docs", action="store_true", help="also write the tables and the picture to docs/")
    parser.add_argument("--svg", metavar="FILE", type=Path, help="also draw the picture")
    parser.add_argument("--from", dest="source", metavar="FILE", action="append", type=Path,
                        help="take the figures of an earlier --json; may be given again")
    parser.add_argument("--machine", action="append", choices=list(measure.MACHINES), help="only this one (both)")
    parser.add_argument("--only", action="append", choices=list(measure.PARTS), help="only this part (all)")
    return parser.parse_args()


def figures(root, args):
    """Yields rows, from files or measured."""
    for source in args.source or []:
        yield from map(json.loads, source.read_text(encoding="utf-8").splitlines())
    if args.source and not (args.machine or args.only):
        return
    build = Path(os.environ.get("UNIPROF_BUILD", root / "build"))
    yield from measure.measure(build, args.machine or list(measure.MACHINES), args.only or list(measure.PARTS),
                               lambda what: print(what, file=sys.stderr, flush=True))


def main(root):
    args = parse()
    rows = []
    for row in figures(root, args):
        rows.append(row)
        if args.json:
            print(json.dumps(row), flush=True)
    if not args.json:
        print(render.text(rows))
    if args.svg:
        args.svg.write_text(picture.draw(rows), encoding="utf-8")
    if args.docs:
        write_docs(root, rows)
    return 0
