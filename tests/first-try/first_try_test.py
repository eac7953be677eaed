#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""First commands that people type, beside guests of others: each ends in a right profile, or says what to type next.

The command lines are those of Unikraft's, Solo5's and libvirt's launchers; the guests are ours, so that it is known
what is right.
"""

import os
import shutil
import socket
import subprocess
import sys
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "vmm"))

from hostcase import BUILD, UNIPROF  # noqa: E402
from run_test import RunCase  # noqa: E402

# Times that a recording has to grow once the guest's program runs: it does so about once a second.
GROWTHS = 8

# Longer than the slowest of machines needs.
PATIENCE_S = 240


class FirstTry(RunCase):
    """The strangers are there before and after each command."""

    def setUp(self):
        super().setUp()
        self.strangers()
        self.console = self.scratch / "own.console"

    def untouched(self):
        super().untouched()
        self.assertEqual([path.name for path in self.scratch.rglob("victim*") if path.suffix in (".uniprof", ".raw", ".folded", ".svg")], [])

    def image(self, name="web_qemu-x86_64", debug=True):
        """A stripped image, as builds leave it, with or without the file that has its names beside it."""
        whole, image = BUILD / "guests" / "app1-pvh-fp.elf", self.scratch / name
        subprocess.run(["strip", "-o", image, whole], check=True)
        if debug:
            shutil.copy(whole, self.scratch / f"{name}.dbg")
        return image

    def serial(self):
        return "-serial", f"file:{self.console}"

    def typed(self, *words):
        """Starts uniprof as a shell does, in a directory of the user's."""
        profiler = self.start(UNIPROF, *map(str, words), start_new_session=True, cwd=self.scratch)
        self.addCleanup(self.end_group, profiler.pid)
        return profiler

    def samples_come(self, profiler, recording):
        """Waits until the guest's program has run and was sampled for a while; then ends the recording, as Ctrl-C does."""
        def ended_or(what):
            return lambda: profiler.poll() is not None or what()

        def size():
            return recording.stat().st_size if recording.exists() else 0

        self.wait_for(ended_or(lambda: self.console.exists() and b"app1" in self.console.read_bytes()), "the guest says nothing", PATIENCE_S)
        for _ in range(GROWTHS):
            before = size()
            self.wait_for(ended_or(lambda than=before: size() > than), "nothing is recorded", PATIENCE_S)
        self.assertIsNone(profiler.poll(), profiler.log.read_text(errors="replace"))
        profiler.send_signal(2)
        self.assertEqual(profiler.wait(PATIENCE_S), 0, profiler.log.read_text(errors="replace"))
        return profiler.log.read_text(errors="replace")

    def is_right(self, recording):
        """The guest's own functions, under their names."""
        stacks = self.folded(recording, "--state", "all")
        self.assertTrue([stack for stack in stacks if "main" in stack], stacks)
        self.untouched()

    def only_recording(self):
        return self.scratch / "web_qemu-x86_64.uniprof"

    def end_by_pidfile(self, path):
        if path.exists():
            try:
                os.kill(int(path.read_text(encoding="ascii")), 9)
            except (OSError, ValueError):
                pass


class Profiles(FirstTry):
    def test_qemu_with_nothing_but_an_image(self):
        profiler = self.typed("run", "-F", "1000", "--", "qemu-system-x86_64", "-display", "none", *self.serial(), "-m", "64", "-kernel",
                              self.image().name)
        # What firmware does to memory, and to that of devices, is no news.
        self.assertNotIn("memory", self.samples_come(profiler, self.only_recording()))
        self.is_right(self.only_recording())

    def test_qemu_without_the_dashes_before_it(self):
        profiler = self.typed("run", "qemu-system-x86_64", "-name", "web", "-display", "none", *self.serial(), "-m", "64", "-kernel",
                              self.image().name)
        self.samples_come(profiler, self.scratch / "web.uniprof")
        self.is_right(self.scratch / "web.uniprof")

    def test_unikrafts_launcher(self):
        pidfile = self.scratch / "machine.pid"
        self.addCleanup(self.end_by_pidfile, pidfile)
        profiler = self.typed(
            "run", "--", "qemu-system-x86_64", "-cpu", "qemu64,+pdpe1gb,-vmx,-svm", "-daemonize", "-display", "none", "-kernel", self.image(),
            "-machine", "pc,accel=tcg", "-m", "size=64M", "-monitor", f"unix:{self.scratch}/qemu_mon.sock,server,nowait", "-name", "web",
            "-no-reboot", "-S", "-parallel", "none", "-pidfile", pidfile, "-qmp", f"unix:{self.scratch}/qemu_control.sock,server,nowait",
            "-rtc", "base=utc", *self.serial(), "-smp", "cpus=1,threads=1,sockets=1", "-vga", "none")
        # It lets the guest run once it is ready to watch it.
        self.lets_run()
        self.samples_come(profiler, self.scratch / "web.uniprof")
        self.is_right(self.scratch / "web.uniprof")

    def lets_run(self):
        with socket.socket(socket.AF_UNIX) as monitor:
            monitor.settimeout(PATIENCE_S)
            # The socket is there before QEMU listens at it.
            self.wait_for(lambda: monitor.connect_ex(str(self.scratch / "qemu_mon.sock")) == 0, "QEMU does not listen", PATIENCE_S)
            monitor.recv(1)
            monitor.sendall(b"cont\n")
            # The monitor answers after it has done it.
            answer = b""
            while answer.count(b"(qemu)") < 2:
                part = monitor.recv(4096)
                self.assertTrue(part, "the monitor is gone")
                answer += part

    def test_solo5s_launcher(self):
        profiler = self.typed("run", "--", "qemu-system-x86_64", "-nodefaults", "-display", "none", *self.serial(), "-m", "64", "-device",
                              "isa-debug-exit", "-kernel", self.image(), "-append", "scale=1000")
        self.samples_come(profiler, self.only_recording())
        self.is_right(self.only_recording())

    def libvirts(self):
        guest = self.start("qemu-system-x86_64", "-name", "guest=web,debug-threads=on", "-no-user-config", "-nodefaults", "-display", "none", "-m", "64",
                           "-machine", "pc,accel=tcg", "-kernel", self.image(), "-chardev",
                           f"socket,id=charmonitor,path={self.scratch}/monitor.sock,server=on,wait=off", "-mon",
                           "chardev=charmonitor,id=monitor,mode=control", *self.serial(), cwd=self.scratch)
        self.begins("app1")
        return guest

    def test_a_guest_of_libvirts_by_its_name(self):
        self.libvirts()
        profiler = self.typed("record", "-o", "out.uniprof", "qemu:web")
        self.samples_come(profiler, self.scratch / "out.uniprof")
        self.is_right(self.scratch / "out.uniprof")

    def test_a_guest_that_runs_by_whatever_it_is_called(self):
        guest = self.libvirts()
        self.wait_for(lambda: "main" in self.uniprof("stack", "web"), "it does not get to its program")
        for name in "web", guest.pid, "qemu:web", f"qemu:{guest.pid}", "qemu:monitor.sock":
            with self.subTest(name=name):
                self.uniprof("record", "-T", 1, "-o", "out.uniprof", name)
                self.is_right(self.scratch / "out.uniprof")

    def test_a_guest_that_runs_at_one_look(self):
        self.libvirts()
        self.assertRegex(self.uniprof("list"), r"(?m)^qemu +\d+ +web .*uniprof record qemu:web$")
        self.wait_for(lambda: "main" in self.uniprof("top", "-b", "-n", 1, "web"), "it does not get to its program")
        self.assertIn("main", self.uniprof("stack", "web"))
        self.untouched()

    def test_an_image_without_names(self):
        image = self.image("nameless", debug=False)
        profiler = self.typed("run", "--", "qemu-system-x86_64", "-name", "nameless", "-display", "none", *self.serial(), "-m", "64", "-kernel",
                              image)
        said = self.samples_come(profiler, self.scratch / "nameless.uniprof")
        self.assertIn("-s FILE gives names, also afterwards", said)
        stacks = self.folded(self.scratch / "nameless.uniprof", "--state", "all", "-s", BUILD / "guests" / "app1-pvh-fp.elf")
        self.assertTrue([stack for stack in stacks if "main" in stack], stacks)
        self.untouched()

    def test_a_unikernel_that_is_a_process(self):
        program = self.unikernel("web_linuxu-x86_64")
        profiler = self.typed("run", "-T", "2", "--", program)
        self.assertEqual(profiler.wait(PATIENCE_S), 0, profiler.log.read_text(errors="replace"))
        stacks = self.folded(next(self.scratch.glob("web*.uniprof")), "--state", "all")
        self.assertTrue([stack for stack in stacks if "spin" in stack], stacks)
        self.untouched()

    def test_two_that_start_at_the_same_moment(self):
        image = self.image()
        both = []
        for name in ("first", "second"):
            console = self.scratch / f"{name}.console"
            both.append((console, self.typed("run", "--", "qemu-system-x86_64", "-name", name, "-display", "none", "-serial", f"file:{console}",
                                             "-m", "64", "-kernel", image)))
        for (self.console, profiler), name in zip(both, ("first", "second")):
            self.samples_come(profiler, self.scratch / f"{name}.uniprof")
        for name in ("first", "second"):
            self.is_right(self.scratch / f"{name}.uniprof")


class Answers(FirstTry):
    """What cannot work ends in a sentence, and in nothing else."""

    def answers(self, *words, expect, says):
        self.assertRegex(self.uniprof(*words, expect=expect, timeout=PATIENCE_S), says)

    def test_wrong_words(self):
        self.answers("record", "nosuch", expect=3, says="no guest called \"nosuch\"; `uniprof list` shows what there is")
        self.answers("record", "qemu:nosuch", expect=3, says="is called \"nosuch\"; `uniprof list` shows what there is")
        self.answers("record", expect=2, says="which guest.*see uniprof record --help")
        self.answers("run", expect=2, says="which command starts the guest.*see uniprof run --help")
        self.answers("-F", "100", "-T", "1", "out.raw", "nosuch", expect=3, says="`uniprof list` shows what there is")
        self.untouched()

    def test_what_is_no_guest_and_no_command(self):
        image = self.image()
        image.chmod(0o644)
        self.answers("record", image.name, expect=3, says="is a file, not a guest: `uniprof run -- COMMAND` starts a guest")
        for command in image.name, f"./{image.name}":
            self.answers("run", command, expect=1, says=f"`uniprof run -- qemu-system-x86_64 -kernel {command}`")
        with socket.socket(socket.AF_UNIX) as stub:
            stub.bind(f"{self.scratch}/gdb.sock")
            self.answers("record", "gdb.sock", expect=3, says="is a socket: qemu:gdb.sock .*, gdb:unix:gdb.sock if it is a gdb stub")
        self.answers("qemu:web", expect=2, says="no verb .`uniprof record qemu:web` samples a guest of that name.")
        self.untouched()

    def test_a_command_without_a_guest(self):
        self.answers("run", "--", "sleep", "1", expect=3, says="sleep has ended, and no guest of it is there.*`?uniprof record [a-zA-Z]+:")
        self.untouched()

    def test_a_guest_that_dies_at_once(self):
        self.answers("run", "--", "qemu-system-x86_64", "-display", "none", "-kernel", "nowhere", expect=1, says="failed with status 1")
        self.untouched()

    def test_qemu_in_a_script_without_a_socket(self):
        script = self.scratch / "start"
        script.write_text(f"#!/bin/sh\nexec qemu-system-x86_64 -name web -display none -serial null -m 64 -kernel {self.image()}\n", encoding="ascii")
        script.chmod(0o755)
        profiler = self.typed("run", "--", script)
        self.assertEqual(profiler.wait(PATIENCE_S), 3, profiler.log.read_text(errors="replace"))
        self.assertRegex(profiler.log.read_text(errors="replace"), r"give it a QMP socket: -qmp unix:PATH,server=on,wait=off")
        self.untouched()


if __name__ == "__main__":
    unittest.main()
