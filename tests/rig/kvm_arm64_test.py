#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""Guests of KVM on arm64 (EL2 is emulated) on Debian's kernels: stacks of one moment, true shares, whatever ends the profiler.

UNIPROF_KVM_STACKS: how many stacks are taken of a guest with two address spaces (default 300).
UNIPROF_KILLS: how often the profiler is killed (default 10).
"""

import os
import unittest

from guestcase import GUESTS
from kvmcase import KillsChecks, KvmCase, SpacesChecks
from xenrig import cross, port

STACKS = int(os.environ.get("UNIPROF_KVM_STACKS", "300"))
KILLS = int(os.environ.get("UNIPROF_KILLS", "10"))
DENIED = 4

# Length of each recording, and the most recordings.
SECONDS = 10
RECORDINGS = 300

APP1 = {"function_1": 0.1, "function_2": 0.3, "function_3": 0.6}
APP2 = {"function_1": 0.4, "function_2": 0.6, "function_3": 0.4, "function_4": 0.4, "function_5": 0.2}
TOLERANCE = 0.1

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

    stacks = STACKS
    recorded = SECONDS, RECORDINGS

    def test_with_frame_pointers(self):
        self.check_spaces("ptrace")

    def test_without_frame_pointers(self):
        self.check_spaces("ptrace", "spaces-nofp")


class FewSpaces(Spaces):
    stacks = 60


class SpacesNvhe(FewSpaces):
    rig_options = Arm64Case.rig_options | {"vhe": False}


class Spaces612(FewSpaces):
    rig_options = Arm64Case.rig_options | {"kernel": "6.12"}


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


class Ways(Arm64Case):
    lack = "on arm64, vCPUs are read by ptrace alone: with VHE"

    def test_what_bpf_lacks_is_said_and_ptrace_is_taken(self):
        self.start("spinner-fp", "2")
        self.assertRegex(self.host("uniprof list"), rf"kvm +\d+ +monitor +kvm +2 +ptrace +\d+ us  uniprof record kvm:monitor +\(.*{self.lack}")
        self.assertIn(f"--via bpf: {self.lack}", self.record("monitor", "--via", "bpf", "-T", 1, expect=DENIED))
        self.assertIn(f"--host: {self.lack}", self.record("monitor", "--host", "-T", 1, expect=DENIED))
        said = self.record("monitor", "-T", 3)
        self.assertIn(" via ptrace,", said)
        self.assertEqual({stack[:2] for stack in self.folded() if len(stack) > 1}, {("start", "work")})

    def test_a_thread_that_filters_its_calls_is_left_alone(self):
        self.start("spinner-fp", "1", "seccomp")
        self.assertIn("filters its system calls", self.record("monitor", "-T", 1, expect=DENIED))
        self.works()


class Kills(Arm64Case, KillsChecks):
    """A profiler that is killed at a random moment, perhaps amid a call that it lets a vCPU's thread make."""

    kills = KILLS

    def test_by_ptrace(self):
        self.check_kills("ptrace")


if __name__ == "__main__":
    unittest.main()
