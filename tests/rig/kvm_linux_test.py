#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""Processes and threads of Debian's own kernel as a guest of a real KVM: compared with what its /proc tells inside.

On one CPU that counts instructions: the clocks of several emulated CPUs are not one, and timers of a guest that is moved
between them come seconds late. There, too, a guest may stand still: for seconds, or for good, in an interrupt that the emulator has
delivered twice, the second time while interrupts were off (docs/guests.md). What was seen then does not count, and a test whose guest is dead begins
again on another host.
"""

import functools
import json
import re
import subprocess
import tempfile
import unittest
from pathlib import Path

import chance
from guestcase import GUESTS, parse_folded, unpacked
from kvmcase import KvmCase
from linuxfiles import archive
from xenrig import RigTimeout, image, packages

# Three processes that always want the CPU; again and again, how much they have had.
# All programs are linked to the same addresses.
INIT = r"""#!/bin/busybox sh
b=/bin/busybox
$b mount -t devtmpfs none /dev
$b mount -t proc none /proc
exec >/dev/TTY 2>&1
/bin/linux-threads & a=$!
$b dd if=/dev/zero of=/dev/null bs=64k & c=$!
$b sh -c 'while :; do :; done' & d=$!
until $b grep -q '^turns' /proc/$a/task/*/comm; do $b sleep 1; done
echo "processes $a $c $d"
while :; do
	for p in $a $c $d; do
		t=0
		for x in /proc/$p/task/*/schedstat; do read n rest <$x; t=$((t + n)); done
		echo "ran $p $t"
	done
	$b sleep 1
done
"""
DEVICE, DIRECTORY, PROGRAM = 0o20600, 0o40755, 0o100755

# Where the host is slow, the kernel sets a timer wrong that it has to compare with another clock. Without kvm-pv-eoi, the handler of
# an interrupt begins with an exit, behind which the emulator does not deliver it again.
BOOT = ("qemu-system-x86_64 -accel kvm -M microvm -cpu qemu64,+tsc-deadline,kvm-pv-eoi=off -m 192 -nodefaults -display none -serial file:console -no-reboot "
        "-name linux -kernel vmlinux -initrd files.cpio -append 'console=ttyS0 quiet mitigations=off cryptomgr.notests panic=-1' >log 2>&1 &")
BOOT_S = 300

# Seconds of the host in which a guest that stood still tells of its processes again, or is dead.
STANDSTILL = 30

# Hosts that are tried for one test, where guests have died.
HOSTS = 3

# At many more samples a second, sampling and the guest's own time slices fall into step on one CPU.
RATE = 23
SECONDS = 14
# Between shares of samples and of CPU time.
TOLERANCE = 0.06

# What code of a process is called if no file of it is at hand.
OWN = {"linux-threads": "[linux-threads]", "busybox": "[busybox]"}


class Dead(Exception):
    """The guest tells nothing any more."""


def with_a_guest_that_lives(test):
    """Runs a test again, on another host, where the guest is dead, or a command on the host does not end."""
    @functools.wraps(test)
    def run(self):
        for _ in range(HOSTS - 1):
            try:
                return test(self)
            except (Dead, RigTimeout) as error:
                print(f"another host: {str(error).splitlines()[0]}", flush=True)
                self.rig.close()
                self.setUpClass()
        return test(self)
    return run


class LinuxChecks:
    """Of a KvmCase, whose tests share one guest: its boot takes most of the time."""

    release = "4.17"  # of Xen in the rig, whose Debian has the guest's kernel
    threads = GUESTS / "linux-threads"
    boot_linux, tty = BOOT, "ttyS0"
    rate, tolerance = RATE, TOLERANCE
    # A recording is given up after so many times its length, where nothing else runs.
    longest = 60

    @classmethod
    def start_linux(cls, kernel):
        """Boots the guest with these bytes as its kernel."""
        cls.rig.write("vmlinux", kernel)
        cls.rig.write("files.cpio", cls.files())
        cls.rig.run(cls.boot_linux, check=True)
        cls.rig.run(f"i=0; until grep -q '^ran' console 2>/dev/null; do i=$((i + 1)); [ $i -lt {BOOT_S} ] || exit 1; sleep 1; done",
                    timeout=20 * BOOT_S, check=True)
        pids = [int(pid) for pid in re.search(r"^processes (\d+) (\d+) (\d+)", cls.console(), re.M).groups()]
        cls.names = {pid: f"{name} ({pid})" for pid, name in zip(pids, ("linux-threads", "busybox", "busybox"))}

    def tearDown(self):
        self.host("killall -9 uniprof 2>/dev/null; true")

    @classmethod
    def files(cls):
        with tempfile.TemporaryDirectory() as directory:
            deb = next(packages.ensure(cls.release, print, cls.port).glob("busybox-static_*.deb"))
            subprocess.run(["dpkg-deb", "-x", deb, directory], check=True)
            busybox = next(Path(directory).rglob("bin/busybox")).read_bytes()
        return archive({**{name: (DIRECTORY, b"", (0, 0)) for name in ("bin", "dev", "proc")}, "dev/console": (DEVICE, b"", (5, 1)),
                        "bin/busybox": (PROGRAM, busybox, (0, 0)), "bin/linux-threads": (PROGRAM, cls.threads.read_bytes(), (0, 0)),
                        "init": (PROGRAM, INIT.replace("TTY", cls.tty).encode(), (0, 0))})

    @classmethod
    def console(cls):
        return cls.rig.run("cat console", check=True).text.replace("\r", "")

    def inside(self):
        """{process: ns of CPU time}, as it was told last."""
        return {int(pid): int(ns) for pid, ns in re.findall(r"^ran (\d+) (\d+)\n", self.console(), re.M)}

    def ran(self, before):
        """{process: ns of CPU time} since then; None, once its processes tell of themselves again, where they have not all."""
        ran = {pid: ns - before[pid] for pid, ns in self.inside().items()}
        if all(ran.values()):
            return ran
        for _ in range(STANDSTILL):
            self.host("sleep 1", timeout=20)
            if all(ns > before[pid] for pid, ns in self.inside().items()):
                return None
        raise Dead(f"the guest stands still: {ran}")

    def rows(self, by, key="self"):
        """{row: samples}; a row is the values of the keys that were asked for."""
        report = json.loads(self.host(f"uniprof report --json --rows 0 --state all --by {by} out.uniprof"))
        return {tuple(row[name] for name in by.split(",")): row[key]["samples"] for row in report["rows"]}

    def take(self, way, attempt):
        """({process: samples}, {process: share of the CPU time of those that are known})"""
        before = self.inside()
        seconds = SECONDS * chance.longer(attempt)
        said = self.record("linux", "--via", way, "-F", self.rate, "-T", seconds, timeout=self.longest * seconds)
        self.assertIn(f" via {way},", said)
        ran = self.ran(before)
        if ran is None:
            return {}, dict.fromkeys(self.names.values(), 0)
        seen = {row: n for (row,), n in self.rows("process").items() if row in self.names.values()}
        print(f"{way}: {seen} {ran}", flush=True)
        self.check_stacks()
        return seen, {self.names[pid]: ns / max(sum(ran.values()), 1) for pid, ns in ran.items()}

    def check_stacks(self):
        """No process has code of another, nor the kernel's work for another: 0 mixed."""
        reader = [*self.names.values()][1]
        for (process, function), n in self.rows("process,function", "total").items():
            program = process.rsplit(" (", 1)[0]
            if function in OWN.values() and process != "[unknown]":
                self.assertEqual(function, OWN.get(program, "[busybox]" if program == "init" else None), (process, n))
            if function == "read_zero":
                # While the kernel switches between two, it is not known which one the stack is of.
                self.assertIn(process, (reader, "[unknown]"), n)

    def check_threads(self):
        """Of the program with three threads, the one that turns has all samples."""
        found = [row.rsplit(" (", 1)[0] for (row,) in self.rows("thread") if row.startswith("linux-threads")]
        self.assertEqual(found, ["linux-threads/turns (x) y"])

    def check_shares_by(self, way):
        chance.check_shares(lambda attempt: self.take(way, attempt), self.tolerance)
        self.check_threads()


class Linux(LinuxChecks, KvmCase):
    rig_options = {"icount": True}
    longest = 3

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.start_linux(unpacked(image.ensure("4.17", print) / "linux"))

    @with_a_guest_that_lives
    def test_shares_by_bpf(self):
        self.check_shares_by("bpf")

    @with_a_guest_that_lives
    def test_shares_by_ptrace(self):
        self.check_shares_by("ptrace")

    @with_a_guest_that_lives
    def test_ps_has_processes_and_their_threads(self):
        told = json.loads(self.host("uniprof ps --json kvm:linux 2>/dev/null"))
        threads = {process["pid"]: [thread["name"] for thread in process["threads"]] for process in told["processes"]}
        for pid, name in self.names.items():
            self.assertIn(name.rsplit(" (", 1)[0], threads[pid])
        program = next(pid for pid, name in self.names.items() if name.startswith("linux-threads"))
        self.assertIn("turns (x) y", threads[program])

    @with_a_guest_that_lives
    def test_the_live_view_has_processes_within_two_seconds(self):
        for _ in range(chance.TAKES):
            before = self.inside()
            text = self.host("uniprof top -b -n 1 -d 2 --by process kvm:linux; sleep 2", timeout=30)
            if self.ran(before):
                break
        rows = re.findall(r" (\S+ \(\d+\)|\[unknown\])\n", text)
        self.assertTrue({*rows} & {*self.names.values()}, rows)

    @with_a_guest_that_lives
    def test_threads_that_wait(self):
        """Sleeping threads are read from memory alone."""
        self.record("linux", "--threads", "-F", 47, "-T", 8, timeout=600)
        stacks = parse_folded(self.host("uniprof export --format=folded --state off-cpu --by thread out.uniprof 2>/dev/null"))
        waits = [stack for stack in stacks if stack[0].startswith("linux-threads/waits")]
        self.assertTrue(waits, stacks)
        for stack in waits:
            self.assertTrue(any("pause" in function for function in stack), stack)


if __name__ == "__main__":
    unittest.main()
