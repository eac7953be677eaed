#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""Guests that are hard to profile: each has an answer that is known."""

import json
import re
import unittest

import chance
from guestcase import CUT_SHORT, GuestCase, shares


class HardCase(GuestCase):
    """Promises for a guest on any platform."""

    def profile(self, guest, options="-F 500 -T 6", **settings):
        self.create(guest, **settings)
        self.record(guest, options)
        stacks = self.folded(guest)
        self.no_impossible_edges(guest, stacks)
        return stacks

    def cut_short(self, guest):
        """Number of stacks that the report calls cut short, and of all."""
        ends = json.loads(self.report(guest, "--json"))["stacks"]["ends"]
        return sum(ends.values()) - ends["whole"], sum(ends.values())

    def each_vcpu_shows_its_own_worker(self, guest):
        self.create(guest, cmdline="seconds=1000")
        self.at_work(guest)
        self.record_enough(guest, "-F 500", 1, 600, "--state=all")
        for vcpu in range(4):
            # Not all are on the one CPU when it is sampled, but all wait in their worker.
            stacks = self.folded(guest, f"--state=all --vcpu={vcpu}")
            self.no_impossible_edges(guest, stacks)
            self.assertGreater(sum(stacks.values()), 50)
            for worker in range(4):
                share = shares(stacks, [f"worker_{worker}"])[f"worker_{worker}"]
                self.assertGreaterEqual(share, 0.99) if worker == vcpu else self.assertEqual(share, 0)
        self.dom0(f"xl destroy {guest}")

    def a_deep_recursion_is_followed_to_its_end(self, guest):
        self.create(guest, cmdline="depth=2000 seconds=1000")
        self.at_work(guest)
        stacks = self.record_enough(guest, "-F 200", 1, 100)
        self.no_impossible_edges(guest, stacks)
        deep = {stack: n for stack, n in stacks.items() if stack.count("recurse") == 2000}
        self.assertGreater(sum(deep.values()) / sum(stacks.values()), 0.9)
        self.assertGreater(shares(stacks, ["bottom"])["bottom"], 0.9)
        self.assertEqual(self.cut_short(guest)[0], 0)

    def being_idle_is_not_work(self, guest):
        self.create(guest)
        status, text = self.dom0(f"i=0; until xl vcpu-list {guest} | grep -q -e -b-; do i=$((i + 1)); [ $i -lt 200 ] || exit 1; usleep 100000; done")
        self.assertEqual(status, 0, f"{guest} does not come to rest: {text}")
        self.record_enough(guest, "-F 500", 1, 200, "--state=all")
        blocked = re.search(r"blocked \(idle\) ([\d.]+) %", self.report(guest, "--state=all"))
        self.assertGreater(float(blocked.group(1)), 95)
        on_cpu = sum(self.folded(guest).values())
        everything = sum(self.folded(guest, "--state=all").values())
        self.assertLess(on_cpu, everything * 0.05)
        self.dom0(f"xl destroy {guest}")


class HardGuests(HardCase):
    def test_stacks_in_pages_of_every_size_are_whole(self):
        guest = "large-pages-pvh-fp"
        self.create(guest, cmdline="seconds=1000")
        self.at_work(guest)
        self.check_shares(guest, dict.fromkeys(["spin_on_4k", "spin_on_2m", "spin_on_1g"], 1 / 3), 0.06, "-F 1000", 1)
        self.no_impossible_edges(guest, self.folded(guest))
        cut, stacks = self.cut_short(guest)
        self.assertLessEqual(cut, chance.most(CUT_SHORT * stacks))

    def test_each_vcpu_shows_its_own_worker(self):
        for platform in "pv", "pvh":
            self.each_vcpu_shows_its_own_worker(f"vcpus-{platform}-fp")

    def test_a_deep_recursion_is_followed_to_its_end(self):
        self.a_deep_recursion_is_followed_to_its_end("recursion-pv-fp")

    def test_a_recursion_beyond_the_bounds_is_cut_and_said_to_be(self):
        guest = "recursion-pv-fp"
        self.create(guest, cmdline="depth=2000 seconds=1000")
        self.at_work(guest)
        stacks = self.record_enough(guest, "-F 200 --max-frames=100", 1, 50)
        self.assertTrue(all(len(stack) <= 100 for stack in stacks))
        report = self.report(guest)
        self.assertIn("WARNING", report.splitlines()[0])
        self.assertIn("cut short", report.splitlines()[0])
        cut, stacks = self.cut_short(guest)
        self.assertGreater(cut, 0.9 * stacks)

    def test_an_idle_guest_is_not_work(self):
        for platform in "pv", "pvh":
            self.being_idle_is_not_work(f"idle-{platform}-fp")

    def test_a_chain_that_is_a_loop_ends(self):
        for platform in "pv", "pvh":
            guest = f"fp-loop-{platform}-fp"
            stacks = self.profile(guest, "-F 1000 -T 1", cmdline="seconds=1000")
            self.assertLess(max(len(stack) for stack in stacks), 20)
            self.check_shares(guest, {"spin_in_self_loop": 0.5, "spin_in_two_cycle": 0.5}, 0.06, "-F 1000", 1, stacks)
            self.dom0(f"xl destroy {guest}")

    def test_a_guest_that_moves_its_stack_and_tables_is_followed(self):
        for platform in "pv", "pvh":
            guest = f"mover-{platform}-fp"
            self.create(guest)
            self.no_impossible_edges(guest, self.record_enough(guest, "-F 1000", 1, 300))
            self.dom0(f"xl destroy {guest}")


if __name__ == "__main__":
    unittest.main()
