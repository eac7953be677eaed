#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""PV guests of 32 bits, on page tables of three levels, which only a Xen that is built here runs."""

import unittest

from guests_test import HardCase
from shares_test import APP1, APP2, SharesCase
from traits_test import TraitsCase


class Shares(SharesCase):
    rig_options = {"xen": "built", "icount": True}

    def test_app1(self):
        self.profile("app1-pv32-fp", APP1, 60)

    def test_app1_without_frame_pointers(self):
        self.profile("app1-pv32-nofp", APP1, 60)

    def test_app2(self):
        self.profile("app2-pv32-fp", APP2, 12)

    def test_app2_without_frame_pointers(self):
        self.profile("app2-pv32-nofp", APP2, 12)


class Hard(HardCase):
    rig_options = {"xen": "built"}

    def test_a_deep_recursion_is_followed_to_its_end(self):
        self.a_deep_recursion_is_followed_to_its_end("recursion-pv32-fp")

    def test_a_deep_recursion_without_frame_pointers_is_followed_to_its_end(self):
        self.a_deep_recursion_is_followed_to_its_end("recursion-pv32-nofp")


class Threads(TraitsCase):
    rig_options = {"xen": "built"}

    def test_64_threads_are_told_apart(self):
        self.check("threads", ["pv32"], {f"serve_{n}": 0.25 for n in range(1, 5)}, ["thread_starter", "begin_thread"], ("fp", "nofp"))


if __name__ == "__main__":
    unittest.main()
