#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""What each process of uniprof may do, as /proc shows it: compared with the table of SECURITY.md; --table prints it."""

import os
import re
import sys
import unittest
from pathlib import Path

from hostcase import ROOT, UNIPROF, named
from qemucase import QemuCase

HEAD = ("| process | user | capabilities | more by `exec` | system calls | core dumps | CPU time | memory | open |\n"
        "|---|---|---|---|---|---|---|---|---|\n")
NOBODY = "65534"


def kind_of(target):
    """What an open file is, as a reader of the table understands it."""
    kinds = (r"/dev/null", "`/dev/null`"), (r"pipe:.*", "pipes"), (r"socket:.*", "sockets"), (r"/proc/\d+/mem", "memory of the monitor"), (r".*\.uniprof", "the recording"), \
        (r"/proc/\d+/task/.*", "times of its threads"), (r"/proc/\d+/stat", "the profiler's state"), (r".*/uniprof/symbols", "the symbol cache"), (r".*\.elf", "files of symbols"), (r".*/silent", "files of symbols"), (r".*\.log", "standard error"), (r"anon_inode:\[?([\w-]+)\]?", r"\1")
    for pattern, kind in kinds:
        if re.fullmatch(pattern, target):
            return re.sub(pattern, kind, target)
    return target


def limit(text, name, unit, hard):
    """A soft limit; `hard`: only that there is one, as what it counts from differs."""
    value = re.search(rf"^{name} +(\S+)", text, re.M)[1]
    return "any" if value == "unlimited" else "bounded" if hard else f"{value}{unit}"


class Rights(QemuCase):
    def setUp(self):
        if os.getuid():
            self.skipTest("only root has rights to give up")
        if "Seccomp_filters:" not in Path("/proc/self/status").read_text():
            self.skipTest("this kernel does not tell how many filters a process has (Linux 5.9)")
        super().setUp()

    def confined(self, pid, filters):
        """Waits until a process has its filter, beside those of its parent: it has given up all then; its status."""
        status = lambda: Path(f"/proc/{pid}/status").read_text()  # noqa: E731
        self.wait_for(lambda: re.search(rf"^Seccomp_filters:\s+{filters}$", status(), re.M), "system calls are not filtered")
        return status()

    def row(self, name, pid, filters=1):
        status = self.confined(pid, filters)
        users = set(re.search(r"^Uid:\s+(.*)$", status, re.M)[1].split() + re.search(r"^Gid:\s+(.*)$", status, re.M)[1].split())
        rights = {int(word, 16) for word in re.findall(r"^Cap\w+:\s+(\w+)$", status, re.M)}
        more = re.search(r"^NoNewPrivs:\s+(\d)$", status, re.M)[1]
        limits = Path(f"/proc/{pid}/limits").read_text()
        files = {kind_of(os.readlink(fd)) for fd in Path(f"/proc/{pid}/fd").iterdir()}
        return (f"| {name} | {', '.join(sorted(users))} | {'none' if rights == {0} else 'some'} | {'none' if more == '1' else 'any'} | filtered | "
                f"{'none' if limit(limits, 'Max core file size', '', False) == '0' else 'any'} | {limit(limits, 'Max cpu time', ' s', False)} | "
                f"{limit(limits, 'Max address space', '', True)} | {', '.join(sorted(files))} |\n")

    def rows_of_a_recording(self):
        process = self.qemu()
        profiler = super(QemuCase, self).recorder(f"qemu:{process.pid}", rate=50)
        self.records(profiler)
        self.wait_for(lambda: named("unpause-guard"), "there is no guard")
        guard = next(guard for guard in named("unpause-guard") if re.search(rf"^PPid:\s+{profiler.pid}$", (guard / "status").read_text(), re.M))
        rows = self.row("profiler of a guest of QEMU", profiler.pid) + self.row("guard", guard.name)
        self.interrupt(profiler)
        return rows

    def rows_of_a_report(self):
        """A reader waits for a pipe that says nothing."""
        os.mkfifo(self.scratch / "silent")
        self.addCleanup(os.close, os.open(self.scratch / "silent", os.O_RDWR))
        report = self.start(UNIPROF, "report", "-s", "silent", "out.uniprof", cwd=self.scratch)
        children = lambda: Path(f"/proc/{report.pid}/task/{report.pid}/children").read_text().split()  # noqa: E731
        self.wait_for(children, "there is no reader")
        reader = children()[0]
        return self.row("`report`, `export` and the like", report.pid) + self.row("`uniprof-reader`", reader, 2)

    def table(self):
        return HEAD + self.rows_of_a_recording() + self.rows_of_a_report()

    def test_they_are_as_the_table_says(self):
        self.assertIn(self.table(), (ROOT / "SECURITY.md").read_text())


class Table(Rights):
    """For --table."""

    def test_they_are_as_the_table_says(self):
        print(self.table(), end="")


if __name__ == "__main__":
    if sys.argv[1:] == ["--table"]:
        sys.argv[1:] = ["Table"]
    else:
        del Table
    unittest.main()
