#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""What was run: hosts and guests of which tests have made recordings.

Where ./check tells a directory for it (UNIPROF_RAN), each class of tests notes there what its recordings
say of themselves. Then `tests/rig/ran.py DIRECTORY` compares with the table of docs/guests.md: what that
tells of must have run. What it does not tell of yet is said; --write makes the table.
"""

import contextlib
import json
import os
import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "rig" / "lib"))

from xenrig.errors import RigError  # noqa: E402

PAPER = ROOT / "docs" / "guests.md"
HEAD = "| host | guest | processor |\n|---|---|---|\n"
TABLE = re.compile(re.escape(HEAD) + r"((?:\|.*\|\n)*)")
SKIPPED = 77

# For each recording in the directory and in `out` that is not large, the object "guest" of its report.
REPORTS = ("for file in *.uniprof out/*.uniprof; do [ ! -e $file ] || [ $(stat -c %s $file) -gt 1000000 ] ||"
           " uniprof report --json --rows 0 $file 2>/dev/null | sed -n '/^ \"guest\"/,/^ }/p'; done; true")
SECONDS = 300

# The target of recordings of several guests.
TOGETHER = "several"

GUEST = re.compile(r'^ "guest": (\{.*?^ \})', re.M | re.S)


def wanted():
    return "UNIPROF_RAN" in os.environ


def row(guest, any_kernel):
    """The table's; `any_kernel`: the host is this machine, whatever Linux it has."""
    host = re.sub(r", [\d.]+ ticks a second| at \S+:\S+| \(.*\)$", "", guest["host"])
    host = re.sub(r"(\d+\.\d+)[^ ,]*", r"\1", host)
    if any_kernel:
        host = re.sub(r"\bLinux \d+\.\d+", "Linux", host)
    return f"| {host} | {guest['type']} | {guest['arch']} |\n"


def note(name, text, any_kernel=False):
    """The guests of the reports in a text, for a class of tests."""
    directory = Path(os.environ["UNIPROF_RAN"])
    directory.mkdir(parents=True, exist_ok=True)
    guests = [json.loads(guest) for guest in GUEST.findall(text)]
    rows = {row(guest, any_kernel) for guest in guests if guest["target"] != TOGETHER}
    with open(directory / f"{name}-{os.getpid()}", "a", encoding="utf-8") as noted:
        noted.writelines(sorted(rows))


def note_rig(name, rig, condition="true"):
    """... of the recordings on a rig's host, if a command succeeds there. A rig that does not answer has failed its tests already."""
    if wanted():
        with contextlib.suppress(RigError):
            note(name, rig.run(f"if {condition}; then {REPORTS}; fi", timeout=SECONDS).text)


def main():
    directory = Path(sys.argv[1])
    ran = {line for path in directory.glob("*") for line in path.read_text(encoding="utf-8").splitlines(keepends=True)}
    text = PAPER.read_text(encoding="utf-8")
    said = set(TABLE.search(text)[1].splitlines(keepends=True))
    if "--write" in sys.argv:
        PAPER.write_text(TABLE.sub(lambda _: HEAD + "".join(sorted(ran)), text), encoding="utf-8")
        return 0
    if said - ran:
        print("docs/guests.md tells of what was not run:", "; ".join(line.strip("| \n") for line in sorted(said - ran)))
        return 1
    if ran - said:
        print(f"docs/guests.md does not tell of what was run (tests/rig/ran.py {directory} --write):",
              "; ".join(line.strip("| \n") for line in sorted(ran - said)))
        return SKIPPED
    return 0


if __name__ == "__main__":
    sys.exit(main())
