# SPDX-License-Identifier: BSD-3-Clause
"""Shared by the tests of a Xen with a policy (XSM/Flask): the modules that docs/flask.md shows, and policies that lack permissions."""

import re

from guestcase import ROOT, GuestCase
from xenrig import built

DENIED = 4
PV, PVH = "app1-pv-fp", "app1-pvh-fp"
WATCHED, PROFILER = "watched_t", "profiler_t"

# Permissions that uniprof needs, by the names that it gives them; for a PVH guest, the additional ones.
NEEDED = {PV: {"getdomaininfo": "domain { getdomaininfo }", "getvcpuinfo": "domain { getvcpuinfo }", "pause": "domain { pause }",
               "unpause": "domain { unpause }", "map_read": "mmu { map_read }",
               "getvcpucontext": "domain { getvcpucontext }", "getaddrsize": "domain { getaddrsize }"},
          PVH: {"gethvmc": "hvm { gethvmc }", "unpause": "domain { unpause }"}}


def module(name):
    """The text of a policy's module as docs/flask.md has it."""
    text = (ROOT / "docs" / "flask.md").read_text(encoding="utf-8")
    return re.search(rf"modules/{name}\.te <<'END'\n(.*?)^END$", text, re.M | re.S)[1]


def label(kind):
    return f"system_u:system_r:{kind}"


def without(permissions, subject="dom0_t"):
    """A change of a policy's rules: the subject lacks permissions on the guests."""
    def change(rules):
        def shorter(rule):
            words = re.sub("^#line.*", "", rule[2], flags=re.M).strip("{} \n\t").split()
            left = [word for word in words if word not in permissions]
            return f"allow {subject} {WATCHED}:{rule[1]} {{ {' '.join(left)} }};" if left else ""
        return re.sub(rf"allow {subject} {WATCHED}\s*:\s*(\w+)\s*({{[^}}]*}}|\w+)\s*;", shorter, rules)
    return change


class FlaskCase(GuestCase):
    rig_options = {"xen": "built", "flask": "enforcing"}
    modules = ("watched",)

    @classmethod
    def make_policies(cls, changes):
        """Policies in dom0, by names: the modules' rules, changed by a function."""
        text = "".join(module(name) for name in cls.modules)
        for name, policy in built.policies(text, changes).items():
            cls.rig.write(f"policy-{name}", policy)

    def setUp(self):
        self.load("whole")

    def tearDown(self):
        self.load("whole")
        super().tearDown()

    def load(self, name):
        status, text = self.dom0(f"xl loadpolicy policy-{name}")
        self.assertEqual(status, 0, text)

    def start(self, guest):
        self.create(guest, cmdline="scale=5000", seclabel=label(WATCHED))
