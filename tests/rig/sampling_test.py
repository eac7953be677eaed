#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""Sampling of a guest: with a pause only where it takes one, within the bounds that were set, and
weighed as asked for. On one CPU and counting instructions, so that every run is the same."""

import re
import unittest

import chance
from guestcase import GuestCase, truth

BUSY, IDLE, MANY = "app1-pv-fp", "idle-pv-fp", "vcpus-pv-fp"


def number(pattern, text):
    return float(re.search(pattern, text).group(1))


def without_pause(report):
    """Percent of the ticks that needed none."""
    return number(r"none needed for ([\d.]+) %", report)


def paused(report):
    """Percent of the time that the guest stood still."""
    return number(r"ms in all, ([\d.]+) % of the time", report)


class Sampling(GuestCase):
    rig_options = {"icount": True}

    def recorded(self, guest, options):
        said = self.record(guest, options)
        return said, self.report(guest, "--state=all")

    def test_a_vcpu_that_waits_for_a_cpu_is_read_without_a_pause(self):
        for guest in BUSY, "app1-pvh-fp":
            self.create(guest, cmdline="scale=5000")
            _, report = self.recorded(guest, "-F 997 -T 1")
            self.assertEqual(without_pause(report), 100, report)
            self.assertEqual(paused(report), 0, report)
            self.assertGreater(number(r"running ([\d.]+) %", report), 80, report)
            self.no_impossible_edges(guest, self.folded(guest))
            self.dom0(f"xl destroy {guest}")

    def test_samples_that_had_to_wait_for_the_guest_to_yield_are_told(self):
        guest = "app2-pv-fp"
        self.create(guest, cmdline="scale=5000")
        self.addCleanup(self.dom0, "xl sched-credit2 -s -p Pool-0 -r 1000")
        for limit, told in (1000, True), (0, False):
            self.dom0(f"xl sched-credit2 -s -p Pool-0 -r {limit}")
            _, report = self.recorded(guest, "-F 997 -T 1")
            self.assertEqual("had to wait until the guest yielded the CPU that it shares with uniprof" in report, told, report)
        self.dom0("xl sched-credit2 -s -p Pool-0 -r 1000")
        # It never yields: each tick came when the limit was over.
        self.create("noreturn-pv-fp")
        self.dom0("xl destroy app2-pv-fp")
        _, report = self.recorded("noreturn-pv-fp", "-F 997 -T 1")
        self.assertNotIn("had to wait", report)

    def test_always_pause_pauses_always(self):
        self.create(BUSY, cmdline="scale=5000")
        _, report = self.recorded(BUSY, "-F 997 -T 0.5 --always-pause")
        self.assertEqual(without_pause(report), 0, report)
        self.assertGreater(paused(report), 0, report)
        self.no_impossible_edges(BUSY, self.folded(BUSY))

    def test_an_idle_guest_is_never_paused_and_keeps_its_stack(self):
        self.create(IDLE)
        _, report = self.recorded(IDLE, "-F 997 -T 1")
        self.assertGreaterEqual(without_pause(report), 99.5, report)
        stacks = self.folded(IDLE, "--state=all")
        self.assertGreater(sum(stacks.values()), 900)
        self.assertTrue(all(len(stack) > 1 for stack in stacks), stacks)

    def test_max_overhead_keeps_the_paused_share_within_its_bound(self):
        self.create(BUSY, cmdline="scale=5000")
        said, report = self.recorded(BUSY, "-F 2000 -T 3 --always-pause --max-overhead=0.5")
        self.assertLessEqual(paused(report), 0.55, report)
        self.assertIn("were put off", said)

    def test_max_pause_gives_stacks_up_in_turns_and_says_so(self):
        self.create(MANY)
        said, report = self.recorded(MANY, "-F 500 -T 1 --always-pause --max-pause=1us")
        self.assertIn("were given up so as not to hold the guest for longer than 1 us", said)
        self.assertIn("given up for --max-pause", report)
        # No bound is too narrow for one sample of one of them.
        for vcpu in range(4):
            self.assertTrue(self.folded(MANY, f"--vcpu={vcpu}"), f"vCPU {vcpu}")

    def test_max_pause_that_suffices_changes_nothing(self):
        self.create(MANY)
        said, report = self.recorded(MANY, "-F 200 -T 1 --always-pause --max-pause=50ms")
        self.assertNotIn("given up", said)
        self.assertIn("0.0 % cut short", report)

    def test_time_that_others_had_the_cpu_for_is_told_apart(self):
        # Four vCPUs that never rest, and one CPU, of which dom0 takes its part.
        self.create(MANY)
        _, report = self.recorded(MANY, "-F 997 -T 4")
        running = number(r"running ([\d.]+) %", report)
        self.assertAlmostEqual(running, 23.5, delta=2.5, msg=report)
        self.assertAlmostEqual(running + number(r"runnable ([\d.]+) %", report), 100, delta=1, msg=report)

    def test_weighed_by_cpu_time_shares_are_those_that_the_guest_counts(self):
        chance.check_shares(lambda attempt: self.weighed_by_cpu_time(), 0.025)

    def weighed_by_cpu_time(self):
        """({(function,): samples by its weight}, {function: share that the guest counted})"""
        functions = ["function_1", "function_2", "function_3"]
        self.bring(BUSY)
        status, text = self.dom0(f"uniprof run -F 997 -q -o out -- xl create {BUSY}.cfg 'cmdline=\"scale=120\"'", 240)
        self.assertEqual(status, 0, text)
        _, text = self.dom0(f"uniprof report --weight=cpu --sort=total -n 0 out/{BUSY}.uniprof")
        counted = truth(self.console(BUSY))
        seen = {name: number(rf"([\d.]+) % +[-\d.]+ +\d+ +{name}\n", text) for name in functions}
        samples = sum(n for stack, n in self.folded(f"out/{BUSY}").items() if set(functions) & set(stack))
        whole = sum(map(counted.get, functions))
        return ({(name,): samples * share / sum(seen.values()) for name, share in seen.items()},
                {name: counted[name] / whole for name in functions})


if __name__ == "__main__":
    unittest.main(verbosity=2)
