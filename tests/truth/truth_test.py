#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""Short runs of what tests/truth/run measures at length: profiles beside what really ran.

UNIPROF_BUILD names the build directory, as in tests/rig.
"""
import os
import shutil
import sys
import unittest
from pathlib import Path

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from session import RATE, ROOT, Session  # noqa: E402
from xenrig import cross  # noqa: E402
from xenrig.port import PORTS, X86  # noqa: E402

BUILD = Path(os.environ.get("UNIPROF_BUILD", ROOT / "build"))
SECONDS = 0.6
# 5 of 100 random draws of samples have distances beyond the bound: six times in a row,
# one in 64 millions.
TRIES = 6


class Case(unittest.TestCase):
    arch = "x86"

    @classmethod
    def setUpClass(cls):
        port = PORTS[cls.arch]
        if not shutil.which(port.qemu):
            raise unittest.SkipTest(f"no {port.qemu} on this machine: Xen cannot be booted")
        if port is not X86 and not cross.can_build(port):
            raise unittest.SkipTest(f"no {cross.compiler(port)} on this machine: uniprof cannot be built for {port.name}")
        cls.session = Session(BUILD, RATE, cls.arch)
        cls.addClassCleanup(cls.session.__exit__)

    def check(self, guest, cmdline):
        for row, examples in self.session.measure(guest, ["auto"], SECONDS, cmdline, TRIES):
            print(f"\n{guest}: {row.samples} samples, distance {row.distance} (bound {row.bound95})", end=" ", flush=True)
            self.assertGreater(row.samples, 0.6 * RATE * SECONDS)
            self.assertEqual((0, 0, 0), (row.impossible, row.missing_callers, row.truncated), examples)
            self.assertLessEqual(row.distance, row.bound95)


class Profiles(Case):
    def test_printing_without_frame_pointers_is_seen_as_it_was(self):
        self.check("app2-pv-nofp", "scale=100000")

    def test_tail_calls_show_the_callers_that_are_still_there(self):
        self.check("app2-pv-gcc-tail-nofp", "scale=100000")

    def test_handlers_are_seen_on_what_they_interrupted_on_another_stack(self):
        self.check("interrupt-pv-nofp", "seconds=1000 stack=own")

    def test_handlers_are_seen_on_what_they_interrupted_on_the_processors_own_stack(self):
        self.check("interrupt-pvh-fp", "seconds=1000 stack=ist")


class Arm64Profiles(Case):
    arch = "arm64"

    def test_printing_without_frame_pointers_is_seen_as_it_was(self):
        self.check("app2-arm64-nofp", "scale=100000")


if __name__ == "__main__":
    unittest.main()
