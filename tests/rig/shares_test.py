#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""Profiles of programs with known answers, taken on a real Xen from beginning to end."""

import unittest

import chance
from guestcase import GuestCase, shares, truth

APP1 = ["function_1", "function_2", "function_3"]
APP2 = APP1 + ["function_4", "function_5"]

# Between profiles and what the guest counted itself.
TOLERANCE = 0.03


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


class Shares(SharesCase):
    def test_app1_pv(self):
        self.profile("app1-pv-fp", APP1, 60)

    def test_app1_pvh(self):
        self.profile("app1-pvh-fp", APP1, 12)

    def test_app2_pv(self):
        self.profile("app2-pv-fp", APP2, 12)

    def test_app2_pvh(self):
        self.profile("app2-pvh-fp", APP2, 3)

    def test_app1_pv_without_frame_pointers(self):
        self.profile("app1-pv-nofp", APP1, 60)

    def test_app1_pvh_without_frame_pointers(self):
        self.profile("app1-pvh-nofp", APP1, 12)

    def test_app2_pv_without_frame_pointers(self):
        self.profile("app2-pv-nofp", APP2, 12)

    def test_app2_pvh_without_frame_pointers(self):
        self.profile("app2-pvh-nofp", APP2, 3)


if __name__ == "__main__":
    unittest.main()
