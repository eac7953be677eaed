#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""A Xen whose policy (XSM/Flask) does not grant everything: what is missing is named, and the guest runs on.

Guests have a label of their own, on which dom0 may do all that it needs; policies that lack one
permission of it are loaded before uniprof starts, and while it records.
"""

import re
import unittest

from flaskcase import DENIED, NEEDED, PV, FlaskCase, without


class Flask(FlaskCase):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.make_policies({"whole": lambda rules: rules,
                           **{name: without([name]) for needed in NEEDED.values() for name in needed}})

    def runs_on(self, guest):
        """An unpause that was refused has another try within a second."""
        self.load("whole")
        self.no_guard_is_left()
        super().runs_on(guest)

    def refusals(self, guest, permissions, record):
        """Runs a command while one permission after the other is missing: {permission: (status, what was said)}."""
        status, text = self.dom0(
            f"id=$(xl domid {guest}); for p in {' '.join(permissions)}; do rm -f x.uniprof; {record}; s=$?; echo \"refusal $p $s $(cat said)\";"
            f" [ ! -s x.uniprof ] || uniprof report x.uniprof >/dev/null || echo unreadable; xl loadpolicy policy-whole >/dev/null; done; xl list {guest}", 60 * len(permissions))
        self.assertEqual(status, 0, text)
        self.assertNotIn("unreadable", text)
        return {name: (int(status), said) for name, status, said in re.findall(r"^refusal (\w+) (\d+) (.*)$", text, re.M)}

    def test_what_is_missing_is_named_before_the_first_pause(self):
        for guest, needed in NEEDED.items():
            self.start(guest)
            domid = self.dom0(f"xl domid {guest}")[1].strip()
            found = self.refusals(guest, needed, "xl loadpolicy policy-$p >/dev/null; uniprof record --always-pause -q -T 2 -o x.uniprof $id 2>said")
            self.assertEqual(found, {name: (DENIED, f"uniprof: Xen's policy (Flask) does not let uniprof's domain profile domain {domid}: "
                                                    f"it does not grant \"{text}\"; docs/flask.md tells how to") for name, text in needed.items()})
            self.runs_on(guest)
            self.dom0(f"xl destroy {guest}")

    def test_what_is_withdrawn_ends_the_recording_with_the_reason(self):
        for guest, needed in NEEDED.items():
            self.start(guest)
            # Asked for once, when the guest is opened; and frames that are mapped stay so.
            withdrawn = {name: text for name, text in needed.items() if name not in ("getaddrsize", "map_read")}
            found = self.refusals(
                guest, withdrawn, f"uniprof record --always-pause -q -F 200 -o x.uniprof {guest} 2>said & pid=$!; i=0;"
                " until [ $(stat -c %s x.uniprof 2>/dev/null || echo 0) -ge 1000 ] || [ $i = 300 ]; do usleep 100000; i=$((i + 1)); done;"
                " xl loadpolicy policy-$p >/dev/null; wait $pid")
            self.assertEqual(found.keys(), withdrawn.keys())
            for name, text in withdrawn.items():
                status, said = found[name]
                self.assertEqual(status, DENIED, (name, said))
                self.assertIn(f"`xl unpause {guest}` in dom0 frees the domain" if name == "unpause" else f"does not grant \"{text}\"", said)
            self.runs_on(guest)
            self.dom0(f"xl destroy {guest}")

    def test_list_says_what_is_missing(self):
        self.start(PV)
        for permission in "getdomaininfo", "getvcpuinfo":
            self.load(permission)
            status, text = self.dom0("uniprof list")
            self.assertEqual(status, 0, text)
            self.assertRegex(text, rf'domain \d+: it does not grant "domain {{ {permission} }}"')
            self.assertIn("the domain that uniprof runs in", text)

    def test_a_pause_of_somebody_else_outlives_the_test_of_rights(self):
        self.start(PV)
        self.dom0(f"xl pause {PV}; uniprof record -q -T 1 -o x.uniprof {PV}; uniprof stack {PV}")
        self.assertIn("--p---", self.dom0(f"xl list {PV}")[1])
        self.dom0(f"xl unpause {PV}")
        self.runs_on(PV)
        self.record(PV, "--always-pause -F 200 -T 2")
        self.no_impossible_edges(PV, self.folded(PV))


if __name__ == "__main__":
    unittest.main()
