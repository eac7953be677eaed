# SPDX-License-Identifier: BSD-3-Clause
"""Shared by the tests of guests on this host: programs that run, uniprof, and readers of what comes out.

UNIPROF_BUILD names the build directory with the uniprof to test (default: build).
"""

import collections
import json
import os
import random
import re
import signal
import subprocess
import sys
import tempfile
import time
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "rig"))

import chance  # noqa: E402
import ran  # noqa: E402
from guestcase import SERVICE_USER, impossible_edges, parse_folded, service_rights  # noqa: E402,F401

BUILD = Path(os.environ.get("UNIPROF_BUILD", ROOT / "build")).resolve()
UNIPROF = BUILD / "uniprof"
PROGRAMS = BUILD / "tests" / "vmm" / "programs"

# Bytes of a console that firmware and a guest's first line need at most.
FIRST_WORDS = 1 << 16

# Between runs of a program that tells whether all is as it is waited for: they take time from what they wait for.
RUN_S = 0.2

# A profiler is stopped at one moment after the other for so long, to find it within a pause.
SEEK_S = 20

# The kernel's word for a thread that nobody has stopped (proc(5)).
RUNNING = {"R", "S", "D"}


def state(pid, tid=None):
    """The letter of a thread's state."""
    text = Path(f"/proc/{pid}/task/{tid or pid}/stat").read_text(encoding="ascii", errors="replace")
    return text.rsplit(")", 1)[1].split()[0]


def cpu_time(pid):
    """Ticks of the clock that a process had a CPU (proc(5): utime, stime), and how often it left one."""
    stat = Path(f"/proc/{pid}/stat").read_text(encoding="ascii", errors="replace").rsplit(")", 1)[1].split()
    status = Path(f"/proc/{pid}/status").read_text(encoding="ascii", errors="replace")
    return stat[11:13], [line for line in status.splitlines() if "ctxt_switches" in line]


def tracer_of(pid, tid):
    text = Path(f"/proc/{pid}/task/{tid}/status").read_text(errors="replace")
    return int(next(line for line in text.splitlines() if line.startswith("TracerPid")).split()[1])


def tracers(pid):
    """The processes that trace a thread of this one."""
    return {tracer_of(pid, task.name) for task in Path(f"/proc/{pid}/task").iterdir()} - {0}


def named(comm):
    """The processes of this name that have not ended."""
    found = set()
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if (process / "comm").read_text() == f"{comm}\n" and state(process.name) != "Z":
                found.add(process)
        except OSError:
            continue
    return found


def guards(pid):
    """The guards of a killed uniprof that still have something of this process open."""
    found = set()
    for guard in named("unpause-guard"):
        try:
            found |= {guard.name for fd in (guard / "fd").iterdir() if os.readlink(fd) == f"/proc/{pid}/mem"}
        except OSError:
            continue
    return found


class HostCase(unittest.TestCase):
    made_up = False  # its hosts are: their recordings tell of nothing that was run

    def setUp(self):
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        self.scratch = Path(directory.name)
        if ran.wanted() and not self.made_up:
            self.addCleanup(self.note_what_was_run)

    def note_what_was_run(self):
        reports = subprocess.run(["sh", "-c", ran.REPORTS], cwd=self.scratch, stdout=subprocess.PIPE, check=False, timeout=300,
                                 env={**os.environ, "PATH": f"{BUILD}:{os.environ['PATH']}"}).stdout
        ran.note(type(self).__name__, reports.decode("utf-8", "replace"), any_kernel=True)

    def start(self, *command, **more):
        """Starts a program that is ended with the test; its output goes to a file."""
        log = self.scratch / f"{Path(command[0]).name}-{time.monotonic_ns()}.log"
        with log.open("wb") as out:
            process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT, **more)
        process.log = log
        self.addCleanup(self.end, process)
        return process

    @staticmethod
    def end(process):
        if process.poll() is None:
            process.send_signal(signal.SIGCONT)
            process.kill()
        process.wait()

    def subject(self, *words):
        process = self.start(PROGRAMS / "subject", *words)
        self.wait_for(lambda: self.progress(process), "the subject says nothing")
        return process

    def sleeps(self, process):
        """Waits until a program that does nothing else has begun to."""
        self.wait_for(lambda: self.stands_still(lambda: cpu_time(process.pid), lambda: state(process.pid) == "S"), "it does not sleep")

    @staticmethod
    def progress(process):
        """The last line of numbers that a program has written."""
        lines = process.log.read_text(errors="replace").rpartition("\n")[0].splitlines()
        return [float(word) for word in lines[-1].split()] if lines else None

    def says(self, process, words, seconds=60):
        try:
            self.wait_for(lambda: words in process.log.read_text(), f"it is not told: {words}", seconds)
        except AssertionError as error:
            raise AssertionError(f"{error}, but: {process.log.read_text()}") from None

    def wait_for(self, what, otherwise, seconds=60, every_s=0.02):
        end = time.monotonic() + seconds
        while not what():
            self.assertLess(time.monotonic(), end, otherwise)
            time.sleep(every_s)

    def uniprof(self, *arguments, expect=0, timeout=120, **more):
        """Runs uniprof; returns what it wrote on both streams."""
        done = subprocess.run([UNIPROF, *map(str, arguments)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                              stdin=subprocess.DEVNULL, cwd=self.scratch, timeout=timeout, check=False, **more)
        text = done.stdout.decode("utf-8", "replace")
        self.assertEqual(done.returncode, expect, text)
        return text

    def run_guest(self, *arguments, expect=0, timeout=60):
        """`uniprof run`, whose guest may outlive it; returns what both wrote."""
        profiler = self.start(UNIPROF, "run", *map(str, arguments), start_new_session=True, cwd=self.scratch)
        self.addCleanup(self.end_group, profiler.pid)
        self.assertEqual(profiler.wait(timeout), expect, profiler.log.read_text())
        return profiler.log.read_text()

    @staticmethod
    def end_group(group):
        try:
            os.killpg(group, signal.SIGKILL)
        except ProcessLookupError:
            pass

    def folded(self, recording, *options):
        text = subprocess.run([UNIPROF, "export", "--format=folded", "--no-inline", *options, recording], cwd=self.scratch, check=True,
                              stdout=subprocess.PIPE, stderr=subprocess.DEVNULL).stdout.decode("utf-8", "replace")
        return parse_folded(text)

    def head(self, recording):
        text = subprocess.run([UNIPROF, "report", "--json", recording], cwd=self.scratch, check=True, stdout=subprocess.PIPE).stdout
        return json.loads(text)

    def last(self, recording, seconds):
        """The option for no more than the end of a recording."""
        return "--from", f"{self.head(recording)['ticks']['elapsed_ns'] / 1e9 - seconds:.2f}"

    def interrupt(self, profiler):
        """Ends a recording as its user does; it is kept."""
        profiler.send_signal(signal.SIGINT)
        self.assertEqual(profiler.wait(60), 0, profiler.log.read_text())

    def check_shares(self, guest, known, tolerance, options, seconds, work=None, among=False):
        """Asserts that functions of a guest have the shares that are known, by recordings of it into out.uniprof
        (chance.py), the first of so many seconds. `work` finds in all stacks those that count; returns these.
        `among`: the shares are of the time within these functions. Their caller reads the clock between them,
        which under emulation takes what the host's load makes of it."""
        all_stacks = collections.Counter()

        def take(attempt):
            self.said = self.uniprof("record", *options, "-T", seconds * chance.longer(attempt), "-o", "out.uniprof", guest)
            stacks = work() if work else self.folded("out.uniprof")
            all_stacks.update(stacks)
            if among:
                stacks = {stack: n for stack, n in stacks.items() if any(name in stack for name in known)}
            return stacks, known

        chance.check_shares(take, tolerance)
        return all_stacks

    def stands_still(self, progress, stopped):
        """True if a process is stopped at each check for half a second, in which it does nothing."""
        before = progress()
        for _ in range(25):
            if not stopped():
                return False
            time.sleep(0.02)
        return progress() == before

    def recorder(self, guest, *options, rate=500, quiet=True, **more):
        """A uniprof that records a guest into out.uniprof until it is told to end; what it does may have to be waited for."""
        said = ["-q"] if quiet else []
        return self.start(UNIPROF, "record", *said, "-F", str(rate), "-o", self.scratch / "out.uniprof", *options, guest, cwd=self.scratch, **more)

    def records(self, profiler):
        """Waits until there is a recording, or none can come any more."""
        recording = self.scratch / "out.uniprof"
        self.wait_for(lambda: profiler.poll() is not None or recording.exists() and recording.stat().st_size, "nothing is recorded")

    def samples(self):
        """How many there are in the recording until now."""
        text = subprocess.run([UNIPROF, "export", "--format=folded", "--weight=samples", "--state", "all", "out.uniprof"], cwd=self.scratch, check=False,
                              stdout=subprocess.PIPE, stderr=subprocess.DEVNULL).stdout.decode("utf-8", "replace")
        return sum(parse_folded(text).values())

    def samples_come(self, profiler):
        """Waits for one more sample than there are: one of now, not only of a recording that begins."""
        before = self.samples()
        self.wait_for(lambda: profiler.poll() is not None or self.samples() > before, "nothing is sampled", every_s=RUN_S)
        self.assertIsNone(profiler.poll(), profiler.log.read_text())

    def begins(self, words):
        """Waits until a line of the guest's own begins with these words, as its first one does with its program's name.
        Firmware may have spoken before, or may be the only one that has until now."""
        line = re.compile(rf"^{re.escape(words)}.*\n".encode(), re.MULTILINE)

        def said():
            if not self.console.exists():
                return False
            with self.console.open("rb") as console:
                return line.search(console.read(FIRST_WORDS))

        self.wait_for(said, "the guest says nothing")

    def prints(self):
        """The guest goes on writing to its console."""
        before = self.console.stat().st_size
        self.wait_for(lambda: self.console.stat().st_size > before, "the guest does not go on")

    def goes_on(self, process, column=0):
        """Asserts that nobody holds or traces a process, and that its numbers rise."""
        self.wait_for(lambda: not tracers(process.pid), "it is still traced")
        before = self.progress(process)[column]
        self.wait_for(lambda: self.progress(process)[column] > before, "it was left stopped")
        for task in Path(f"/proc/{process.pid}/task").iterdir():
            self.assertIn(state(process.pid, task.name), RUNNING)

    @staticmethod
    def thread_is_held(process):
        """True if a tracer holds a thread of a process right now."""
        try:
            return any(state(process.pid, task.name) == "t" for task in Path(f"/proc/{process.pid}/task").iterdir())
        except OSError:
            return False

    def stop_within_a_pause(self, profiler, held, generator):
        """Stops a profiler at random moments until one of them lies in a pause of the guest; False: none of many did."""
        out = self.scratch / "killed.uniprof"
        self.wait_for(lambda: profiler.poll() is not None or out.exists() and out.stat().st_size, "nothing is recorded")
        until = time.monotonic() + SEEK_S
        while time.monotonic() < until:
            time.sleep(generator.uniform(0, 0.002))
            profiler.send_signal(signal.SIGSTOP)
            if held():
                return True
            profiler.send_signal(signal.SIGCONT)
        return False

    def stopped_within_a_pause(self, guest, held, *options):
        """A recording uniprof that was stopped while it holds the guest."""
        out = self.scratch / "killed.uniprof"
        out.unlink(missing_ok=True)
        profiler = self.start(UNIPROF, "record", "-F", "1000", "-o", out, *options, guest, cwd=self.scratch)
        self.assertTrue(self.stop_within_a_pause(profiler, held, random.Random(1)), profiler.log.read_text())
        return profiler

    def survives_kills(self, process, guest, kills, most_s=0.3, after=None, options=(), held=None):
        """Kills a recording uniprof; the guest must run on each time. If `held` asks whether the guest stands still, every
        other kill is within a pause; else, and the others, at random moments."""
        generator = random.Random(kills)
        within = 0
        for i in range(kills):
            (self.scratch / "killed.uniprof").unlink(missing_ok=True)
            profiler = subprocess.Popen([UNIPROF, "record", "-q", "-F", "5000", "-o", "killed.uniprof", *options, guest], cwd=self.scratch,
                                        stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            try:
                if held and i % 2:
                    within += self.stop_within_a_pause(profiler, held, generator)
                else:
                    time.sleep(generator.uniform(0, most_s))
            finally:
                profiler.kill()
                profiler.wait()
            self.wait_for(lambda: not tracers(process.pid), "it is still traced")
            self.wait_for(lambda: not guards(process.pid), "a guard does not end")
            self.assertIn(state(process.pid), RUNNING)
            if after:
                after()
        if held:
            print(f"{kills} kills, {within} of them within a pause", end=" ", flush=True)
            self.assertGreaterEqual(within, kills // 4)
        if not after:
            self.goes_on(process)
