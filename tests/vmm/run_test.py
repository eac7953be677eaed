#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""`uniprof run` beside guests of others, which come up while it waits: it profiles its command's guest or says why not."""

import json
import os
import select
import subprocess
import threading
import time
import unittest
from pathlib import Path

from hostcase import PROGRAMS, UNIPROF, tracers
from kvm_test import kvm_works
from qemucase import Monitor, QemuCase

# Long enough for any machine: what takes as long has not been said by itself.
LONG = "10m"


class Victim:
    """A guest of somebody else, and whatever was done to it."""

    def __init__(self, process, qmp=None):
        self.process, self.qmp = process, qmp
        self.traced, self.ended = set(), threading.Event()
        self.watch = threading.Thread(target=self.look, daemon=True)
        self.watch.start()

    def look(self):
        while not self.ended.wait(0.005):
            try:
                self.traced |= tracers(self.process.pid)
            except FileNotFoundError:
                # A thread of QEMU's has ended, or the process with its test.
                continue

    def events(self):
        """QEMU's events about it since its owner connected."""
        seen = []
        if self.qmp:
            while select.select([self.qmp.socket], [], [], 0.2)[0]:
                seen.append(json.loads(self.qmp.line(time.monotonic() + 60)).get("event"))
        return seen

    def end(self):
        self.ended.set()
        self.watch.join()
        return self.traced


class RunCase(QemuCase):
    def setUp(self):
        super().setUp()
        self.results = self.scratch / "results"
        self.go = self.scratch / "go"
        self.victims = []

    def unikernel(self, name):
        program = self.scratch / name
        subprocess.run(["objcopy", "--add-section", ".uk_inittab=/dev/null", PROGRAMS / "subject", program], check=True)
        return program

    def strangers(self):
        """A QEMU, a unikernel that is a process and, where there is KVM, a monitor; all new, and all ready to be profiled."""
        sockets = [self.scratch / f"victim-{i}.sock" for i in range(2)]
        command = self.command("app1-pvh-fp", *(word for socket in sockets for word in ("-qmp", f"unix:{socket},server=on,wait=off")))
        command[command.index("-name") + 1] = "victim"
        qemu = self.start(*command)
        self.begins("app1")
        qmp = Monitor(sockets[1])
        self.addCleanup(qmp.close)
        self.victims.append(Victim(qemu, qmp))
        processes = [self.start(self.unikernel("victim"))]
        if not kvm_works():
            processes.append(self.start(PROGRAMS / "monitor", PROGRAMS / "spinner-fp"))
        for process in processes:
            self.wait_for(lambda: self.progress(process), "the victim says nothing")
            self.victims.append(Victim(process))
        self.socket = sockets[0]

    def untouched(self):
        """No victim was ever stopped or traced, and there is no file of any."""
        for victim in self.victims:
            self.assertEqual(victim.events(), [])
            self.assertFalse(victim.end())
            self.assertIsNone(victim.process.poll())
        self.assertEqual([path.name for path in self.results.glob("*") if path.name.split(".")[0] in ("victim", "monitor")], [])

    def launch(self, *command, options=()):
        return self.start(UNIPROF, "run", "-o", self.results, "--start-timeout", LONG, *options, "--", *command, start_new_session=True,
                          cwd=self.scratch)

    def waiting(self, then):
        """A command that says that it was started, and does something when it may."""
        return "sh", "-c", f"touch started; while ! test -e {self.go}; do sleep 0.05; done; {then}"

    def beside(self, *command, expect, options=()):
        """Runs a command; strangers come up once it was started, if it waits for that. Returns what was said."""
        waits = str(self.go) in command[-1]
        profiler = self.launch(*command, options=options)
        self.addCleanup(self.end_group, profiler.pid)
        if waits:
            self.wait_for(lambda: (self.scratch / "started").exists(), "the command is not started")
        self.strangers()
        self.go.touch()
        try:
            status = profiler.wait(120)
        except subprocess.TimeoutExpired:
            status = "no end"
        self.assertEqual(status, expect, profiler.log.read_text())
        return profiler.log.read_text()

    def own(self, name="own", *more, append="scale=1000"):
        command = self.command("app1-pvh-fp", *more, append=append)
        command[command.index("-name") + 1] = name
        command[command.index("-serial") + 1] = "null"
        return command

    def own_profile(self, name, function="function_3"):
        stacks = self.folded(self.results / f"{name}.uniprof", "--state", "all")
        self.assertTrue([stack for stack in stacks if function in stack], stacks)

    @staticmethod
    def end_program(path):
        """Ends what runs a program of this test's, in whatever session."""
        for link in Path("/proc").glob("[0-9]*/exe"):
            try:
                if os.readlink(link) == str(path):
                    os.kill(int(link.parent.name), 9)
            except OSError:
                continue

    def quoted(self, command):
        return " ".join(f"'{word}'" for word in command)


class NoGuest(RunCase):
    """Commands without a guest end in an error, and touch nobody's."""

    def test_a_command_that_starts_none(self):
        text = self.beside(*self.waiting("sleep 1"), expect=3)
        self.assertIn("sh has ended, and no guest of it is there", text)
        # A guest that came up meanwhile may be the one that was meant: it is named.
        self.assertIn(f"qemu:{self.victims[0].process.pid} (victim)", text)
        self.assertIn("uniprof record KIND:ID", text)
        self.untouched()

    def test_a_command_whose_guest_does_not_come(self):
        text = self.beside(*self.waiting("sleep 1000"), options=("--start-timeout", "5s"), expect=3)
        self.assertIn("started no guest within 5 s (--start-timeout)", text)
        self.untouched()

    def test_a_command_that_fails(self):
        self.assertIn("sh failed with status 3", self.beside(*self.waiting("exit 3"), expect=1))
        self.untouched()

    def test_a_guest_that_dies_at_once(self):
        self.assertIn("failed with status 1", self.uniprof("run", "--", "qemu-system-x86_64", "-M", "nonsense", expect=1))

    def test_one_that_cannot_be_executed(self):
        self.assertIn("cannot execute /nowhere/command: No such file", self.uniprof("run", "--", "/nowhere/command", expect=1))

    def test_qemu_without_a_socket_that_a_script_starts(self):
        text = self.beside(*self.waiting(f"exec {self.quoted(self.own())}"), expect=3)
        self.assertRegex(text, r"qemu:\d+ \(own\): give it a QMP socket: -qmp unix:PATH,server=on,wait=off")
        self.untouched()

    def test_a_socket_that_is_another_guests(self):
        qemu = self.scratch / "qemu-system-x86_64"
        qemu.write_text("#!/bin/sh\nwhile :; do sleep 0.1; done\n", encoding="ascii")
        qemu.chmod(0o755)
        text = self.beside(*self.waiting(f"exec {qemu} -qmp unix:{self.scratch}/victim-0.sock"), options=("--start-timeout", "20s"), expect=3)
        self.assertIn(f"is the QMP socket of process {self.victims[0].process.pid}, not of process", text)
        self.untouched()

    def test_ctrl_c_while_it_waits(self):
        profiler = self.launch("sleep", "1000")
        self.wait_for(lambda: any("guest-launcher" in name for name in self.below(profiler.pid)), "nothing is started")
        profiler.terminate()
        self.assertEqual(profiler.wait(60), 1)
        self.assertIn("interrupted before the guest was there", profiler.log.read_text())

    @staticmethod
    def below(pid):
        names = []
        for child in Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="ascii").split():
            try:
                names.append(Path(f"/proc/{child}/comm").read_text())
            except OSError:
                continue
        return names


class Guests(RunCase):
    """The guest of the command is profiled, whoever else has one."""

    def test_qemu_without_a_socket_is_given_one(self):
        text = self.beside(*self.own(), options=("-T", "2", "-F", "50"), expect=0)
        self.assertRegex(text, r"own\.uniprof: \d+ samples")
        self.own_profile("own")
        self.untouched()

    def test_its_socket_is_removed(self):
        before = set(Path("/tmp").glob("uniprof-run-*"))
        self.run_guest("-T", 1, "-F", 50, "--", *self.own())
        self.assertLessEqual(set(Path("/tmp").glob("uniprof-run-*")), before)

    def test_its_socket_is_removed_when_uniprof_is_killed(self):
        private = self.scratch / "private"
        private.mkdir()
        profiler = self.start(UNIPROF, "run", "-F", "50", "--", *self.own(), start_new_session=True, cwd=self.scratch,
                              env={**os.environ, "TMPDIR": str(private)})
        self.addCleanup(self.end_group, profiler.pid)
        self.wait_for(lambda: list(private.glob("*/qmp.sock")), "there is no socket")
        profiler.kill()
        self.wait_for(lambda: not list(private.iterdir()), "its directory is left")

    def test_a_daemon(self):
        command = self.own("own", "-daemonize", "-qmp", f"unix:{self.scratch}/own-qmp.sock,server=on,wait=off", "-pidfile", f"{self.scratch}/pid")
        self.addCleanup(lambda: os.kill(int((self.scratch / "pid").read_text()), 9))
        self.beside(*self.waiting(self.quoted(command)), options=("-T", "2", "-F", "50"), expect=0)
        self.own_profile("own")
        self.untouched()

    def test_a_process(self):
        program = self.unikernel("own")
        self.addCleanup(self.end_program, program)
        self.beside(*self.waiting(f"setsid --fork {program}"), options=("-T", "1"), expect=0)
        self.own_profile("own", "spin")
        self.untouched()

    def test_the_time_counts_from_when_the_guest_is_there(self):
        program = self.unikernel("own")
        self.run_guest("-T", 1, "-o", self.results, "--", "sh", "-c", f"sleep 2; exec timeout 20 {program}")
        self.assertGreater(self.head(self.results / "own.uniprof")["ticks"]["elapsed_ns"], 0.9e9)

    def test_two_that_start_at_the_same_moment(self):
        profilers = [self.launch(self.unikernel(name), options=("-T", "1")) for name in ("first", "second")]
        for profiler in profilers:
            self.addCleanup(self.end_group, profiler.pid)
        for profiler in profilers:
            self.assertEqual(profiler.wait(120), 0, profiler.log.read_text())
        for profiler, name in zip(profilers, ("first", "second")):
            self.assertIn(f"{name}.uniprof: ", profiler.log.read_text())

    @unittest.skipIf(kvm_works(), kvm_works() or "")
    def test_a_monitor_of_kvm(self):
        program = self.scratch / "own"
        program.write_bytes((PROGRAMS / "monitor").read_bytes())
        program.chmod(0o755)
        self.beside(*self.waiting(f"exec {program} {PROGRAMS / 'spinner-nofp'}"), options=("-T", "1"), expect=0)
        self.own_profile("own", "spin")
        self.untouched()


if __name__ == "__main__":
    unittest.main()
