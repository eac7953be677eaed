#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""Intervals of shares on a host that has other work. tests/truth/intervals.py measures more of them, on each kind of guest."""

import os
import sys
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "truth"))

import intervals  # noqa: E402
from hostcase import chance  # noqa: E402

# Shares that are measured, and how many of their 95 % intervals are off; those of one recording are off together.
MEASURED, OFF, TOGETHER = 30, 0.05, 3


class Intervals(unittest.TestCase):
    def setUp(self):
        # All on one CPU, so that other tests have the others.
        cpus = os.sched_getaffinity(0)
        os.sched_setaffinity(0, {max(cpus)})
        self.addCleanup(os.sched_setaffinity, 0, cpus)

    def hold(self, host):
        measured = intervals.measure("process", host, MEASURED)
        self.assertGreaterEqual(measured.held, measured.shares - chance.most(TOGETHER * OFF * measured.shares))

    def test_they_hold_beside_programs_that_need_a_cpu(self):
        self.hold("busy")

    def test_they_hold_though_the_sampler_is_stopped_now_and_then(self):
        self.hold("stopped")


if __name__ == "__main__":
    unittest.main()
