#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""Guests behind any gdb stub, QEMU's and gdbserver: true shares, and a guest that goes on as if nobody looked.

UNIPROF_KILLS: how often the profiler is killed (default 10).
"""

import os
import random
import re
import shutil
import signal
import socket
import threading
import time
import unittest

from hostcase import BUILD, PROGRAMS, HostCase, chance, state
from qemucase import QemuCase

KILLS = int(os.environ.get("UNIPROF_KILLS", "10"))

TOLERANCE = 0.12

APP1 = {"function_1": 0.1, "function_2": 0.3, "function_3": 0.6}

# A conversation with a stub that does not answer ends after seconds; this is for a host that is busy.
BOUND_S = 60


class Machines(QemuCase):
    def boot_with_stub(self, guest):
        process = self.boot(guest, "-gdb", f"unix:{self.scratch}/gdb.sock,server=on,wait=off")
        self.wait_for(self.gdb.is_socket, "there is no stub")
        return process

    def profile(self, guest):
        process = self.boot_with_stub(guest)
        elf = BUILD / "guests" / f"{guest}.elf"
        stacks = self.check_shares(f"gdb:unix:{self.gdb}", APP1, TOLERANCE, ("-F", 200, "--max-overhead", 100, "-s", elf), 2, among=True)
        self.check_stacks(guest, stacks)
        self.prints()
        self.end(process)

    def test_x86(self):
        self.profile("app1-pvh-fp")

    def test_x86_without_frame_pointers(self):
        self.profile("app1-pvh-nofp")

    def test_arm64(self):
        self.profile("app1-arm64-fp")

    def test_riscv64(self):
        self.profile("app1-riscv64-fp")

    def test_it_runs_on_when_the_profiler_is_killed(self):
        process = self.boot_with_stub("app1-pvh-fp")
        self.survives_kills(process, f"gdb:unix:{self.gdb}", KILLS, after=self.prints)

    def test_a_stop_by_the_terminal_waits_until_it_runs(self):
        self.boot_with_stub("app1-pvh-fp")
        profiler = self.recorder(f"gdb:unix:{self.gdb}", process_group=0)
        self.records(profiler)
        for _ in range(4):
            profiler.send_signal(signal.SIGTSTP)
            self.wait_for(lambda: state(profiler.pid) == "T", "the profiler is not stopped")
            self.prints()
            self.assertEqual(state(profiler.pid), "T")
            profiler.send_signal(signal.SIGCONT)
            self.samples_come(profiler)
        self.interrupt(profiler)
        self.prints()

    def test_its_end_ends_the_recording(self):
        process = self.boot_with_stub("app1-pvh-fp")
        profiler = self.recorder(f"gdb:unix:{self.gdb}")
        self.records(profiler)
        self.end(process)
        self.assertEqual(profiler.wait(60), 5, profiler.log.read_text())
        self.assertIn("the guest is gone", profiler.log.read_text())

    def recorder(self, guest, *options, **more):
        return HostCase.recorder(self, guest, *options, rate=50, **more)


@unittest.skipUnless(shutil.which("gdbserver"), "no gdbserver on this machine")
class Programs(HostCase):
    def serve(self, process):
        """gdbserver, attached to a process; returns where it listens. It lets the process go when its client has gone."""
        self.server = server = self.start("gdbserver", "--once", "--attach", "localhost:0", str(process.pid))
        self.wait_for(lambda: "Listening on port" in server.log.read_text(), "gdbserver does not listen")
        return "gdb:localhost:" + re.search(r"Listening on port (\d+)", server.log.read_text())[1]

    def start(self, *command, **more):
        # gdbserver interrupts the group that a process leads.
        return super().start(*command, start_new_session=True, **more)

    def test_shares_of_a_process(self):
        process = self.subject()

        def take(attempt):
            self.uniprof("record", "-F", 50, "-T", 5 * chance.longer(attempt), "-o", "out.uniprof", self.serve(process))
            return self.busy(), APP1

        chance.check_shares(take, TOLERANCE)
        self.goes_on(process)

    def busy(self):
        return {stack: n for stack, n in self.folded("out.uniprof").items() if any(name in stack for name in APP1)}

    def test_a_stack_that_ends_with_its_mapping_is_whole(self):
        process = self.start(PROGRAMS / "high-stack")
        self.uniprof("record", "-F", 50, "-T", 3, "-o", "out.uniprof", self.serve(process))
        stacks = self.folded("out.uniprof")
        seen = sum(n for stack, n in stacks.items() if "inner" in stack)
        self.assertGreater(seen, 10, stacks)
        self.assertEqual(seen, sum(n for stack, n in stacks.items() if {"begin", "outer", "inner"} <= set(stack)), stacks)

    def test_a_process_that_sleeps_is_idle(self):
        process = self.start("sleep", "1000")
        self.sleeps(process)
        # On a busy machine it waits for a CPU after each stop.
        for attempt in range(5):
            self.uniprof("record", "-F", 20, "-T", 2 * chance.longer(attempt), "-o", "out.uniprof", self.serve(process))
            text = self.uniprof("report", "out.uniprof")
            if float(re.search(r"blocked \(idle\) ([0-9.]+) %", text)[1]) > 80:
                return
        self.fail(text)

    def test_it_runs_on_when_the_profiler_is_killed(self):
        process, generator = self.subject(), random.Random(KILLS)
        for _ in range(max(KILLS // 5, 1)):
            guest = self.serve(process)
            profiler = self.recorder(guest, rate=50)
            # A server that nobody has come to keeps the process stopped.
            self.says(self.server, "Remote debugging from host")
            time.sleep(generator.uniform(0, 0.5))
            self.end(profiler)
            # One whose client has gone while the process runs waits for that, and traces it as long.
            before = self.progress(process)[0]
            self.wait_for(lambda: self.progress(process)[0] > before, "it was left stopped")
            self.end(self.server)
            self.goes_on(process)


class Hostile(HostCase):
    """Servers that are no stubs: uniprof ends, in a sentence."""

    made_up = True

    def serve(self, what):
        path = self.scratch / "gdb.sock"
        server = socket.socket(socket.AF_UNIX)
        server.bind(str(path))
        server.listen()
        self.addCleanup(server.close)

        def run():
            connection, _ = server.accept()
            with connection:
                try:
                    what(connection)
                except OSError:
                    pass

        threading.Thread(target=run, daemon=True).start()
        return f"gdb:unix:{path}"

    def check(self, what, words, status=1):
        began = time.monotonic()
        text = self.uniprof("record", "-T", 1, "-o", "out.uniprof", self.serve(what), expect=status)
        self.assertRegex(text, words)
        self.assertLess(time.monotonic() - began, BOUND_S)

    def check_endless(self, bytes_, *expected):
        def flood(connection):
            while True:
                connection.sendall(bytes_)

        self.check(flood, *expected or ["the gdb stub does not answer"])

    def test_silence(self):
        self.check(lambda connection: connection.recv(1) and time.sleep(BOUND_S), "the gdb stub does not answer")

    def test_bytes_that_are_no_packet(self):
        self.check_endless(b"x" * 4096)

    def test_a_packet_without_end(self):
        self.check_endless(b"$" + b"0" * 4096)

    def test_packets_without_end(self):
        self.check_endless(b"+$m1#9e" * 500, "the gdb stub tells no registers", 3)

    def test_stops_without_end(self):
        self.check_endless(b"$T05#b9" * 500)

    def answering(self, answer, pause_s=0.0):
        """Answers whatever is asked, a request at a time."""
        def answer_all(connection):
            while asked := connection.recv(65536):
                for _ in range(asked.count(b"#")):
                    time.sleep(pause_s)
                    connection.sendall(b"+$%s#%02x" % (answer, sum(answer) % 256))

        return answer_all

    def test_a_description_that_comes_a_byte_at_a_time(self):
        self.check(self.answering(b"m<"), "the gdb stub takes more than 2.5 seconds")

    def test_a_description_that_comes_slowly(self):
        self.check(self.answering(b"m<", 0.3), "the gdb stub takes more than 2.5 seconds")

    def test_an_address_that_is_none(self):
        self.assertIn("give gdb:unix:PATH or gdb:HOST:PORT", self.uniprof("record", "-T", 1, "gdb:nothing", expect=2))


if __name__ == "__main__":
    unittest.main()
