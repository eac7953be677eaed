#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""Processes as guests: true shares, and a process that goes on as if nobody looked.

UNIPROF_KILLS: how often the profiler is killed (default 10).
"""

import ctypes
import json
import os
import platform
import re
import shutil
import signal
import struct
import subprocess
import time
import unittest
from pathlib import Path

from hostcase import PROGRAMS, RUNNING, UNIPROF, HostCase, chance, state, tracers

JAVASCRIPT = """
const does = {
    light(n) { let s = 0; for (let i = 0; i < n; i++) s = (s * 31 + i) | 0; return s },
    heavy(n) { let s = 0; for (let i = 0; i < 3 * n; i++) s = (s * 31 + i) | 0; return s } };
function work(name, n) { return does[name](n) }
const names = ["light", "heavy"]
for (let i = 0; ; i++) work(names[i & 1], 100000)
"""

KILLS = int(os.environ.get("UNIPROF_KILLS", "10"))

EXPECTED = {"function_1": 0.1, "function_2": 0.3, "function_3": 0.6}
TOLERANCE = 0.1

# Frames of the subject's function of that name on its stack.
DEEP = 3000

# These queue up, none is merged with another.
SIGNALS = 500

# Some samples by perf events find a thread neither on a CPU nor off it for as long as they wait.
MOST_STOPPED = 0.02

# perf_event_open(2) by its number on x86-64.
PERF_EVENT_OPEN = 298


def perf_works():
    """Why not, or None."""
    if platform.machine() != "x86_64":
        return "perf events are read on x86-64 only"
    # A counter of the CPU's clock: struct perf_event_attr as it was at first.
    attr = ctypes.create_string_buffer(struct.pack("<IIQ", 1, 64, 0), 64)
    libc = ctypes.CDLL(None, use_errno=True)
    fd = libc.syscall(PERF_EVENT_OPEN, attr, 0, -1, -1, 0)
    if fd < 0:
        return f"perf events are refused on this machine: {os.strerror(ctypes.get_errno())}"
    os.close(fd)
    return None


def may_raise_limits():
    """CAP_SYS_RESOURCE of capabilities(7), which not every container gives to root."""
    status = Path("/proc/self/status").read_text(encoding="ascii")
    return bool(int(re.search(r"CapEff:\s+(\w+)", status)[1], 16) >> 24 & 1)


def user_ticks(pid):
    """utime of proc_pid_stat(5)."""
    return int(Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[11])


class Names(HostCase):
    def test_no_more_threads_are_told_than_there_are(self):
        sleeper = self.start("sleep", "600")
        self.uniprof("record", "-F", 100, "-T", 0.3, "-o", "out.uniprof", f"process:{sleeper.pid}")
        self.assertIn(", process, 1 vCPU, on ", self.uniprof("report", "out.uniprof", "--state", "all"))
        dump = self.uniprof("stack", f"process:{sleeper.pid}")
        self.assertIn(", process, 1 vCPU, on ", dump)
        self.assertNotIn("off-line", dump)
        self.assertRegex(self.uniprof("top", "--batch", "-n", 1, "-d", 0.3, "--all", f"process:{sleeper.pid}"), r"(?m)^vCPUs 1 ")

    def test_lost_priority_and_locked_memory_are_told(self):
        def said(*limits):
            done = subprocess.run([*limits, UNIPROF, "record", "-v", "-F", "100", "-T", "0.3", "-o", "out.uniprof", f"process:{sleeper.pid}"],
                                  cwd=self.scratch, check=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
            return done.stdout.decode()

        sleeper = self.start("sleep", "600")
        without = "real-time priority and locked memory was refused"
        self.assertIn(without, said("prlimit", "--memlock=0", "--rtprio=0", "setpriv", "--bounding-set=-sys_nice,-ipc_lock,-sys_resource"))
        self.assertIn(b"real-time priority and locked memory", (self.scratch / "out.uniprof").read_bytes())
        if may_raise_limits():
            self.assertNotIn("was refused", said())

    def test_by_its_name(self):
        program = self.scratch / f"named-{os.getpid()}"
        shutil.copy(PROGRAMS / "subject", program)
        self.start(program)
        self.uniprof("record", "-F", 100, "-T", 0.3, "-o", "out.uniprof", f"process:{program.name}")


    def test_code_without_a_name_is_the_same_in_two_runs_at_random_addresses(self):
        program = self.scratch / "nameless"
        subprocess.run(["strip", "-o", program, PROGRAMS / "subject"], check=True)

        def run(name):
            process = self.start(program)
            self.wait_for(lambda: self.progress(process), "the program says nothing")
            self.uniprof("record", "-F", 500, "-T", 1, "-o", f"{name}.uniprof", f"process:{process.pid}")
            self.end(process)

        def changed(*options):
            rows = json.loads(self.uniprof("diff", "--json", *options, "before.uniprof", "after.uniprof"))["functions"]
            own = [row for row in rows if row["name"].strip("[]").startswith("nameless")]
            self.assertTrue(own)
            return any(row[part]["significant"] for row in own for part in ("self", "total"))

        # One difference in twenty is called one by chance, and each name is one.
        for _ in range(8):
            run("before")
            run("after")
            if not (changed() or changed("--addresses")):
                break
        else:
            self.fail(self.uniprof("diff", "--addresses", "before.uniprof", "after.uniprof"))
        self.assertIn("[nameless]", self.uniprof("report", "after.uniprof"))
        self.assertRegex(self.uniprof("report", "--addresses", "after.uniprof"), r"\bnameless\+0x[0-9a-f]+\n")


@unittest.skipUnless(shutil.which("node"), "no node on this machine: nothing here has a JIT compiler")
class Jit(HostCase):
    """JIT-compiled code of V8, which writes its names for perf(1)."""

    def setUp(self):
        super().setUp()
        (self.scratch / "work.js").write_text(JAVASCRIPT)
        self.process = self.start("node", "--perf-basic-prof", "--no-turbo-inlining", "work.js", cwd=self.scratch)
        self.map = Path(f"/tmp/perf-{self.process.pid}.map")
        self.addCleanup(lambda: self.map.unlink(missing_ok=True))
        self.wait_for(lambda: self.map.exists() and all(f"JS:*{name} " in self.map.read_text() for name in ("light", "heavy")), "it compiles nothing")

    def recorded(self, *options):
        self.uniprof("record", "--unwind", "fp", "-F", 400, "-T", 2, "-o", "out.uniprof", *options, f"process:{self.process.pid}")
        return {tuple(name.split(" ")[0] for name in stack): n for stack, n in self.folded("out.uniprof").items()}

    def test_it_has_the_names_that_are_written_for_perf(self):
        stacks = self.recorded()
        shares = {name: sum(n for stack, n in stacks.items() if stack[-1] == f"JS:*{name}") for name in ("light", "heavy")}
        self.assertGreater(shares["heavy"], shares["light"])
        self.assertGreater(shares["light"], 0)
        self.assertGreater(sum(shares.values()), 0.9 * sum(n for stack, n in stacks.items() if any(name.startswith("JS:") for name in stack)))
        self.assertEqual({stack[0] for stack in stacks if stack[-1] == "JS:*heavy"}, {"_start"})
        # The recording carries them.
        self.map.unlink()
        self.assertTrue(any("JS:*heavy" in name for stack in self.folded("out.uniprof") for name in stack))

    def test_names_that_somebody_else_may_have_written_are_not_taken(self):
        if os.getuid():
            self.skipTest("only root can give a file away")
        os.chown(self.map, 65534, -1)
        self.assertFalse([name for stack in self.recorded() for name in stack if name.startswith("JS:")])
        self.map.unlink()
        os.mkfifo(self.map)
        self.assertFalse([name for stack in self.recorded() for name in stack if name.startswith("JS:")])


class Profiles:
    """In each way."""

    def work(self, *options):
        """Tells and clocks of the subject's main thread are none."""
        return {stack: n for stack, n in self.folded("out.uniprof", *options).items() if "work" in stack}

    def check(self, subject, rate, seconds, *options):
        for stack in self.check_shares(f"process:{subject.pid}", EXPECTED, TOLERANCE, (*self.way, "-F", rate), seconds, lambda: self.work(*options)):
            tail = stack[stack.index("work"):]
            self.assertIn(tail[1:2], [(), *((name,) for name in EXPECTED)], f"impossible: {stack}")
            self.assertIn(tail[2:], [(), ("spin",)], f"impossible: {stack}")

    def test_shares_of_a_process(self):
        subject = self.subject()
        self.check(subject, 997, 1)
        self.check_way()
        self.goes_on(subject)

    @unittest.skipUnless(platform.machine() == "x86_64", "only x86-64 has a red zone")
    def test_a_function_that_keeps_its_callers_place_in_the_red_zone(self):
        program = self.start(PROGRAMS / "red-zone")
        # A program that replaces another one ends that one's recording; and the loader's stacks are others.
        self.wait_for(lambda: "red-zone" in Path(f"/proc/{program.pid}/maps").read_text() and user_ticks(program.pid) > 10, "it does not begin")
        self.uniprof("record", *self.way, "-F", 300, "-T", 1, "-o", "out.uniprof", f"process:{program.pid}")
        stacks = self.folded("out.uniprof", "--state", "running,runnable")
        self.assertTrue(any("block" in stack for stack in stacks))
        for stack in stacks:
            if "block" in stack:
                self.assertEqual(stack[stack.index("main"):], ("main", "outer", "block"))
        # The program's entry has no name: the head says that stacks are whole.
        self.assertEqual(self.head("out.uniprof")["stacks"]["truncated_share"], 0)

    def test_threads_and_those_that_come_later(self):
        subject = self.subject("threads")
        self.check(subject, 300, 3, "--state", "running,runnable")
        for i in range(3):
            self.assertTrue(self.folded("out.uniprof", "--vcpu", str(i), "--state", "all"), f"thread {i}")
        self.goes_on(subject)

    def test_a_sleeper_is_blocked_and_left_asleep(self):
        sleeper = self.start("sleep", "600")
        self.sleeps(sleeper)
        # It wakes up for a moment when it is traced, for which it may have to wait on a busy machine.
        for attempt in range(5):
            text = self.uniprof("record", *self.way, "-F", 500, "-T", chance.longer(attempt), "-o", "out.uniprof", f"process:{sleeper.pid}")
            self.assertIn("samples", text)
            report = self.uniprof("report", "out.uniprof", "--state", "all")
            if re.search(r"blocked \(idle\) (100\.0|9[5-9]\.\d) %", report):
                break
        else:
            self.fail(report)
        self.assertNotIn("other states", report)
        self.assertIn("samples found vCPUs in other states", self.uniprof("report", "out.uniprof"))
        self.assertIsNone(sleeper.poll())


class Stopped(Profiles, HostCase):
    way = "--via", "ptrace"

    def check_way(self):
        head = self.head("out.uniprof")
        self.assertGreater(head["paused"]["total_ns"], 0)
        self.assertRegex(head["guest"]["host"], r"^Linux \S+, ptrace$")


class Unstopped(Profiles, HostCase):
    """Reads by perf events, which is also uniprof's own choice."""

    way = "--via", "perf"

    def setUp(self):
        super().setUp()
        if why := perf_works():
            self.skipTest(why)

    def check_way(self):
        head = self.head("out.uniprof")
        self.assertLessEqual(head["ticks"]["count"] - head["paused"]["ticks_without"], chance.most(MOST_STOPPED * head["ticks"]["count"]))
        self.assertRegex(head["guest"]["host"], r"^Linux \S+, perf events$")

    def test_it_is_the_way_that_is_taken_where_none_is_asked_for(self):
        subject = self.subject()
        self.assertIn(" via perf,", self.uniprof("record", "-F", 997, "-T", 0.5, "-o", "out.uniprof", f"process:{subject.pid}"))
        self.check_way()
        self.uniprof("record", "--always-pause", "-F", 997, "-T", 0.5, "-o", "out.uniprof", f"process:{subject.pid}")
        self.assertGreater(self.head("out.uniprof")["paused"]["total_ns"], 0)

    def test_one_that_comes_and_goes_all_the_time(self):
        subject = self.subject("naps")
        self.uniprof("record", *self.way, "-F", 997, "-T", 1.5, "-o", "out.uniprof", f"process:{subject.pid}")
        stacks = self.folded("out.uniprof", "--state", "all")
        self.assertTrue([stack for stack in stacks if "nap" in stack])
        for stack in stacks:
            self.assertIn("main", stack)
            self.assertFalse("nap" in stack and "work" in stack, f"impossible: {stack}")
        self.goes_on(subject)

    def test_stacks_of_more_than_a_record_holds(self):
        subject = self.subject("deep")
        self.uniprof("record", *self.way, "-F", 300, "-T", 1, "-o", "out.uniprof", f"process:{subject.pid}")
        # Others are on their way there or back.
        at_the_end = [stack for stack in self.folded("out.uniprof", "--state", "running,runnable") if "work" in stack]
        self.assertTrue(at_the_end)
        for stack in at_the_end:
            self.assertEqual(stack.count("deep"), DEEP, stack)
            self.assertIn("main", stack)

    def test_without_the_right_to_it_threads_are_stopped_and_it_says_so(self):
        if os.geteuid() or not shutil.which("setpriv"):
            self.skipTest("it takes root, and setpriv, to give up single rights")
        if int(Path("/proc/sys/kernel/perf_event_paranoid").read_text(encoding="ascii")) < 2:
            self.skipTest("on this machine everybody may use perf events")
        subject = self.subject()
        less = ["setpriv", "--bounding-set", "-sys_admin,-perfmon", UNIPROF]
        text = subprocess.run([*less, "record", "-v", "-F", "300", "-T", "0.5", "-o", "out.uniprof", f"process:{subject.pid}"], cwd=self.scratch,
                              check=True, stderr=subprocess.PIPE).stderr.decode()
        self.assertRegex(text, r"ptrace \(not perf events: .* are refused \(they take root, or CAP_PERFMON\)\)")
        done = subprocess.run([*less, "record", *self.way, "-o", "out.uniprof", f"process:{subject.pid}"], cwd=self.scratch, check=False,
                              stderr=subprocess.PIPE)
        self.assertEqual(done.returncode, 4)
        self.assertIn(b"--via perf: perf events are refused", done.stderr)


class Leaves(HostCase):
    """The process is not disturbed."""

    def test_signals_reach_it(self):
        subject = self.subject("signals")
        profiler = self.recorder(f"process:{subject.pid}", rate=997)
        self.wait_for(lambda: tracers(subject.pid), "it is not traced")
        for _ in range(SIGNALS):
            subject.send_signal(signal.SIGRTMIN)
            time.sleep(0.001)
        self.wait_for(lambda: self.progress(subject)[1] == SIGNALS, "signals were lost")
        self.interrupt(profiler)
        self.goes_on(subject)

    def test_a_stopped_one_is_left_stopped_until_its_owner_lets_it_go(self):
        subject = self.subject()
        subject.send_signal(signal.SIGSTOP)
        self.wait_for(lambda: state(subject.pid) == "T", "it does not stop")
        profiler = self.recorder(f"process:{subject.pid}")
        self.wait_for(lambda: tracers(subject.pid), "it is not traced")
        at = self.progress(subject)
        time.sleep(0.5)
        self.assertEqual(self.progress(subject), at, "it runs though it was stopped")
        subject.send_signal(signal.SIGCONT)
        self.wait_for(lambda: self.progress(subject) > at, "it does not go on")
        subject.send_signal(signal.SIGSTOP)
        self.wait_for(lambda: self.stands_still(lambda: self.progress(subject), lambda: state(subject.pid) in "Tt"), "it does not stop again")
        at = self.progress(subject)
        self.interrupt(profiler)
        time.sleep(0.3)
        self.assertEqual(self.progress(subject), at, "the profiler's end has let it go")
        self.wait_for(lambda: state(subject.pid) == "T", "the profiler's end has let it go")
        subject.send_signal(signal.SIGCONT)
        self.goes_on(subject)

    def test_stopped_and_killed_profiler(self):
        subject = self.subject()
        profiler = self.recorder(f"process:{subject.pid}")
        self.wait_for(lambda: tracers(subject.pid), "it is not traced")
        subject.send_signal(signal.SIGSTOP)
        time.sleep(0.2)
        profiler.kill()
        profiler.wait()
        # The kernel takes the thread from one kind of stop to the other by way of running.
        self.wait_for(lambda: state(subject.pid) == "T", "the profiler's death has let it go")
        subject.send_signal(signal.SIGCONT)
        self.goes_on(subject)

    def test_a_stop_by_the_terminal_does_nothing(self):
        """A tracer that is stopped would hold the process, at its next signal at the latest."""
        subject = self.subject("threads")
        profiler = self.recorder(f"process:{subject.pid}", process_group=0)
        self.records(profiler)
        profiler.send_signal(signal.SIGTSTP)
        self.samples_come(profiler)
        self.assertIn(state(profiler.pid), RUNNING)
        self.interrupt(profiler)
        self.goes_on(subject)

    def test_it_runs_on_when_the_profiler_is_killed(self):
        subject = self.subject("threads", "signals")
        self.survives_kills(subject, f"process:{subject.pid}", KILLS)
        self.survives_kills(subject, f"process:{subject.pid}", KILLS, options=("--via", "ptrace"), held=lambda: self.thread_is_held(subject))


class Ends(HostCase):
    def ended(self, subject, words):
        profiler = self.recorder(f"process:{subject.pid}", rate=200, quiet=False)
        self.samples_come(profiler)
        subject.send_signal(signal.SIGUSR1)
        self.assertEqual(profiler.wait(60), 5, profiler.log.read_text())
        self.assertIn(words, profiler.log.read_text())
        self.assertTrue(self.folded("out.uniprof", "--weight=samples", "--state", "all"))

    def test_its_end(self):
        self.ended(self.subject("end"), "shut down")

    def test_its_crash(self):
        self.ended(self.subject("crash"), "crashed")

    def test_another_program_in_its_place(self):
        subject = self.subject("exec")
        self.ended(subject, "the process has become another program (execve)")
        self.goes_on(subject)

    def test_a_signal_that_comes_twice_at_once_keeps_the_recording(self):
        profiler = self.recorder(f"process:{self.subject().pid}", rate=200, quiet=False)
        self.samples_come(profiler)
        for _ in range(2):
            profiler.send_signal(signal.SIGTERM)
            time.sleep(0.01)
        self.assertEqual(profiler.wait(60), 0, profiler.log.read_text())
        self.assertTrue(self.folded("out.uniprof", "--weight=samples", "--state", "all"))

    def ended_within_a_pause(self, word, ending, words):
        subject = self.subject(word) if word else self.subject()
        profiler = self.stopped_within_a_pause(f"process:{subject.pid}", lambda: self.thread_is_held(subject), "--via", "ptrace")
        subject.send_signal(ending)
        profiler.send_signal(signal.SIGCONT)
        self.assertEqual(profiler.wait(60), 5, profiler.log.read_text())
        self.assertIn(words, profiler.log.read_text())
        return subject

    def test_its_end_and_crash_within_a_pause(self):
        self.ended_within_a_pause("end", signal.SIGUSR1, "shut down")
        self.ended_within_a_pause("crash", signal.SIGUSR1, "crashed")
        self.ended_within_a_pause("", signal.SIGKILL, "gone")

    def test_another_program_in_its_place_within_a_pause(self):
        self.goes_on(self.ended_within_a_pause("exec", signal.SIGUSR1, "gone"))

    def test_killed(self):
        subject = self.subject()
        profiler = self.recorder(f"process:{subject.pid}", rate=200, quiet=False)
        self.samples_come(profiler)
        subject.kill()
        self.assertEqual(profiler.wait(60), 5)
        self.assertIn("gone", profiler.log.read_text())


class Refusals(HostCase):
    def refused(self, guest, words, expect=4, **more):
        text = self.uniprof("record", "-T", 0.1, "-o", "refused.uniprof", guest, expect=expect, **more)
        self.assertIn(words, text)

    def test_no_such_process(self):
        self.refused("process:999999999", "there is no process", 3)
        self.refused("process:nobody-is-called-so", "there is no process called", 3)
        self.refused("nobody-is-called-so", "there is no guest called", 3)

    def test_one_of_the_kernels_own(self):
        self.refused("process:2", "there is no process" if not os.path.exists("/proc/2") else "kernel", 3)

    def test_already_traced(self):
        subject = self.subject()
        profiler = self.recorder(f"process:{subject.pid}")
        self.wait_for(lambda: tracers(subject.pid), "it is not traced")
        self.refused(f"process:{subject.pid}", "already traced by process")
        self.assertIsNone(profiler.poll())

    @unittest.skipUnless(os.geteuid() == 0, "only root can run uniprof as another user")
    def test_somebody_elses(self):
        subject = self.subject()
        self.scratch.chmod(0o777)
        self.refused(f"process:{subject.pid}", "belongs to user 0: run uniprof as root", user=65534, group=65534, extra_groups=[])

    @unittest.skipUnless(os.geteuid() == 0, "only root can run uniprof as another user")
    def test_one_that_hides(self):
        self.scratch.chmod(0o777)
        subject = self.start(PROGRAMS / "subject", "hide", user=65534, group=65534, extra_groups=[])
        self.wait_for(lambda: self.progress(subject), "the subject says nothing")
        self.refused(f"process:{subject.pid}", "run uniprof as root", user=65534, group=65534, extra_groups=[])
        self.uniprof("record", "-T", 0.2, "-F", 100, "-o", "out.uniprof", f"process:{subject.pid}")

    @unittest.skipUnless(os.geteuid() == 0, "only root can give up a single right")
    def test_root_without_the_right_to_trace(self):
        self.scratch.chmod(0o777)
        subject = self.start(PROGRAMS / "subject", user=65534, group=65534, extra_groups=[])
        self.wait_for(lambda: self.progress(subject), "the subject says nothing")
        done = subprocess.run(["setpriv", "--bounding-set", "-sys_ptrace", "--inh-caps", "-sys_ptrace", UNIPROF, "record", "-o", "out.uniprof",
                               f"process:{subject.pid}"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, cwd=self.scratch, check=False)
        self.assertEqual(done.returncode, 4, done.stdout)
        self.assertIn(b"CAP_SYS_PTRACE", done.stdout)


    def check_yama(self, scope, words, *setpriv):
        """A refusal for another reason here is one by Yama where there is Yama."""
        self.scratch.chmod(0o777)
        subject = self.start(PROGRAMS / "subject", "hide", user=65534, group=65534, extra_groups=[])
        self.wait_for(lambda: self.progress(subject), "the subject says nothing")
        script = f"mount -t tmpfs none /proc/sys/kernel && mkdir /proc/sys/kernel/yama && echo {scope} >/proc/sys/kernel/yama/ptrace_scope && exec \"$@\""
        done = subprocess.run(["unshare", "--mount", "sh", "-c", script, "sh", "setpriv", *setpriv, UNIPROF, "record", "-o", "out.uniprof",
                               f"process:{subject.pid}"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, cwd=self.scratch, check=False)
        self.assertEqual(done.returncode, 4, done.stdout)
        self.assertIn(words, done.stdout.decode())

    @unittest.skipUnless(os.geteuid() == 0 and shutil.which("unshare"), "only root can make it look as if there were Yama")
    def test_by_yama_for_all_but_root(self):
        self.check_yama(1, "(kernel.yama.ptrace_scope is 1): run uniprof as root, or set it to 0", "--reuid=65534", "--regid=65534", "--clear-groups")

    @unittest.skipUnless(os.geteuid() == 0 and shutil.which("unshare"), "only root can make it look as if there were Yama")
    def test_by_yama_for_all(self):
        self.check_yama(3, "(kernel.yama.ptrace_scope is 3), not even by root", "--bounding-set=-sys_ptrace", "--inh-caps=-sys_ptrace")

    def test_from_a_nested_user_namespace(self):
        subject = self.subject()
        inside = ["unshare", "--user", "--map-root-user"]
        if not shutil.which("unshare") or subprocess.run([*inside, "true"], stderr=subprocess.DEVNULL, check=False).returncode:
            self.skipTest("no user namespaces on this machine")
        done = subprocess.run([*inside, UNIPROF, "record", "-o", "out.uniprof", f"process:{subject.pid}"], stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, cwd=self.scratch, check=False)
        self.assertEqual(done.returncode, 4, done.stdout)
        self.assertIn(b"user namespace: run uniprof outside", done.stdout)
        self.goes_on(subject)

    def test_a_snapshot_that_cannot_be_leaves_files_as_they_were(self):
        subject = self.subject()
        kept, fresh = self.scratch / "kept", self.scratch / "fresh"
        kept.write_text("kept")
        for path in kept, fresh:
            self.assertIn("cannot be snapshot", self.uniprof("record", "--snapshot", path, f"process:{subject.pid}", expect=2))
        self.assertEqual(kept.read_text(), "kept")
        self.assertFalse(fresh.exists())


class Several(HostCase):
    """Guests that are recorded at once, each into a file of its own or all into one."""

    def recordings(self, *processes):
        return [self.scratch / f"subject-{process.pid}.uniprof" for process in processes]

    def test_each_has_its_recording(self):
        subjects = self.subject(), self.subject()
        self.uniprof("record", "-F", 300, "-T", 1, "-o", "all", *(f"process:{subject.pid}" for subject in subjects))
        for subject in subjects:
            stacks = self.folded(self.scratch / "all" / f"subject-{subject.pid}.uniprof")
            self.assertTrue([stack for stack in stacks if "work" in stack])
            self.goes_on(subject)

    def test_together_each_is_the_outermost_frame_of_its_stacks(self):
        subjects = self.subject(), self.subject()
        text = self.uniprof("record", "--together", "-F", 300, "-T", 1, "-o", "both.uniprof",
                            *(f"process:{subject.pid}" for subject in subjects))
        self.assertEqual(text.count("subject: "), 2, text)
        stacks = self.folded("both.uniprof", "--state", "all")
        for subject in subjects:
            own = [stack for stack in stacks if stack[0] == f"subject-{subject.pid}"]
            self.assertTrue([stack for stack in own if stack[-3:] == ("work", "function_3", "spin")], stacks)
            self.goes_on(subject)
        self.assertEqual({stack[0] for stack in stacks}, {f"subject-{subject.pid}" for subject in subjects})
        self.assertEqual(sorted(path.name for path in self.scratch.glob("both*")), ["both.uniprof"])
        self.uniprof("merge", "-o", "twice.uniprof", "both.uniprof", "both.uniprof")
        self.assertEqual(sum(self.folded("twice.uniprof", "--state", "all").values()), 2 * sum(stacks.values()))

    def test_together_keeps_those_that_are_there(self):
        subject = self.subject()
        text = self.uniprof("record", "--together", "-T", 0.5, "-o", "both.uniprof", "process:nobody-is-called-so",
                            f"process:{subject.pid}", expect=3)
        self.assertIn("process:nobody-is-called-so: there is no process called", text)
        self.assertTrue(self.folded("both.uniprof", "--state", "all"))
        self.assertIn("several guests", self.uniprof("record", "--together", f"process:{subject.pid}", expect=2))

    def test_one_that_is_not_there_does_not_keep_the_others(self):
        subject = self.subject()
        text = self.uniprof("record", "-T", 0.5, "process:nobody-is-called-so", f"process:{subject.pid}", expect=3)
        self.assertIn("process:nobody-is-called-so: there is no process called", text)
        self.assertTrue(self.folded(*self.recordings(subject), "--state", "all"))

    def test_a_signal_ends_all_and_keeps_what_there_is(self):
        subjects = self.subject(), self.subject()
        profiler = self.start(UNIPROF, "record", *(f"process:{subject.pid}" for subject in subjects), cwd=self.scratch)
        self.wait_for(lambda: all(path.exists() and path.stat().st_size for path in self.recordings(*subjects)), "nothing is recorded")
        self.interrupt(profiler)
        for path, subject in zip(self.recordings(*subjects), subjects):
            self.assertIn("interrupted", self.uniprof("report", path))
            self.goes_on(subject)

    def test_what_makes_sense_for_one_only(self):
        for option in ("-o", "-"), ("--snapshot", "x"):
            self.assertIn("one guest, please", self.uniprof("record", *option, "process:1", "process:2", expect=2))


class Unikernels(HostCase):
    """Unikernels in the list: recognised by what only their programs have."""

    def listed(self, name, *change):
        program = self.scratch / name
        subprocess.run(["objcopy", *change, PROGRAMS / "subject", program], check=True)
        process = self.start(program)
        self.wait_for(lambda: self.progress(process), "it says nothing")
        text = subprocess.run([UNIPROF, "list"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=True).stdout.decode()
        return process, next((line.split() for line in text.splitlines() if line.startswith(f"process  {process.pid} ")), None)

    def check(self, kind, name, *change):
        process, words = self.listed(name, *change)
        way = ["perf", "0"] if not perf_works() and not os.geteuid() else ["ptrace", "15"]
        self.assertEqual(words[:8], ["process", str(process.pid), name, kind, "1", *way, "us"])
        self.assertEqual(words[8:11], ["uniprof", "record", f"process:{name}"])
        self.uniprof("record", "-F", 100, "-T", 0.3, "-o", "out.uniprof", name)
        self.goes_on(process)

    def test_unikraft(self):
        self.check("linuxu", "app_linuxu", "--add-section", ".uk_inittab=/dev/null")

    def test_mirage(self):
        self.check("mirage", "hello", "--add-symbol", "camlMirage_runtime__entry=.text:0,function,global")

    def test_solo5(self):
        self.check("spt", "solo5-spt")

    def test_no_other(self):
        self.assertIsNone(self.listed("app")[1])

    def test_one_that_run_starts(self):
        program = self.scratch / "app_linuxu"
        subprocess.run(["objcopy", "--add-section", ".uk_inittab=/dev/null", PROGRAMS / "subject", program], check=True)
        self.run_guest("-F", 100, "-T", 1, "--via", "ptrace", "--", program)
        self.assertTrue(self.folded("app_linuxu.uniprof", "--state", "all"))


if __name__ == "__main__":
    unittest.main()
