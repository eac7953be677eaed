#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""One uniprof on every Xen: what it lists, records and reports on each release that the rig can boot."""

import re
import unittest

import chance
from guestcase import GuestCase, shares, truth

DENIED, ENDED = 4, 5
APP1 = ["function_1", "function_2", "function_3"]
SCALE = {"pv": 30, "pvh": 8}

# Between profiles and what the guest counted itself.
TOLERANCE = 0.05


class AnyXen:
    """Promises on each release; the rig counts instructions, so that shares do not depend on this machine."""

    def test_guests_are_listed_recorded_and_reported(self):
        for kind in "pv", "pvh":
            guest = f"app1-{kind}-fp"
            # Not before it has been listed does it begin with its work.
            self.create(guest, paused=True, cmdline=f"scale={SCALE[kind]}")
            status, text = self.dom0("uniprof list")
            self.assertEqual(status, 0, text)
            self.assertRegex(text, rf"xen +\d+ +{guest} +{kind} +1 +hypercalls +15 us  uniprof record xen:{guest}")
            status, text = self.dom0(f"uniprof stack {guest}")
            self.assertEqual(status, 0, text)
            self.assertIn("state    paused; not stopped for this dump", text)
            self.assertRegex(text, r"\n[re]ip +[0-9a-f]{8,16}")
            first = self.recorded_to_its_end(guest)
            report = self.report(guest)
            self.assertRegex(report, rf"{kind}, 1 vCPU, on Xen {re.escape(self.rig_options['xen'])},")
            self.assertIn("function_3", report)
            self.has_right_shares(guest, kind, first)

    def recorded_to_its_end(self, guest):
        """Starts a guest that is there; ({stack: samples} of its work, {function: share} that it counted)."""
        status, text = self.dom0(f"rm -f {guest}.uniprof; uniprof record -F 1000 -q -o {guest}.uniprof {guest} & i=0;"
                                 f" until [ -e {guest}.uniprof ] || [ $i = 300 ]; do usleep 100000; i=$((i + 1)); done; sleep 1; xl unpause {guest}; wait $!", 240)
        self.assertEqual(status, ENDED, text)
        stacks = self.folded(guest)
        self.no_impossible_edges(guest, stacks)
        counted = truth(self.console(guest))
        self.assertTrue(counted, f"{guest} did not come to its end")
        self.dom0(f"xl destroy {guest} 2>/dev/null")
        work = {stack: n for stack, n in stacks.items() if "main" in stack and "print_truth" not in stack}
        seen = shares(work, APP1)
        print(f"\n{guest} on Xen {self.rig_options['xen']}: {sum(stacks.values())} samples;",
              ", ".join(f"{name} {seen[name]:.3f} ({counted.get(name, 0):.3f})" for name in APP1), end=" ", flush=True)
        return work, {name: counted[name] for name in APP1}

    def has_right_shares(self, guest, kind, first):
        def take(attempt):
            if attempt == 0:
                return first
            self.create(guest, paused=True, cmdline=f"scale={SCALE[kind]}")
            return self.recorded_to_its_end(guest)

        chance.check_shares(take, TOLERANCE)

    def test_a_hypervisor_of_another_interface_is_refused_with_both_versions(self):
        # Every call that tells a version is answered as by a hypervisor that has another one.
        self.bring_program("xen_faults.so")
        for verb in "list", "record 1", "out.raw 1":
            status, text = self.dom0(f"LD_PRELOAD=./xen_faults.so XEN_FAULT='version 1 1000000' uniprof {verb} 2>&1")
            self.assertEqual(status, DENIED, text)
            self.assertEqual(len(text.splitlines()), 1, text)
            self.assertRegex(text, rf"Xen {re.escape(self.rig_options['xen'])}\b.* 0x[0-9a-f]+ to 0x[0-9a-f]+ .*uniprof \d")


class Xen414(AnyXen, GuestCase):
    rig_options = {"xen": "4.14", "icount": True}


class Xen417(AnyXen, GuestCase):
    rig_options = {"xen": "4.17", "icount": True}


class Xen420(AnyXen, GuestCase):
    rig_options = {"xen": "4.20", "icount": True}


if __name__ == "__main__":
    unittest.main()
