#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""Profilers that die in whatever way while they stop a guest again and again: half of them at random
moments, half while the guest is stopped. The moments are others each time: what is printed has the seed of the random numbers.

The guest has four busy vCPUs, and dom0's CPU is busy, too. After each death the guest has to run, the
guard to end, and what was recorded to be readable (tests/rig/dom0/victim.h). UNIPROF_KILLS says how
many deaths each test is to see; 1000 take some twenty minutes.
"""

import os
import random
import re
import unittest

import chance
from guestcase import GuestCase

DEATHS = int(os.environ.get("UNIPROF_KILLS", "2"))
GUESTS_OF_FOUR_VCPUS = "vcpus-pv-fp", "vcpus-pvh-fp"
SIGNALS = "SEGV", "TERM", "ABRT", "QUIT", "BUS", "INT"

# An emulated dom0 runs slowly while its machine does other things: this share of deaths may be late for that.
LATE = 0.1


def seed():
    return random.randrange(1 << 31)


class Kills(GuestCase):
    # With one CPU a guest never runs while dom0 looks, so that nothing ever has to be paused.
    rig_options = {"cpus": 2, "parallel": True}

    def deaths(self, guest, program, arguments, paused=0):
        self.bring_program(program)
        self.bring_program("busy")
        command = f"./{program} $(xl domid {guest}) {arguments}"
        self.create(guest, cmdline="seconds=100000 scale=100000", cpus="1")
        status, text = self.dom0(f"./busy & b=$!; {command}; s=$?; kill $b; exit $s", 300 + 30 * DEATHS)
        self.assertEqual(status, 0, f"{command}: {text}")
        print(f"\n{command}: {text.strip()}", end=" ", flush=True)
        rounds, late = (int(re.search(rf"(\d+) {word}", text)[1]) for word in ("rounds", "later"))
        self.assertGreaterEqual(int(re.search(r"(\d+) found paused", text)[1]), paused, text)
        self.assertLessEqual(late, chance.most(LATE * rounds), text)
        self.runs_on(guest)
        self.no_guard_is_left()

    def test_killed_while_a_guest_is_sampled(self):
        self.deaths(random.choice(GUESTS_OF_FOUR_VCPUS), "kills", f"{DEATHS} {seed()} KILL", DEATHS // 2)

    def test_ended_by_other_signals_and_without_its_guard(self):
        ways = ["GUARD", *random.sample(SIGNALS, len(SIGNALS))]
        self.deaths(random.choice(GUESTS_OF_FOUR_VCPUS), "kills", f"{DEATHS + 1} {seed()} {' '.join(ways)}", (DEATHS + 1) // 3)

    def test_a_stopped_profiler_lets_the_guest_go(self):
        for guest in GUESTS_OF_FOUR_VCPUS:
            self.create(guest, cmdline="seconds=100000 scale=100000", cpus="1")
            self.assertIn("paused 0", self.within_a_pause(guest, "true", (0, 0)))
            self.runs_on(guest)
            self.within_a_pause(guest, f"xl destroy {guest}", (0, 5))

    def test_killed_between_two_instructions_of_the_sampling_loop(self):
        # Not a guest with more vCPUs: a turn would be longer.
        self.deaths("app1-pv-fp", "steps", f"{max(1, DEATHS // 6)} {seed()}")


if __name__ == "__main__":
    unittest.main()
