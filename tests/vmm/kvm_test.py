#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""Guests of KVM: true shares, and a monitor and a guest that go on as if nobody looked.

UNIPROF_KILLS: how often the profiler is killed (default 20).
"""

import ctypes
import os
import shutil
import signal
import stat
import subprocess
import unittest
from pathlib import Path

from hostcase import BUILD, PROGRAMS, UNIPROF, HostCase, guards, impossible_edges, state, tracer_of, tracers

KILLS = int(os.environ.get("UNIPROF_KILLS", "20"))

EXPECTED = {"function_1": 0.1, "function_2": 0.3, "function_3": 0.6}
CALLS = {("start", "work"), ("function_1", "spin"), ("function_2", "spin"), ("function_3", "spin"), *(("work", name) for name in EXPECTED)}
TOLERANCE = 0.1

# The guest with two address spaces: all that can be called in each.
SPACES = {letter: ("go_round", f"work_{letter}", f"function_{letter}", f"spin_{letter}") for letter in "ab"}

# Columns of what the monitor tells.
WORK, SIGNALS, ASKED = 0, 2, 3


def kvm_works():
    """Why not, or None."""
    if not os.access("/dev/kvm", os.R_OK | os.W_OK):
        return "no /dev/kvm that could be used on this machine"
    if not (PROGRAMS / "monitor").exists():
        return "the monitor is built on x86-64 only"
    return None


def mixed(stacks):
    """Those that are no beginning of what is called in one of the address spaces."""
    return {stack: n for stack, n in stacks.items() if not any(whole[:len(stack)] == stack for whole in SPACES.values())}


def tell(pid, tid):
    """SIGUSR1 for one thread (tgkill)."""
    ctypes.CDLL(None).syscall(234, pid, tid, int(signal.SIGUSR1))


def asked_of_kvm(pid, vcpu):
    """Registers that KVM was told to leave in a vCPU's page: struct kvm_run, kvm_valid_regs."""
    maps = Path(f"/proc/{pid}/maps").read_text(encoding="ascii").splitlines()
    page = next(line for line in maps if line.endswith(f"anon_inode:kvm-vcpu:{vcpu}"))
    with open(f"/proc/{pid}/mem", "rb") as memory:
        memory.seek(int(page.split("-")[0], 16) + 288)
        return int.from_bytes(memory.read(8), "little")


class KvmCase(HostCase):
    def setUp(self):
        if why := kvm_works():
            self.skipTest(why)
        super().setUp()

    def monitor(self, *arguments, guest="spinner-fp"):
        process = self.start(PROGRAMS / "monitor", PROGRAMS / guest, *arguments)
        self.wait_for(lambda: process.poll() is not None or (self.progress(process) or [0])[WORK] > 0, "the guest does nothing")
        self.assertIsNone(process.poll(), process.log.read_text())
        return process

    def profiler(self, process, *way):
        profiler = self.recorder(f"kvm:{process.pid}", *way)
        # Before, vCPUs are looked for, and nothing is sampled.
        self.records(profiler)
        return profiler

    def check(self, monitor, rate, *way):
        """Checks shares and edges of the time that vCPUs were on a CPU."""
        stacks = self.check_shares(f"kvm:{monitor.pid}", EXPECTED, TOLERANCE, ("-v", *way, "-F", rate), 2)
        for stack in [*stacks, *self.folded("out.uniprof", "--state", "runnable")]:
            self.assertEqual(stack[0], "start", f"cut short: {stack}")
            for pair in zip(stack, stack[1:]):
                self.assertIn(pair, CALLS, f"impossible: {stack}")


class Profiles(KvmCase):
    """In the way that uniprof takes by itself."""

    way = ()

    def test_shares(self):
        monitor = self.monitor()
        self.check(monitor, 500, *self.way)
        self.goes_on(monitor)

    def test_shares_without_frame_pointers(self):
        monitor = self.monitor(guest="spinner-nofp")
        self.check(monitor, 500, *self.way)

    def test_each_vcpu_by_its_thread(self):
        monitor = self.monitor("3")
        self.check(monitor, 200, *self.way)
        for vcpu in range(3):
            self.assertTrue(self.folded("out.uniprof", "--vcpu", str(vcpu), "--state", "all"), f"vCPU {vcpu}")
        self.goes_on(monitor)

    def test_a_monitor_that_filters_its_system_calls(self):
        monitor = self.monitor("1", "seccomp")
        self.uniprof("record", *self.way, "-F", 500, "-T", 2, "-o", "out.uniprof", f"kvm:{monitor.pid}")
        self.assertTrue(self.folded("out.uniprof", "--state", "running,runnable"))
        self.goes_on(monitor)

    def test_a_monitor_whose_guests_memory_is_several_mappings(self):
        monitor = self.monitor("1", "divided")
        self.check(monitor, 500, *self.way)


class Stopped(Profiles):
    """Reads by ptrace, even if the guest could be read without."""

    way = ("--always-pause",)


class Spaces(KvmCase):
    """A guest that changes its address space without leaving: each stack is of the one that was there in that moment."""

    def check_spaces(self, guest, *way):
        monitor = self.monitor("2", "kernel", guest=guest)
        self.uniprof("record", *way, "-F", 500, "-T", 3, "-o", "out.uniprof", f"kvm:{monitor.pid}")
        stacks = self.folded("out.uniprof", "--state", "running,runnable")
        self.assertGreater(sum(n for stack, n in stacks.items() if len(stack) == len(SPACES["a"])), 100)
        self.assertFalse(mixed(stacks))
        self.goes_on(monitor)

    def test_frame_pointers(self):
        self.check_spaces("spaces-fp")

    def test_unwind_tables_by_ptrace(self):
        self.check_spaces("spaces-nofp", "--via", "ptrace")


class Names(KvmCase):
    def test_by_name_and_in_the_list(self):
        monitor = self.monitor()
        listed = subprocess.run([UNIPROF, "list"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=True).stdout.decode()
        self.assertRegex(listed, rf"kvm +{monitor.pid} +monitor +kvm +1 +(bpf|ptrace) +[0-9]+ us  uniprof record kvm:monitor")
        self.uniprof("record", "-F", 100, "-T", 0.3, "-o", "out.uniprof", "kvm:monitor")


@unittest.skipUnless(shutil.which("qemu-system-x86_64"), "no qemu-system-x86_64 on this machine")
class MicrovmCase(KvmCase):
    """QEMU's microvm by KVM, with the guests that run on Xen, too."""

    def boot(self, guest, *more):
        self.console = self.scratch / "console.txt"
        process = self.start("qemu-system-x86_64", "-accel", "kvm", "-M", "microvm", "-cpu", "qemu64", "-m", "64", "-nodefaults",
                             "-display", "none", "-serial", f"file:{self.console}", "-no-reboot", "-name", guest,
                             "-kernel", BUILD / "guests" / f"{guest}.elf", *more)
        self.begins(guest.rsplit("-", 2)[0])
        return process

    def work(self):
        return {stack: n for stack, n in self.folded("out.uniprof").items() if "main" in stack}

    def profile(self, guest, known, *more, scheme="kvm"):
        process = self.boot(guest, *more)
        self.check_shares(f"{scheme}:{guest if scheme == 'kvm' else process.pid}", known, TOLERANCE, ("-v", "-F", 300), 5, self.work)
        self.assertIn(f"{guest}.elf is at 0x100000 in the guest, as its code shows", self.said)
        self.assertFalse(impossible_edges(guest, self.folded("out.uniprof"))[0])
        return process


class Microvm(MicrovmCase):
    # Shares from guests/README.md; in a kernel that KVM emulates here, the guests do not come to their end.
    def test_app1(self):
        self.profile("app1-pvh-fp", {"function_1": 0.1, "function_2": 0.3, "function_3": 0.6})

    def test_app2(self):
        self.profile("app2-pvh-nofp", {"function_1": 0.4, "function_2": 0.6, "function_3": 0.4, "function_4": 0.4, "function_5": 0.2})

    def test_memory_that_the_monitor_shares(self):
        self.profile("app1-pvh-fp", {"function_1": 0.1, "function_2": 0.3, "function_3": 0.6},
                     "-object", "memory-backend-memfd,id=shared,size=64M,share=on", "-machine", "memory-backend=shared")


class Stub(MicrovmCase):
    """Reads by QEMU's gdb stub, with the registers that KVM leaves."""

    def qmp(self):
        return "-qmp", f"unix:{self.scratch}/qmp.sock,server=on,wait=off"

    def test_by_its_stub(self):
        process = self.profile("app1-pvh-fp", {"function_1": 0.1, "function_2": 0.3, "function_3": 0.6}, *self.qmp(), "-smp", "2", scheme="qemu")
        self.assertEqual([asked_of_kvm(process.pid, vcpu) for vcpu in range(2)], [0, 0])

    def test_kvm_is_told_back_when_the_profiler_by_the_stub_is_killed(self):
        process = self.boot("app1-pvh-fp", *self.qmp(), "-smp", "2")
        profiler = self.recorder(f"qemu:{process.pid}")
        self.wait_for(lambda: asked_of_kvm(process.pid, 0), "KVM is not asked for registers")
        profiler.kill()
        self.wait_for(lambda: not guards(process.pid), "a guard does not end")
        self.assertEqual([asked_of_kvm(process.pid, vcpu) for vcpu in range(2)], [0, 0])
        self.survives_kills(process, f"qemu:{process.pid}", KILLS, after=self.prints)
        self.assertEqual([asked_of_kvm(process.pid, vcpu) for vcpu in range(2)], [0, 0])


class Leaves(KvmCase):
    def test_signals_reach_the_monitors_vcpus(self):
        monitor = self.monitor()
        profiler = self.profiler(monitor, "--via", "ptrace")
        traced = next(int(task) for task in os.listdir(f"/proc/{monitor.pid}/task") if tracer_of(monitor.pid, task))
        for sent in range(1, 21):
            tell(monitor.pid, traced)
            self.wait_for(lambda wanted=sent: self.progress(monitor)[SIGNALS] == wanted, "a signal was lost")
        self.interrupt(profiler)
        self.goes_on(monitor)

    def test_a_stopped_monitor_stays_stopped_until_its_owner_lets_it_go(self):
        monitor = self.monitor()
        profiler = self.profiler(monitor)
        monitor.send_signal(signal.SIGSTOP)
        self.wait_for(lambda: state(monitor.pid) == "T", "it does not stop")
        self.wait_for(lambda: self.stands_still(lambda: self.progress(monitor), lambda: state(monitor.pid) in "Tt"), "it runs though it was stopped")
        at = self.progress(monitor)
        monitor.send_signal(signal.SIGCONT)
        self.wait_for(lambda: self.progress(monitor)[WORK] > at[WORK], "the guest does not go on")
        self.interrupt(profiler)
        self.goes_on(monitor)

    def test_it_is_refused_while_it_is_stopped(self):
        monitor = self.monitor()
        monitor.send_signal(signal.SIGSTOP)
        self.wait_for(lambda: state(monitor.pid) == "T", "it does not stop")
        self.assertIn("SIGSTOP", self.uniprof("record", "-o", "out.uniprof", f"kvm:{monitor.pid}", expect=3))
        self.assertEqual(state(monitor.pid), "T")

    def test_what_kvm_was_told_is_told_back(self):
        monitor = self.monitor()
        profiler = self.profiler(monitor)
        self.wait_for(lambda: self.progress(monitor)[ASKED], "KVM was never asked")
        self.interrupt(profiler)
        # A last sample by another profiler, which asks for nothing, shows it.
        self.nudge(monitor)
        self.wait_for(lambda: self.progress(monitor)[ASKED] == 0, "KVM is still told to leave registers")

    def nudge(self, monitor):
        """Makes KVM_RUN return, so that the monitor looks at its page."""
        for task in os.listdir(f"/proc/{monitor.pid}/task"):
            tell(monitor.pid, int(task))
        told = self.progress(monitor)[WORK]
        self.wait_for(lambda: self.progress(monitor)[WORK] > told, "the guest does not go on")

    def test_it_runs_on_when_the_profiler_is_killed(self):
        self.check_kills()

    def test_it_runs_on_when_the_profiler_by_ptrace_is_killed(self):
        self.check_kills("--via", "ptrace")

    def check_kills(self, *options):
        monitor = self.monitor("2")
        self.survives_kills(monitor, f"kvm:{monitor.pid}", KILLS, options=options, held=options and (lambda: self.thread_is_held(monitor)))
        self.nudge(monitor)
        self.wait_for(lambda: self.progress(monitor)[ASKED] == 0, "KVM is still told to leave registers")

    def test_the_monitors_death_ends_the_recording(self):
        monitor = self.monitor()
        profiler = self.profiler(monitor)
        self.samples_come(profiler)
        monitor.kill()
        self.assertEqual(profiler.wait(60), 5)
        self.assertTrue(self.folded("out.uniprof", "--weight=samples", "--state", "all"))

    def test_the_monitors_death_within_a_pause(self):
        monitor = self.monitor()
        profiler = self.stopped_within_a_pause(f"kvm:{monitor.pid}", lambda: self.thread_is_held(monitor), "--via", "ptrace")
        monitor.kill()
        profiler.send_signal(signal.SIGCONT)
        self.assertEqual(profiler.wait(60), 5, profiler.log.read_text())


class Changes(KvmCase):
    """Hotplug while the guest is sampled is reported."""

    def grow(self, monitor, *way):
        profiler = self.recorder(f"kvm:{monitor.pid}", *way, quiet=False)
        self.records(profiler)
        monitor.send_signal(signal.SIGUSR2)
        self.says(profiler, "a vCPU was plugged in")
        return profiler

    def test_memory_that_only_mappings_could_tell_of(self):
        monitor = self.monitor("2")
        profiler = self.grow(monitor, "--via", "ptrace")
        self.says(profiler, "memory that seems to have been plugged in")
        self.interrupt(profiler)
        self.goes_on(monitor)


class Runs(KvmCase):
    """Guests that a command starts, as those do that people start monitors with."""

    def check_run(self, *command, name="monitor", kernel=PROGRAMS / "spinner-fp"):
        text = self.run_guest("-v", "-F", "300", "-T", "2", "--", *command)
        self.assertIn(f'"{name}"', text)
        # Its file is found without being named, and leads to names.
        self.assertIn(f"{kernel} is at ", text)
        stacks = self.folded(f"{name}.uniprof", "--state", "running,runnable")
        self.assertTrue([stack for stack in stacks if stack[0] == "start"], stacks)
        for ending in "raw", "syms", "resolved.raw", "folded", "svg":
            self.assertTrue((self.scratch / f"{name}.{ending}").exists(), text)

    def test_a_monitor_itself(self):
        self.check_run(PROGRAMS / "monitor", PROGRAMS / "spinner-fp")

    def test_one_that_is_left_behind_by_a_command_that_ends(self):
        self.check_run("setsid", "--fork", PROGRAMS / "monitor", PROGRAMS / "spinner-fp")
        # ... and its guest goes on.
        left = self.left_behind()
        self.addCleanup(os.kill, left, signal.SIGKILL)
        self.assertFalse(tracers(left))

    def left_behind(self):
        """The process in whose memory this test's file is."""
        for process in Path("/proc").glob("[0-9]*"):
            try:
                if (process / "cmdline").read_bytes().split(b"\0")[0] == str(PROGRAMS / "monitor").encode() and os.getsid(int(process.name)) == int(process.name):
                    return int(process.name)
            except OSError:
                continue
        self.fail("the monitor has ended")

    @unittest.skipUnless(os.geteuid() == 0 and shutil.which("unshare"), "only root can build a jail, with unshare")
    def test_one_in_a_jail(self):
        """As Firecracker's jailer does: a root and a list of processes of its own, another user, nothing but what it needs, an id."""
        jail = self.scratch / "jail"
        (jail / "dev").mkdir(parents=True)
        self.scratch.chmod(0o755)
        os.mknod(jail / "dev" / "kvm", 0o666 | stat.S_IFCHR, os.stat("/dev/kvm").st_rdev)
        os.chmod(jail / "dev" / "kvm", 0o666)
        shutil.copy(PROGRAMS / "monitor", jail / "firecracker")
        shutil.copy(PROGRAMS / "spinner-fp", jail / "vmlinux")
        for word in subprocess.run(["ldd", PROGRAMS / "monitor"], check=True, stdout=subprocess.PIPE).stdout.decode().split():
            if word.startswith("/"):
                (jail / word[1:]).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(word, jail / word[1:])
        self.check_run("unshare", "--pid", "--fork", "--kill-child", "chroot", "--userspec=1234:1234", jail,
                       "/firecracker", "/vmlinux", "1", "--id", "anna", name="anna", kernel=jail / "vmlinux")


class Several(KvmCase):
    """Guests that are recorded at once."""

    def test_each_has_its_recording(self):
        monitors = self.monitor(), self.monitor("2")
        self.uniprof("record", "-F", 300, "-T", 2, "-o", "all", *(f"kvm:{monitor.pid}" for monitor in monitors))
        for monitor in monitors:
            stacks = self.folded(self.scratch / "all" / f"monitor-{monitor.pid}.uniprof", "--state", "running,runnable")
            self.assertTrue([stack for stack in stacks if stack[0] == "start"], stacks)
            self.goes_on(monitor)

    def test_by_two_profilers(self):
        """As the agent and somebody who looks more closely: what BPF reads, nobody has to trace."""
        monitor = self.monitor("2")
        if " via bpf," not in self.uniprof("record", "-T", 0.3, "-o", "tried.uniprof", f"kvm:{monitor.pid}"):
            self.skipTest("vCPUs are read by ptrace on this host")
        first = self.recorder(f"kvm:{monitor.pid}")
        self.records(first)
        self.wait_for(lambda: not tracers(monitor.pid), "vCPUs are traced all the time")
        self.assertIn(" via bpf,", self.uniprof("record", "-F", 300, "-T", 2, "-o", "other.uniprof", f"kvm:{monitor.pid}"))
        self.interrupt(first)
        for recording in ("out.uniprof", "other.uniprof"):
            stacks = self.folded(recording, "--state", "running,runnable")
            self.assertTrue([stack for stack in stacks if stack[:2] == ("start", "work")], stacks)
        self.goes_on(monitor)

    def test_together_with_a_process(self):
        monitor, subject = self.monitor(), self.subject()
        self.uniprof("record", "--together", "-F", 300, "-T", 2, "-o", "both.uniprof", f"kvm:{monitor.pid}", f"process:{subject.pid}")
        stacks = self.folded("both.uniprof", "--state", "all")
        self.assertEqual({stack[0] for stack in stacks}, {"monitor", "subject"})
        self.assertTrue([stack for stack in stacks if stack[:3] == ("monitor", "start", "work")], stacks)
        self.goes_on(monitor)
        self.goes_on(subject)


class Refusals(KvmCase):
    def test_a_process_that_runs_no_guest(self):
        sleeper = self.start("sleep", "60")
        self.assertIn("runs no guest by KVM", self.uniprof("record", "-o", "out.uniprof", f"kvm:{sleeper.pid}", expect=3))

    def test_no_such_guest(self):
        self.assertIn("is called", self.uniprof("record", "-o", "out.uniprof", "kvm:nobody-is-called-so", expect=3))

    def test_already_traced(self):
        monitor = self.monitor()
        profiler = self.profiler(monitor, "--via", "ptrace")
        self.assertIn("already traced", self.uniprof("record", "-o", "other.uniprof", f"kvm:{monitor.pid}", expect=4))
        self.assertIsNone(profiler.poll())
        self.goes_on_under(monitor)

    def goes_on_under(self, monitor):
        at = self.progress(monitor)[WORK]
        self.wait_for(lambda: self.progress(monitor)[WORK] > at, "the guest was left stopped")

    @unittest.skipUnless(os.geteuid() == 0, "only root can run uniprof as another user")
    def test_somebody_elses(self):
        monitor = self.monitor()
        self.scratch.chmod(0o777)
        text = self.uniprof("record", "-o", "out.uniprof", f"kvm:{monitor.pid}", expect=4, user=65534, group=65534, extra_groups=[])
        self.assertIn("run uniprof as root", text)


if __name__ == "__main__":
    unittest.main()
