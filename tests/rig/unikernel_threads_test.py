#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""Threads of a guest that keeps them as Mini-OS does: their names, states and stacks, and what they wait for, compared with what they tell inside."""

import json
import re
import unittest

import chance
from guestcase import GuestCase

RATE = 97
SECONDS = 15
# Under emulation a look at a thread takes some milliseconds.
COST = 50
TOLERANCE = 0.03

# What the waiter waits in, in the order in which it tells its times.
WAITS = ("lock_for", "event_for", "sleep_for")
# Functions that each thread is in when it waits.
FUNCTIONS = {"waiter": {*WAITS, "down"}, "holder": {"down", "msleep"}, "maker": {"down", "msleep"}, "worker": {"msleep"}}


class UnikernelThreads(GuestCase):
    def inside(self):
        """ns that each wait has had, as it was told last."""
        return [int(ns) for ns in re.findall(r"^waited (\d+) (\d+) (\d+)\r?\n", self.console(self.guest), re.M)[-1]]

    def rows(self, options):
        """{values of the keys: weight in ns, callees' too}, and all that was told."""
        status, text = self.dom0(f"uniprof report --json --rows 0 {options} {self.guest}.uniprof")
        self.assertEqual(status, 0, text)
        told = json.loads(text)
        keys = re.search(r"--by (\S+)", options)[1].split(",")
        return {tuple(row[name] for name in keys): row["total"]["weight_ns"] for row in told["rows"]}, told

    def start(self, guest):
        self.guest = guest
        self.create(guest, cmdline="seconds=100000")
        status, text = self.dom0(f"i=0; until grep -q '^waited' /var/log/xen/console/guest-{guest}.log; do i=$((i + 1)); [ $i -lt 300 ] || exit 1; sleep 1; done", 300)
        self.assertEqual(status, 0, text)

    def take(self, attempt):
        before = self.inside()
        self.record(self.guest, f"-q --threads --thread-cost {COST} -F {RATE} -T {SECONDS * chance.longer(attempt)} -s {self.guest}.elf", timeout=60 * chance.longer(attempt))
        had = [after - ns for after, ns in zip(self.inside(), before)]
        rows, told = self.rows("--state off-cpu --by thread,function")
        weights = {function: ns for (thread, function), ns in rows.items() if thread.startswith("Mini-OS/waiter ") and function in WAITS}
        whole = max(sum(weights.values()), 1)
        samples = told["stacks"]["selected"] / len(FUNCTIONS)
        return ({function: samples * ns / whole for function, ns in weights.items()},
                {function: ns / max(sum(had), 1) for function, ns in zip(WAITS, had)})

    def check_list(self):
        told = json.loads(self.succeeds(f"uniprof ps --json -s {self.guest}.elf {self.guest}"))
        self.assertEqual(told["system"], "Mini-OS")
        self.assertIsNone(told["trouble"])
        threads = [thread for process in told["processes"] for thread in process["threads"]]
        self.assertEqual(sorted(thread["name"] for thread in threads), sorted(FUNCTIONS))
        self.assertLessEqual({thread["state"] for thread in threads}, {"running", "runnable", "sleeping"})
        self.assertRegex(self.succeeds(f"uniprof ps {self.guest}"), r"(?m)^ +- +\d+  sleeping .* (maker|holder)$")

    def check_stacks(self):
        """Each thread that waits is where it waits, and its stack is whole."""
        seen = {name: set() for name in FUNCTIONS}
        for _ in range(20):
            told = json.loads(self.succeeds(f"uniprof stack --all-threads --full-names --json -s {self.guest}.elf {self.guest}"))
            for thread in told["threads"]:
                functions = [frame["symbol"] for frame in thread.get("trace", [])]
                if not functions:
                    continue
                self.assertEqual(functions[-1], "thread_starter", thread)
                self.assertIn(thread["name"], functions)
                self.assertTrue(FUNCTIONS[thread["name"]] & set(functions), thread)
                seen[thread["name"]] |= FUNCTIONS[thread["name"]] & set(functions)
            if {"waiter", "holder", "maker"} <= {name for name, functions in seen.items() if functions}:
                return
        self.fail(seen)

    def check_threads(self):
        """The vCPU's samples have their threads, whose time that is; each thread has waited but for when it ran."""
        running, told = self.rows("--by thread")
        self.assertEqual(max(running, key=running.get)[0].partition(" ")[0], "Mini-OS/worker")
        waits, told = self.rows("--state off-cpu --by thread")
        elapsed = told["ticks"]["elapsed_ns"]
        for name in ("waiter", "holder", "maker"):
            (had,) = [ns for (thread,), ns in waits.items() if thread.startswith(f"Mini-OS/{name} ")]
            self.assertGreater(had, 0.8 * elapsed, waits)
            self.assertLessEqual(had, 1.05 * elapsed, waits)
        states, _ = self.rows("--by state")
        self.assertGreater(states[("sleeping",)], 0)

    def check(self, guest):
        self.start(guest)
        self.check_list()
        self.check_stacks()
        chance.check_shares(self.take, TOLERANCE)
        self.check_threads()
        self.runs_on(guest)

    def test_waits_pv(self):
        self.check("waits-pv-fp")

    def test_waits_pvh_without_frame_pointers(self):
        self.check("waits-pvh-nofp")


if __name__ == "__main__":
    unittest.main()
