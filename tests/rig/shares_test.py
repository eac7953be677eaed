#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""Profiles of programs with known answers, taken on a real Xen from beginning to end."""

import json
import re
import unittest

import chance
from guestcase import GuestCase, shares, truth

APP1 = ["function_1", "function_2", "function_3"]
APP2 = APP1 + ["function_4", "function_5"]

# Between profiles and what the guest counted itself.
TOLERANCE = 0.03

# Programs in dom0 that need a CPU, all of the time.
HOGS = 4

# Between views of one recording, of 1; folded stacks tell whole samples besides, and may be off by one.
VIEWS = 0.001


def of_outermost(found, functions):
    """Shares of the time in the outermost functions: the guest's own counts are between these."""
    whole = sum(found[name] for name in (functions if functions == APP1 else functions[:2]))
    return {name: share / whole for name, share in found.items()}


class SharesCase(GuestCase):
    # Counting instructions, so that what else this machine does bends neither the guest's own count
    # nor the samples.
    rig_options = {"icount": True}

    def profile(self, guest, functions, scale, options=""):
        """Asserts that profiles of a guest, each from its start to its end, have the shares that it counted."""
        chance.check_shares(lambda attempt: self.whole_life(guest, functions, scale, options), TOLERANCE)

    def whole_life(self, guest, functions, scale, options):
        """({stack: samples} of its work, {function: share} that it counted)"""
        self.bring(guest)
        status, text = self.dom0(f"uniprof run -F 2000 -q {options} -o out -- xl create {guest}.cfg 'cmdline=\"scale={scale}\"'", 240)
        self.assertEqual(status, 0, text)
        stacks = self.folded(f"out/{guest}")
        counted = of_outermost(truth(self.console(guest)), functions)
        # The guest's count begins with its work and ends before it prints what it counted.
        outermost = functions if functions == APP1 else functions[:2]
        work = {stack: n for stack, n in stacks.items() if "print_truth" not in stack and any(name in stack for name in outermost)}
        seen = of_outermost(shares(work, functions), functions)
        print(f"\n{guest}: {sum(stacks.values())} samples;",
              ", ".join(f"{name} {seen[name]:.3f} ({counted[name]:.3f})" for name in functions), end=" ", flush=True)
        self.no_impossible_edges(guest, stacks)
        # Their caller takes its time between these, too.
        return work, {name: counted[name] for name in functions}


class BusyHost(SharesCase):
    """dom0 and the guest share the CPU, half each."""

    known = {"function_3": 0.4, "function_4": 0.4, "function_5": 0.2}

    def setUp(self):
        self.dom0("xl sched-credit2 -d 0 -w 256; xl sched-credit2 -s -p Pool-0 -r 0; "
                  + f"(while :; do :; done) >/dev/null 2>&1 & echo $! >>hogs; " * HOGS)
        self.addCleanup(self.dom0, "kill $(cat hogs); rm hogs; xl sched-credit2 -d 0 -w 65535; xl sched-credit2 -s -p Pool-0 -r 1000")

    def shares_by(self, view):
        if view == "report":
            status, text = self.dom0("uniprof report --json --no-inline app2-pv-fp.uniprof")
            self.assertEqual(status, 0, text)
            report = json.loads(text)
            self.draws, self.samples = report["stacks"]["draws"], report["stacks"]["selected"]
            rows = {row["function"]: row["total"] for row in report["rows"]}
            print("\nintervals:", *(f"{name} {rows[name]['low']:.3f} to {rows[name]['high']:.3f}" for name in self.known), end=" ", flush=True)
            return {name: rows[name]["share"] for name in self.known}
        if view == "folded":
            return shares(self.folded("app2-pv-fp"), self.known)
        status, text = self.dom0("uniprof flamegraph --no-inline -o out.svg app2-pv-fp.uniprof 2>/dev/null && cat out.svg")
        self.assertEqual(status, 0, text)
        boxes = re.findall(r"<title>(\w+) \([\d,]+ samples?, ([\d.]+) %", text)
        return {name: sum(float(share) for of, share in boxes if of == name) / 100 for name in self.known}

    def test_all_views_tell_the_same_shares_and_these_are_right(self):
        self.create("app2-pv-fp", cmdline="scale=100000")
        self.at_work("app2-pv-fp")
        self.record("app2-pv-fp", "-F 997 -T 4")
        found = {view: self.shares_by(view) for view in ("report", "folded", "picture")}
        work = sum(found["report"].values())
        for name, truth in self.known.items():
            for view in found:
                self.assertAlmostEqual(found[view][name], found["report"][name], delta=VIEWS + (1 / self.samples if view == "folded" else 0), msg=f"{view}: {found}")
            # Their callers take a part of the time, too.
            self.assertAlmostEqual(found["report"][name], truth * work, delta=chance.margin(truth, self.draws), msg=f"{found}")


class Shares(SharesCase):
    """Of two programs, kinds of guests and ways to compile, every two together."""

    def test_app1_pv(self):
        self.profile("app1-pv-fp", APP1, 28)

    def test_app2_pvh(self):
        self.profile("app2-pvh-fp", APP2, 2)

    def test_app1_pvh_without_frame_pointers(self):
        self.profile("app1-pvh-nofp", APP1, 6)

    def test_app2_pv_without_frame_pointers(self):
        self.profile("app2-pv-nofp", APP2, 6)


if __name__ == "__main__":
    unittest.main()
