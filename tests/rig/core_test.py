#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""Core files of `xl dump-core`: what is seen in them is what is seen in the paused guest.

UNIPROF_LONG=1: of PVH guests, too, of which xl tries a million frames, for minutes.
"""

import json
import os
import unittest

from guestcase import GuestCase


class Core(GuestCase):
    def look(self, what):
        status, text = self.dom0(f"uniprof stack -q --json {what}")
        self.assertEqual(status, 0, text)
        return json.loads(text)

    def same(self, guest, timeout=300, **settings):
        self.create(guest, **settings)
        self.at_work(guest)
        self.dom0(f"xl pause {guest}")
        live = self.look(guest)
        status, text = self.dom0(f"xl dump-core {guest} g.core", timeout)
        self.assertEqual(status, 0, text)
        dead = self.look(f"-s {guest}.elf g.core")
        self.dom0(f"rm g.core; xl destroy {guest}")
        self.assertEqual((dead["state"], dead["guest"]["kind"]), ("paused", "core"))
        self.assertEqual(len(live["vcpus"]), len(dead["vcpus"]))
        for here, there in zip(live["vcpus"], dead["vcpus"]):
            for part in "stack", "trace", "whole":
                self.assertEqual(here[part], there[part], part)
            self.assertEqual(here["registers"]["general"], there["registers"]["general"])
            self.assertTrue(here["trace"])

    def test_pv(self):
        self.same("app1-pv-fp", cmdline="scale=5000")

    def test_pv_without_frame_pointers(self):
        self.same("app1-pv-nofp", cmdline="scale=5000")

    def test_pv_with_several_vcpus(self):
        self.same("vcpus-pv-fp", cmdline="seconds=1000", vcpus=2)

    @unittest.skipUnless(os.environ.get("UNIPROF_LONG"), "UNIPROF_LONG is not set: xl takes minutes for this")
    def test_pvh(self):
        self.same("app1-pvh-fp", timeout=900, cmdline="scale=5000")


if __name__ == "__main__":
    unittest.main()
