#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""Domains that sample themselves: found and switched on from dom0, read without a pause, off again however the profiler ends."""

import json
import re
import subprocess
import unittest

import chance
from guestcase import GUESTS, GuestCase, shares

FUNCTIONS = ["function_1", "function_2", "function_3", "function_4", "function_5"]
ENDED, NO_GUEST = 5, 3
TOLERANCE = 0.1
# Of a ring: the words that count ticks and samples (inside/uniprof_inside.h).
DYNAMIC = 56
SAMPLE_WORK = GUESTS.parent / "tests/bench/sampling/sample_work"


class Inside(GuestCase):
    rig_options = {"icount": True}

    def start(self, guest):
        self.create(guest, cmdline="scale=100000")
        self.at_work(guest)

    def compare(self, guest):
        """Shares from inside beside those from outside, of one guest that runs on."""
        self.start(guest)

        def take(attempt):
            seconds = 4 * chance.longer(attempt)
            self.record(guest, f"-F 100 -T {seconds}")
            outside = self.folded(guest)
            self.record(guest, f"--inside -T {seconds}")
            inside = self.folded(guest)
            self.no_impossible_edges(guest, inside)
            return inside, shares(outside, FUNCTIONS)

        chance.check_shares(take, TOLERANCE)
        head = json.loads(self.succeeds(f"uniprof report --json {guest}.uniprof"))
        self.assertEqual(head["paused"]["total_ns"], 0)
        self.assertEqual(head["stacks"]["truncated_share"], 0)
        self.runs_on(guest)

    def test_a_pv_guest(self):
        self.compare("inside-pv-nofp")

    def test_a_pvh_guest(self):
        self.compare("inside-pvh-fp")

    def samples_a_second(self, guest):
        """Of the ring, by what it counts."""
        symbols = subprocess.run(["nm", GUESTS / f"{guest}.elf"], check=True, stdout=subprocess.PIPE, text=True).stdout
        at = int(re.search(r"^([0-9a-f]+) . memory$", symbols, re.MULTILINE)[1], 16) + DYNAMIC + 4
        return json.loads(self.succeeds(f"./sample_work xen:{guest} {at:#x} 8 1"))["work"] & 0xffffffff

    @unittest.skipUnless(SAMPLE_WORK.exists(), "sample_work was not built: no libxenctrl")
    def test_when_the_profiler_is_killed_it_ends_by_itself(self):
        guest = "inside-pv-fp"
        self.rig.put(SAMPLE_WORK)
        self.start(guest)
        self.dom0(f"uniprof record -q --inside -T 1000 -o killed.uniprof {guest} >said 2>&1 & echo $! >pid")
        self.until(lambda on: on > 50, lambda _: self.samples_a_second(guest), 1)
        self.dom0("kill -9 $(cat pid)")
        self.until(lambda on: on == 0, lambda _: self.samples_a_second(guest), 1)
        self.assertEqual(self.samples_a_second(guest), 0)
        self.runs_on(guest)

    def test_its_end_ends_the_recording(self):
        guest = "inside-pv-fp"
        self.start(guest)
        status, text = self.dom0(f"uniprof record --inside -T 1000 -o ended.uniprof {guest} >said 2>&1 & pid=$!;"
                                 f" sleep 3; xl destroy {guest}; wait $pid; echo status $?; cat said", 120)
        self.assertIn(f"status {ENDED}", text)
        self.assertIn("the guest is gone", text)

    def test_a_guest_without_a_sampler(self):
        self.busy("app1-pv-fp")
        self.assertIn("there is no sampler in the guest", self.record("app1-pv-fp", "--inside -T 1", NO_GUEST))
        self.runs_on("app1-pv-fp")


if __name__ == "__main__":
    unittest.main()
