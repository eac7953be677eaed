#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""Guests of KVM on arm64 (EL2 is emulated) on Debian's kernels: stacks of one moment, true shares, whatever ends the profiler.

UNIPROF_KVM_STACKS: how many stacks are taken of a guest with two address spaces (default 300).
UNIPROF_KILLS: how often the profiler is killed (default 10).
"""

import collections
import os
import re
import unittest

import kvm_linux_test
import linux_arm64_test
from guestcase import GUESTS, impossible_edges
from kvmcase import KillsChecks, KvmCase, SpacesChecks
from xenrig import cross, kvm_image, port

STACKS = int(os.environ.get("UNIPROF_KVM_STACKS", "300"))
KILLS = int(os.environ.get("UNIPROF_KILLS", "10"))
DENIED = 4

# Length of each recording, and the most recordings.
SECONDS = 10
RECORDINGS = 300

# Stacks of a guest of QEMU's that moves its own, and of Debian's kernel.
MOVED = 60
LINUX_STACKS = 200

APP1 = {"function_1": 0.1, "function_2": 0.3, "function_3": 0.6}
APP2 = {"function_1": 0.4, "function_2": 0.6, "function_3": 0.4, "function_4": 0.4, "function_5": 0.2}
TOLERANCE = 0.1

# The host's kernel runs at EL1: there, BPF sees all registers.
NVHE = {"vhe": False}

PROGRAMS = "tests/vmm/programs"
GUESTS_OF_THE_MONITOR = ("spaces-fp", "spaces-nofp", "spinner-fp")


class Arm64Case(KvmCase):
    rig_options = {"arch": "arm64", "cpus": 2, "parallel": True}

    @classmethod
    def setUpClass(cls):
        if not cross.can_build(port.ARM64):
            raise unittest.SkipTest(f"no {cross.compiler(port.ARM64)} on this machine: uniprof cannot be built for arm64")
        cls.build = cross.build(port.ARM64, ("uniprof", *(f"{PROGRAMS}/{name}" for name in ("monitor", *GUESTS_OF_THE_MONITOR))))
        cls.monitors = cls.build / PROGRAMS
        super().setUpClass()


class Spaces(Arm64Case, SpacesChecks):
    """A guest that changes TTBR0_EL1 without an exit: each stack is of the address space that was there in that moment."""

    way = "ptrace"
    stacks = STACKS
    recorded = SECONDS, RECORDINGS

    def test_with_frame_pointers(self):
        self.check_spaces(self.way)

    def test_without_frame_pointers(self):
        self.check_spaces(self.way, "spaces-nofp")


class FewSpaces(Spaces):
    stacks = 60


class Spaces612(FewSpaces):
    rig_options = Arm64Case.rig_options | {"kernel": "6.12"}


class StoppedNvhe(FewSpaces):
    rig_options = Arm64Case.rig_options | NVHE


class SpacesNvhe(Spaces):
    """Where KVM has the registers of the guest's kernel in memory after each exit."""

    way = "bpf"
    rig_options = Arm64Case.rig_options | NVHE


class SpacesNvhe612(SpacesNvhe):
    rig_options = SpacesNvhe.rig_options | {"kernel": "6.12"}
    stacks = 60


class Shares(Arm64Case):
    """Images of guests/, in kernel mode; what they print leaves the guest for each character."""

    def check_app(self, guest, known):
        self.bring(GUESTS / f"{guest}.elf")
        self.host(f"monitor {guest}.elf 1 image >log 2>&1 &")
        self.works()
        self.check_shares(guest, known, TOLERANCE, ("-F", 200), SECONDS, "monitor")

    def test_app1(self):
        self.check_app("app1-arm64-fp", APP1)

    def test_app2_without_frame_pointers(self):
        self.check_app("app2-arm64-nofp", APP2)


class Qemu(Arm64Case):
    """Guests of Debian's QEMU, on its board virt."""

    way = "ptrace"

    def boot_image(self, guest, *words):
        """A guest from its flat image, which has no names; as QEMU has a command line for such ones alone."""
        self.bring(GUESTS / f"{guest}.elf")
        self.boot(guest, *words, "-append", "seconds=100000", file=f"{guest}.image")

    def check_stacks(self, guest, least, functions, vcpus=1):
        """Asserts that stacks of a guest that runs are those that its program can have; takes as many as are asked for, and of
        all of these functions. Returns [{stack: samples} of each vCPU]."""
        found = [collections.Counter() for _ in range(vcpus)]
        for _ in range(RECORDINGS):
            self.assertIn(f" via {self.way},", self.record(guest, "-F", 2000, "-T", SECONDS, "-s", f"{guest}.elf"))
            for vcpu, stacks in enumerate(found):
                stacks += self.folded(f"--vcpu={vcpu}")
            if min(sum(stacks.values()) for stacks in found) >= least and functions <= {name for stacks in found for stack in stacks for name in stack}:
                break
        else:
            self.fail(f"{guest}: {found}")
        for stacks in found:
            wrong, cut = impossible_edges(guest, stacks)
            print(f"{guest}: {sum(stacks.values())} stacks, {sum(wrong.values())} impossible, {sum(cut.values())} cut short")
            self.assertFalse(wrong)
            # The first one of a recording that leads to another stack, whose place is known from then on; seldom
            # (one of some 1,600 was seen) one that ends where that stack begins.
            self.assertLessEqual(set(cut), {"call_on_stack"} | functions)
            self.assertLessEqual(sum(cut[name] for name in functions), 1 + 0.005 * sum(stacks.values()))
            self.assertLess(sum(cut.values()), 0.5 * sum(stacks.values()))
        return found

    def prints_more(self):
        self.until("[ $(stat -c %s console) -gt $before ]", "before=$(stat -c %s console)")

    def test_app1(self):
        """QEMU's command line tells where the names are."""
        self.boot("app1-arm64-fp")
        self.assertRegex(self.host("uniprof list"), r"kvm +\d+ +app1-arm64-fp +kvm +1 +ptrace +\d+ us  uniprof record kvm:app1-arm64-fp ")
        self.check_shares("app1-arm64-fp", APP1, TOLERANCE, ("-F", 200), SECONDS)
        self.prints_more()

    def test_app2_without_frame_pointers(self):
        self.boot_image("app2-arm64-nofp")
        self.check_shares("app2-arm64-nofp", APP2, TOLERANCE, ("-F", 200, "-s", "app2-arm64-nofp.elf"), SECONDS)
        self.prints_more()

    def check_mover(self, guest):
        """Each piece of work has its stack at another address, in one of two address spaces; all of them come again after that."""
        self.boot_image(guest)
        for least in MOVED, 1:
            self.check_stacks(guest, least, {f"work_{work}" for work in range(1, 5)})

    def test_two_address_spaces(self):
        self.check_mover("mover-arm64-fp")

    def test_two_address_spaces_without_frame_pointers(self):
        self.check_mover("mover-arm64-nofp")

    def test_each_vcpu_shows_its_own_worker(self):
        self.boot_image("vcpus-arm64-nofp", "-smp", 4)
        workers = [f"worker_{vcpu}" for vcpu in range(4)]
        for vcpu, stacks in enumerate(self.check_stacks("vcpus-arm64-nofp", 10, set(workers), 4)):
            self.assertEqual({name for stack in stacks for name in stack if name in workers}, {workers[vcpu]})


class QemuNvhe(Qemu):
    rig_options, way = Arm64Case.rig_options | {"vhe": False}, "bpf"


class Qemu612(Qemu):
    rig_options = Arm64Case.rig_options | {"kernel": "6.12"}


class Linux(Arm64Case, linux_arm64_test.KernelChecks):
    """Debian's kernel as a guest of QEMU's: it has moved itself, and hides from programs. The host has the same."""

    enough = LINUX_STACKS
    # Of few samples a second, each that is on the stack for interrupts has come there from a stack that no sample before it has seen.
    may_lose = 0.06

    def test_stacks_of_a_busy_kernel_reach_its_entry_and_have_names(self):
        linux = kvm_image.locate("6.1", port.ARM64) / "linux"
        self.rig.put(GUESTS / "linux-load-arm64", linux=linux)
        kallsyms = self.host("grep -v '\\[' /proc/kallsyms", timeout=300)
        self.host(linux_arm64_test.ROOT.format(console="ttyAMA0"))
        self.boot_file("linux", "linux", "-m 256 -initrd linux.cpio -append 'console=ttyAMA0 quiet'")
        self.until("grep -q 'guest is up' console", seconds=600)
        start = int(re.search(r"(\w+) T _stext", self.host("cat console"))[1], 16)
        self.kernel = linux_arm64_test.Kernel(linux, kallsyms, start)
        stacks, functions = [], set()
        while len(stacks) < self.enough:
            self.assertNotIn("no names", self.record("linux", "-F", 2000, "-T", SECONDS, timeout=300))
            stacks += self.trace(self.host("uniprof export --format=perf-script --state=all out.uniprof 2>/dev/null"))
            functions |= {name for stack in self.folded("") for name in stack}
        self.check_ends(stacks)
        self.check_calls(stacks)
        for name in "el0t_64_sync", "el0_svc", "handle_mm_fault", "schedule", "vfs_write":
            self.assertIn(name, functions)


class ProcessesCase(kvm_linux_test.LinuxChecks, Arm64Case):
    """Busy processes of Debian's 6.12, which has names of its data and hides from programs: their shares are what its /proc tells inside."""

    rig_options = {"arch": "arm64", "icount": True, "kernel": "6.12"}
    release, threads, tty = "4.20", GUESTS / "linux-threads-arm64", "ttyAMA0"
    boot_linux = ("qemu-system-aarch64 -accel kvm -M virt,gic-version=host -cpu host -m 192 -nodefaults -display none -serial file:console -no-reboot "
                  "-name linux -kernel vmlinux -initrd files.cpio -append 'console=ttyAMA0 quiet kpti=1 panic=-1' >log 2>&1 &")
    rate, tolerance = 47, 0.04

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.start_linux((kvm_image.locate("6.12", port.ARM64) / "linux").read_bytes())


class Processes(ProcessesCase):
    def test_shares_by_ptrace(self):
        self.check_shares_by("ptrace")


class ProcessesNvhe(ProcessesCase):
    rig_options = ProcessesCase.rig_options | NVHE

    def test_shares_by_bpf(self):
        self.check_shares_by("bpf")


class Ways(Arm64Case):
    lack = "the host's kernel runs at EL2 (VHE): KVM leaves registers of the guest's kernel in the processor"

    def test_what_bpf_lacks_is_said_and_ptrace_is_taken(self):
        self.start("spinner-fp", "2")
        self.assertRegex(self.host("uniprof list"), r"kvm +\d+ +monitor +kvm +2 +ptrace +\d+ us  uniprof record kvm:monitor +"
                         rf"\(BPF would not stop it, but cannot be had: {re.escape(self.lack)}")
        self.assertIn(f"--via bpf: {self.lack}", self.record("monitor", "--via", "bpf", "-T", 1, expect=DENIED))
        said = self.record("monitor", "-T", 3)
        self.assertIn(" via ptrace,", said)
        self.assertIn(self.lack, said)
        self.assertEqual({stack[:2] for stack in self.folded() if len(stack) > 1}, {("start", "work")})

    def test_a_thread_that_filters_its_calls_is_left_alone(self):
        self.start("spinner-fp", "1", "seccomp")
        self.assertIn("filters its system calls", self.record("monitor", "-T", 1, expect=DENIED))
        self.works()


class WaysNvhe(Arm64Case):
    rig_options = Arm64Case.rig_options | NVHE

    def test_bpf_is_told_and_taken(self):
        self.start("spinner-fp", "2")
        self.assertRegex(self.host("uniprof list"), r"kvm +\d+ +monitor +kvm +2 +bpf +0 us  uniprof record kvm:monitor\n")
        self.assertIn(" via bpf,", self.record("monitor", "-T", 3))
        self.assertEqual({stack[:2] for stack in self.folded() if len(stack) > 1}, {("start", "work")})

    def test_the_host_s_side_is_refused(self):
        self.start("spinner-fp", "1")
        self.assertIn("--host: not by BPF (the host's side of a vCPU is read by it on x86-64 hosts only), nor by perf events: on arm64",
                      self.record("monitor", "--host", "-T", 1, expect=DENIED))


class Kills(Arm64Case, KillsChecks):
    """A profiler that is killed at a random moment, perhaps amid a call that it lets a vCPU's thread make."""

    kills = KILLS

    def test_by_ptrace(self):
        self.check_kills("ptrace")


class KillsNvhe(Arm64Case, KillsChecks):
    rig_options = Arm64Case.rig_options | NVHE
    kills = KILLS

    def test_by_bpf(self):
        self.check_kills("bpf")


if __name__ == "__main__":
    unittest.main()
