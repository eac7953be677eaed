#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""Guests of KVM that are read by BPF: nothing of them is ever stopped for a sample, and the shares are true."""

import os
import shutil
import subprocess
import time
import unittest
from pathlib import Path

import kvm_test
from hostcase import UNIPROF, chance

# On a busy machine, some samples find a vCPU neither on a CPU nor off it for as long as they wait.
MOST_STOPPED = 0.01


def bpf_works():
    """Why not, or None."""
    if "with BPF" not in subprocess.run([UNIPROF, "-V"], stdout=subprocess.PIPE, check=True).stdout.decode():
        return "this uniprof is built without BPF"
    if not Path("/sys/kernel/btf/vmlinux").exists():
        return "this machine's kernel does not tell its types (BTF)"
    if os.geteuid():
        return "BPF takes root"
    return None


class UnpausedCase(kvm_test.KvmCase):
    def setUp(self):
        super().setUp()
        if why := bpf_works():
            self.skipTest(why)

    def check_way(self, recording):
        """That is what this machine can: nothing else may keep uniprof from it."""
        head = self.head(recording)
        if "KVM leaves registers in this kind of processor" in head["guest"]["host"]:
            self.skipTest(head["guest"]["host"])
        self.assertRegex(head["guest"]["host"], r"^KVM on Linux \S+, BPF$")
        stopped = head["ticks"]["count"] - head["paused"]["ticks_without"]
        self.assertLessEqual(stopped, chance.most(MOST_STOPPED * head["ticks"]["count"]))


class Profiles(UnpausedCase):
    def profile(self, guest, *arguments):
        monitor = self.monitor(*arguments, guest=guest)
        self.check(monitor, 500)
        self.check_way("out.uniprof")
        self.goes_on(monitor)

    def test_frame_pointers(self):
        self.profile("spinner-fp")

    def test_unwind_tables(self):
        self.profile("spinner-nofp")

    def test_memory_that_lies_in_the_monitor_in_another_order(self):
        self.profile("spinner-fp", "1", "scattered")

    def test_several_vcpus(self):
        self.profile("spinner-nofp", "3")

    def test_no_thread_is_put_on_a_cpu_or_off_it_for_a_sample(self):
        """A thread that is stopped leaves KVM_RUN, as the monitor counts."""
        monitor = self.monitor()
        profiler = self.profiler(monitor)
        self.wait_for(lambda: (self.scratch / "out.uniprof").exists() and (self.scratch / "out.uniprof").stat().st_size, "nothing is recorded")
        before, begin = self.progress(monitor), time.monotonic()
        time.sleep(2)
        self.wait_for(lambda: self.progress(monitor)[kvm_test.WORK] > before[kvm_test.WORK] + 1000, "the guest does not go on")
        left = self.progress(monitor)[1] - before[1]
        ticks = 500 * (time.monotonic() - begin)
        self.assertIsNone(profiler.poll())
        self.assertLessEqual(left, 2 * MOST_STOPPED * ticks)


@unittest.skipUnless(shutil.which("qemu-system-x86_64"), "no qemu-system-x86_64 on this machine")
class Microvm(kvm_test.Microvm, UnpausedCase):
    """Profiles the same guests, with the same shares and edges."""

    def profile(self, guest, known, *more):
        super().profile(guest, known, *more)
        self.check_way("out.uniprof")

    def test_a_vcpu_that_never_begins_keeps_none_from_it(self):
        self.profile("app1-pvh-fp", {"function_1": 0.1, "function_2": 0.3, "function_3": 0.6}, "-smp", "2")


class Changes(kvm_test.Changes, UnpausedCase):
    def test_stacks_in_memory_that_was_plugged_in(self):
        monitor, recording = self.monitor("2"), self.scratch / "out.uniprof"
        profiler = self.grow(monitor)
        self.says(profiler, "the guest has more memory than before")
        time.sleep(3)
        self.interrupt(profiler)
        self.check_way(recording)
        stacks = self.folded(recording, *self.last(recording, 3))
        self.assertGreater(sum(stacks.values()), 20)
        self.assertEqual({stack[0] for stack in stacks}, {"start"})
        self.goes_on(monitor)


class Ways(UnpausedCase):
    """--via, for each verb that opens a guest."""

    def test_each_verb_takes_each_way(self):
        monitor = self.monitor()
        guest = f"kvm:{monitor.pid}"
        for way, name in ("bpf", "BPF"), ("ptrace", "ptrace"):
            self.assertIn(f" via {way},", self.uniprof("record", "--via", way, "-T", 0.3, "-o", "out.uniprof", guest))
            self.assertRegex(self.head("out.uniprof")["guest"]["host"], rf"^KVM on Linux \S+, {name}$")
            self.assertIn("function_3", self.uniprof("top", "--via", way, "-b", "-n", 1, guest))
            self.assertIn("spin", self.uniprof("stack", "--via", way, guest))
        self.assertGreater(self.head("out.uniprof")["paused"]["total_ns"], 0)
        self.goes_on(monitor)

    def test_a_guest_that_run_starts(self):
        command = "--", kvm_test.PROGRAMS / "monitor", kvm_test.PROGRAMS / "spinner-fp"
        self.assertIn(" via ptrace,", self.run_guest("--via", "ptrace", "-T", 1, *command))
        self.assertIn("bpf, ptrace", self.run_guest("--via", "x", *command, expect=2))


class Refusals(UnpausedCase):
    @unittest.skipUnless(shutil.which("setpriv"), "no setpriv on this machine")
    def test_without_the_right_to_bpf_vcpus_are_stopped_and_it_says_so(self):
        monitor = self.monitor()
        text = subprocess.run(["setpriv", "--bounding-set", "-sys_admin,-bpf,-perfmon", UNIPROF, "record", "-v", "-F", "500", "-T", "2",
                               "-o", "out.uniprof", f"kvm:{monitor.pid}"], cwd=self.scratch, check=True, stderr=subprocess.PIPE).stderr.decode()
        self.assertRegex(text, r"ptrace \(not BPF: .* is refused \(it takes root, or CAP_BPF, CAP_PERFMON\)\)")
        self.assertGreater(self.head("out.uniprof")["paused"]["total_ns"], 0)
        for stack in self.folded("out.uniprof", "--state", "running,runnable"):
            self.assertEqual(stack[0], "start", f"cut short: {stack}")

    @unittest.skipUnless(shutil.which("setpriv"), "no setpriv on this machine")
    def test_without_the_right_to_bpf_the_list_says_so_and_via_bpf_is_refused(self):
        monitor = self.monitor()
        less = ["setpriv", "--bounding-set", "-sys_admin,-bpf,-perfmon", UNIPROF]
        listed = subprocess.run([*less, "list"], check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL).stdout.decode()
        self.assertRegex(listed, rf"kvm +{monitor.pid} .* ptrace .*\(BPF would not stop it, but takes root")
        done = subprocess.run([*less, "record", "--via", "bpf", "-o", "out.uniprof", f"kvm:{monitor.pid}"], cwd=self.scratch, check=False,
                              stderr=subprocess.PIPE)
        self.assertEqual(done.returncode, 4)
        self.assertRegex(done.stderr.decode(), r"--via bpf: .* is refused \(it takes root")


if __name__ == "__main__":
    unittest.main()
