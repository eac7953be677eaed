#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""Processes and threads of Debian's kernel in QEMU, in recordings by its stub, with the kernel's tables for user mode apart or not."""

import json
import re
import unittest

from hostcase import BUILD, UNIPROF, chance
from qemucase import QemuCase
from xenrig import RigError, image

# Its leader and one thread wait for ever, another turns (guests/linux/threads.c).
PROGRAM = BUILD / "guests" / "linux-threads"
TURNS = "init/turns (x) y "

# Does nothing but wait, and tells how long for what (guests/linux/waits.c); in these functions of the kernel.
WAITING = BUILD / "guests" / "linux-waits"
WAITS = ("hrtimer_nanosleep", "futex_wait", "kernel_clone")
TOLERANCE = 0.03

# Seconds until a kernel under emulation, on a busy machine, has started a program.
BOOT = 300

ENOUGH = 150


def archive(files):
    """A cpio archive ("newc") of {name: (mode, contents, device)}."""
    out = b""
    for number, (name, (mode, data, device)) in enumerate([*files.items(), ("TRAILER!!!", (0, b"", (0, 0)))], 1):
        fields = (number, mode, 0, 0, 1, 0, len(data), 0, 0, *device, len(name) + 1, 0)
        out += b"070701" + b"".join(b"%08x" % field for field in fields) + name.encode() + b"\0"
        out += bytes(-len(out) % 4) + data
        out += bytes(-len(out) % 4)
    return out


class Linux(QemuCase):
    @classmethod
    def setUpClass(cls):
        try:
            cls.kernel = image.ensure("4.17", print) / "linux"
        except RigError as error:
            raise unittest.SkipTest(str(error)) from error

    def start_linux(self, words, program=PROGRAM):
        files = self.scratch / "files"
        self.console = self.scratch / "console"
        files.write_bytes(archive({"dev": (0o40755, b"", (0, 0)), "dev/console": (0o20600, b"", (5, 1)),
                                   "init": (0o100755, program.read_bytes(), (0, 0))}))
        self.qmp = self.scratch / "qmp.sock"
        self.start("qemu-system-x86_64", "-accel", "tcg", "-M", "pc", "-cpu", "max", "-m", "192", "-smp", "2", "-nodefaults", "-display", "none",
                   "-no-reboot", "-name", "linux", "-kernel", self.kernel, "-initrd", files, "-append", f"no_timer_check panic=-1 {words}",
                   "-serial", f"file:{self.console}",
                   "-qmp", f"unix:{self.qmp},server=on,wait=off")
        self.wait_for(self.qmp.is_socket, "QEMU makes no socket")

    def wait_for_thread(self, name):
        def is_there():
            done = self.start(UNIPROF, "ps", f"qemu:{self.qmp}")
            done.wait(BOOT)
            return f" {name}" in done.log.read_text(errors="replace")

        self.wait_for(is_there, "its program does not begin", BOOT)

    def rows(self, by):
        text = self.uniprof("report", "--json", "--rows", 0, "--state", "all", "--by", by, "out.uniprof")
        keys = by.split(",")
        return {tuple(row[key] for key in keys): row["self"]["samples"] for row in json.loads(text)["rows"]}

    def recorded(self):
        """Samples of each thread, from when the kernel was found on, which takes a while."""
        for attempt in range(chance.TAKES):
            self.uniprof("record", "-q", "-F", 50, "-T", 5 * chance.longer(attempt), "-o", "out.uniprof", f"qemu:{self.qmp}", timeout=600)
            rows = {row: n for (row,), n in self.rows("thread").items() if row != "[unknown]"}
            if sum(rows.values()) >= ENOUGH:
                return rows
        self.fail(f"no threads are told: {rows}")

    def check(self, words):
        self.start_linux(words)
        self.wait_for_thread("turns (x) y")
        rows = self.recorded()
        turning = [row for row in rows if row.startswith(TURNS)]
        self.assertEqual(len(turning), 1, rows)
        # One of the two CPUs has it all the time, the other one nearly nothing to do.
        total = sum(rows.values())
        self.assertLessEqual(abs(rows[turning[0]] / total - 0.5), 0.1 + chance.margin(0.5, total), rows)
        # Code of programs is the only one that has no name.
        programs = {process for process, function in self.rows("process,function") if function.startswith("0x")}
        self.assertLessEqual(programs, {"init (1)", "[unknown]"})

    def waited(self):
        """ns that each kind of wait has had, as the program told last."""
        return [int(ns) for ns in re.findall(r"^waited (\d+) (\d+) (\d+)\r?\n", self.console.read_text(), re.M)[-1]]

    def take_waits(self, attempt):
        before = self.waited()
        self.uniprof("record", "-q", "--threads", "--thread-cost", 50, "--max-overhead", 50, "-F", 97, "-T", 15 * chance.longer(attempt), "-o", "out.uniprof",
                     f"qemu:{self.qmp}", timeout=600)
        had = [after - ns for after, ns in zip(self.waited(), before)]
        report = json.loads(self.uniprof("report", "--json", "--rows", 0, "--state", "off-cpu", "--pid", 1, "out.uniprof"))
        rows = {row["function"]: row["total"]["weight_ns"] for row in report["rows"] if row["function"] in WAITS}
        whole, samples = max(sum(rows.values()), 1), report["stacks"]["selected"]
        return ({row: samples * ns / whole for row, ns in rows.items()},
                {function: ns / max(sum(had), 1) for function, ns in zip(WAITS, had)})

    def test_waits_have_the_shares_that_their_program_tells(self):
        self.start_linux("quiet console=ttyS0", WAITING)
        self.wait_for(lambda: self.console.exists() and "waited" in self.console.read_text(), "its program does not begin", BOOT)
        self.wait_for_thread("init")
        chance.check_shares(self.take_waits, TOLERANCE)
        told = json.loads(self.uniprof("report", "--json", "--rows", 0, "out.uniprof"))
        self.assertEqual(told["stacks"]["selected"], told["states"]["running"]["samples"])
        self.assertGreater(told["states"]["disk"]["samples"], 0)

    def test_threads(self):
        self.check("")

    def test_threads_where_programs_run_on_tables_without_the_kernel(self):
        self.check("pti=on")


del QemuCase

if __name__ == "__main__":
    unittest.main()
