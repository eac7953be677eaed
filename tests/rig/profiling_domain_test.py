#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""A Linux domU that a policy (XSM/Flask) lets look into other domains: what it sees there is right, and it can do nothing else.

Policy and configuration are those of docs/flask.md. One such domain serves all tests.
"""

import base64
import hashlib
import os
import re
import unittest

import chance
from flaskcase import DENIED, NEEDED, PROFILER, PV, PVH, WATCHED, FlaskCase, label, without
from guestcase import GUESTS, PROGRAMS, parse_folded, shares
from linuxdomain import PRIVCMD, LinuxDomain

NAME = "profiler"
KNOWN = {"function_1": 0.1, "function_2": 0.3, "function_3": 0.6}

# Between shares that both domains see, each with the error of its own samples.
TOLERANCE = 0.08

# Bytes of a recording that is brought out over the console.
LARGEST = 1 << 18

# Permissions by which each kind of guest is seen, in the order in which they are asked for; those after the first three may meet a pause.
ASKED = {PV: ["getdomaininfo", "getvcpuinfo", "getaddrsize", "getvcpucontext", "map_read", "unpause", "pause"],
         PVH: ["getdomaininfo", "getvcpuinfo", "gethvmc", "map_read", "unpause", "pause"]}
TEXT = {**NEEDED[PV], **NEEDED[PVH]}

# Asked for when the guest is opened; and frames that are mapped stay so.
ASKED_ONCE = "getaddrsize", "map_read"

# Calls to Xen, two thirds of them before the first sample; all of them with UNIPROF_EVERY_CALL=1, which takes some ten minutes.
CALLS = 45
STRIDE = 1 if os.environ.get("UNIPROF_EVERY_CALL") else 6

# The tests' own programs in the domain.
PROGRAMS_THERE = "forbidden", "switch", "xen_faults.so"

# Records the domain $1 while a set of the permissions that follow is missing: those of the numbers from $2 to $3, whose bits are the permissions.
EACH_SET = r"""
id=$1; set_of=$2; last=$3; shift 3
while [ $set_of -le $last ]; do
    bit=0; turned=
    for name; do turned="$turned may_$name=$((~set_of >> bit & 1))"; bit=$((bit + 1)); done
    switch $turned || exit
    said=$(uniprof record --always-pause -q -T 0.1 -o x.uniprof xen:$id 2>&1)
    echo "$set_of $? $said"
    set_of=$((set_of + 1))
done
"""

# Records the domain $1 for $2 seconds, the permission $3 being withdrawn before a call to Xen: the first one, and each that is $5 later, up to that of number $4.
EACH_CALL = r"""
call=1
while [ $call -le $4 ]; do
    said=$(LD_PRELOAD=/job/xen_faults.so XEN_SWITCH=may_$3 XEN_FAULT="withdraw $call 1" uniprof record --always-pause -q -F 200 -T $2 -o x.uniprof xen:$1 2>&1)
    echo "$call $? $(echo $said)"
    switch may_$3=1 || exit
    i=0; while pidof unpause-guard >/dev/null; do i=$((i + 1)); [ $i -lt 200 ] || exit 1; usleep 50000; done
    call=$((call + $5))
done
"""

# errno
OK, REFUSED = 0, (1, 13)


def for_pvh(rules):
    """A change of a policy's rules: dom0 may create a PVH domain that profiles, which may write, too."""
    return rules.replace(f"allow {PROFILER} ", f"allow dom0_t {PROFILER}:hvm gethvmc;\nallow {PROFILER} {WATCHED}:mmu map_write;\nallow {PROFILER} ", 1)


def switched(rules):
    """A change of a policy's rules: the profiler's permissions have switches, which it may turn. Xen tells of each pause that it
    grants, and of nothing that it denies."""
    allowed = re.findall(rf"allow {PROFILER} {WATCHED}:(\w+) {{([^}}]*)}};", rules) + re.findall(rf"allow {PROFILER} {WATCHED}:(\w+) (\w+);", rules)
    rules = without(TEXT, PROFILER)(rules)
    more = f"allow {PROFILER} security_t:security setbool;\nauditallow {PROFILER} {WATCHED}:domain {{ pause }};\n"
    for kind, names in allowed:
        for name in names.split():
            more += (f"dontaudit {PROFILER} {WATCHED}:{kind} {{ {name} }};\n"
                     f"bool may_{name} true;\nif (may_{name}) {{ allow {PROFILER} {WATCHED}:{kind} {{ {name} }}; }}\n")
    return rules.replace(f"allow {PROFILER} ", f"{more}allow {PROFILER} ", 1)


class ProfilingDomain(FlaskCase):
    modules = ("watched", "profiler")
    lasting = NAME

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.make_policies({"whole": lambda rules: rules, "pvh": for_pvh, "switched": switched})
        for program in PROGRAMS_THERE:
            if not (PROGRAMS / program).exists():
                raise unittest.SkipTest(f"{program} was not built: it needs the libraries of libxen-dev")
            cls.rig.put(PROGRAMS / program)
        cls.bring_linux()
        for guest in (PV, PVH):
            cls.rig.put(GUESTS / f"{guest}.elf", GUESTS / f"{guest}.cfg")
            cls.there.add(guest)
        cls.rig.run("xl loadpolicy policy-whole", check=True)
        cls.domain = LinuxDomain(cls.rig, NAME, files=("uniprof", *PROGRAMS_THERE, f"{PV}.elf", f"{PVH}.elf"), seclabel=label(PROFILER))

    def watch(self, guest):
        """A guest that may be looked into, at work; its id."""
        self.busy(guest, seclabel=label(WATCHED))
        self.at_work(guest)
        return int(self.succeeds(f"xl domid {guest}"))

    def inside(self, commands, seconds=60, expect=0):
        """The output of commands in the domain."""
        status, text = self.domain.run(commands, seconds)
        self.assertEqual(status, expect, text)
        return text

    def brought(self, name):
        """A file of the domain's."""
        text = self.inside(f"[ $(stat -c %s {name}) -le {LARGEST} ] && base64 {name} && sha256sum {name}")
        *lines, digest = text.splitlines()
        data = base64.b64decode("".join(lines))
        self.assertEqual(hashlib.sha256(data).hexdigest(), digest.split()[0])
        return data

    def recorded(self, guest, domid, options, seconds):
        """Stacks of a guest as this domain and dom0 see them, one after the other."""
        self.inside(f"uniprof record -q {options} -s {guest}.elf -T {seconds} -o x.uniprof xen:{domid}", 60 + seconds)
        seen = parse_folded(self.inside("uniprof export --format=folded --no-inline x.uniprof 2>/dev/null"))
        self.no_impossible_edges(guest, seen)
        self.record(guest, f"-q {options} -T {seconds}")
        known = self.folded(guest)
        print(f"\n{guest}: {sum(seen.values())} samples, {sum(known.values())} of dom0's;",
              ", ".join(f"{name} {share:.3f} ({shares(known, KNOWN)[name]:.3f})" for name, share in shares(seen, KNOWN).items()), end=" ", flush=True)
        return seen, shares(known, KNOWN)

    def sees(self, guest, options):
        domid = self.watch(guest)
        kind = "pv" if guest == PV else "hvm"
        # No other domain than dom0 has xl's record of its type.
        self.assertRegex(self.inside("uniprof list"), rf"(?m)^xen +{domid} +({guest} +)?{kind} +1 +hypercalls +15 us  uniprof record xen:({domid}|{guest})$")
        chance.check_shares(lambda attempt: self.recorded(guest, domid, options, 3 * chance.longer(attempt)), TOLERANCE)
        self.is_the_same_in_dom0(guest)
        text = self.inside(f"uniprof stack -s {guest}.elf {domid}")
        self.assertRegex(text, r"\n[re]ip +[0-9a-f]{8,16}")
        self.assertRegex(text, r"\bmain\b")
        text = self.inside(f"uniprof top -b -n 2 -d 1 -F 200 -s {guest}.elf {domid}")
        self.assertEqual(text.count("uniprof top  xen:"), 2, text)
        self.assertRegex(text, r"\d  function_3")
        self.runs_on(guest)

    def is_the_same_in_dom0(self, guest):
        """The last recording, read in dom0 with the guest's file."""
        there = self.inside("uniprof export --format=folded x.uniprof 2>/dev/null")
        self.rig.write("x.uniprof", self.brought("x.uniprof"))
        self.assertEqual(self.succeeds("uniprof export --format=folded x.uniprof 2>/dev/null"), there)

    def test_pv_is_seen_as_from_dom0(self):
        self.sees(PV, "-F 400 --always-pause")

    def test_pvh_is_seen_as_from_dom0(self):
        self.sees(PVH, "-F 400")

    def refusal(self, domid, permission):
        return (f"uniprof: Xen's policy (Flask) does not let uniprof's domain profile domain {domid}: it does not grant \"{TEXT[permission]}\";"
                " docs/flask.md tells how to")

    def turned(self, script, *words, seconds):
        """Recordings of a script: [(number, status, what was said)]."""
        self.load("switched")
        text = self.inside(f"cat >each.sh <<'END'\n{script}END\nsh each.sh {' '.join(map(str, words))}", seconds)
        return [(int(number), int(status), said) for number, status, said in re.findall(r"^(\d+) (\d+) (.*)$", text, re.M)]

    def lacking(self, domid, guest, first, last):
        """Recordings that lack sets of permissions, and how many pauses Xen granted: ([(number, status, what was said)], pauses)."""
        self.succeeds("xl dmesg -c >/dev/null")
        found = self.turned(EACH_SET, domid, first, last, *ASKED[guest], seconds=60 + 2 * last)
        self.assertEqual([number for number, *_ in found], [*range(first, last + 1)])
        return found, self.succeeds("xl dmesg -c").count("granted  { pause }")

    def what_is_missing_is_named(self, guest):
        """Each set of permissions is missing from the beginning: the first that is asked for is named before any pause."""
        domid, asked = self.watch(guest), ASKED[guest]
        found, pauses = self.lacking(domid, guest, 0, 0)
        self.assertEqual(found, [(0, 0, "")])
        self.assertGreater(pauses, 0)
        found, pauses = self.lacking(domid, guest, 1, 2 ** len(asked) - 1)
        for number, status, said in found:
            first = next(name for bit, name in enumerate(asked) if number >> bit & 1)
            self.assertEqual((status, said), (DENIED, self.refusal(domid, first)), number)
        self.assertEqual(pauses, 0)
        self.runs_on(guest)

    def test_pv_what_is_missing_is_named(self):
        self.what_is_missing_is_named(PV)

    def test_pvh_what_is_missing_is_named(self):
        self.what_is_missing_is_named(PVH)

    def is_right(self, domid, guest, name, status, said):
        """... for a recording that this permission was withdrawn from."""
        if status == 0:
            return name in ASKED_ONCE and not said
        frees = rf"uniprof: domain {domid} stands still: Xen refuses to let it run on .*`xl unpause ({domid}|{guest})` in dom0 frees the domain"
        return status == DENIED and (said == self.refusal(domid, name) or name == "unpause" and re.match(frees, said))

    def what_is_withdrawn_ends_the_recording(self, guest):
        """... between two calls to Xen, and the guest runs on."""
        domid = self.watch(guest)
        for name in ASKED[guest]:
            # The one that is asked for least is asked for each tenth of a second.
            seconds = 0.3 if name in ASKED_ONCE else 10
            found = self.turned(EACH_CALL, domid, seconds, name, CALLS, STRIDE, seconds=2 * CALLS)
            self.assertEqual([call for call, *_ in found], [*range(1, CALLS + 1, STRIDE)])
            wrong = [one for one in found if not self.is_right(domid, guest, name, *one[1:])]
            self.assertFalse(wrong, name)
            # Nothing has been asked before the first call.
            self.assertEqual(found[0][1], DENIED, name)
            self.runs_on(guest)

    def test_pv_what_is_withdrawn_ends_the_recording(self):
        self.what_is_withdrawn_ends_the_recording(PV)

    def test_pvh_what_is_withdrawn_ends_the_recording(self):
        self.what_is_withdrawn_ends_the_recording(PVH)

    def test_a_pvh_domain_is_told_that_xen_maps_nothing_for_it(self):
        self.load("pvh")
        domain = LinuxDomain(self.rig, "translated", kind="pvh", files=("uniprof",), seclabel=label(PROFILER))
        domid = self.watch(PV)
        status, text = domain.run(f"uniprof record -q -T 0.1 -o x.uniprof {domid} 2>&1")
        self.assertEqual((status, text), (DENIED, f"uniprof: Xen lets PVH and HVM domains map no memory of others, so domain {domid} cannot be"
                                                  " profiled from here; run uniprof in a PV domain\n"))
        self.runs_on(PV)

    def operations(self, domid, stranger):
        """{operation: errno} of tests/rig/dom0/forbidden.c in the domain."""
        frames = [self.succeeds(f"./forbidden frame {one}").strip() for one in (domid, stranger)]
        text = self.inside(f"forbidden {domid} {frames[0]} {stranger} {frames[1]} 2>/dev/null")
        return {name: int(number) for name, number in re.findall(r"^(\S+) (\d+)$", text, re.M)}

    def test_everything_else_is_refused(self):
        """... by Xen's policy alone: where it is permissive, nothing is."""
        domid = self.watch(PV)
        self.create("idle-pv-fp")
        stranger = int(self.succeeds("xl domid idle-pv-fp"))
        found = self.operations(domid, stranger)
        self.assertGreater(len(found), 20, found)
        for name, number in found.items():
            self.assertIn(number, (OK,) if name.startswith("may-") else REFUSED, (name, found))
        self.runs_on(PV)
        self.inside(f"uniprof record -q -T 0.1 -o x.uniprof {stranger}", expect=DENIED)
        self.succeeds("xl setenforce 0")
        self.addCleanup(self.dom0, "xl setenforce 1")
        control = self.operations(domid, stranger)
        self.assertFalse({name for name, number in control.items() if number in REFUSED}, control)
        self.assertEqual(control["destroy"], OK)

    def test_pv_messages(self):
        domid = self.watch(PV)
        own = self.domain.id
        text = self.inside("uniprof list 2>&1")
        self.assertRegex(text, rf"(?m)^xen +{own} +{NAME} .* \(the domain that uniprof runs in\)$")
        self.assertEqual(text.count("the domain that uniprof runs in"), 1, text)
        self.assertRegex(text, r'(?m)^xen +0 .*does not grant "domain \{ getvcpuinfo \}"')
        for name in (own, NAME):
            self.assertIn(f"domain {own} is the one that uniprof runs in", self.inside(f"uniprof record -o x.uniprof {name} 2>&1", expect=3))
        hint = self.inside(f"uniprof record -o x.uniprof {PV} 2>&1", expect=3)
        for said in text, hint:
            self.assertIn("names of other domains cannot be read here: use the id", said)
        chmod = re.search(r"`(xenstore-chmod .*?)`", hint)[1]
        self.succeeds(re.sub(r"\bOWN\b", str(own), re.sub(r"\bID\b", str(domid), chmod.replace("rID", "r" + str(domid)).replace("rOWN", "r" + str(own)))))
        self.assertRegex(self.inside("uniprof list 2>&1"), rf"(?m)^xen +{domid} +{PV} .*  uniprof record xen:{PV}$")
        self.inside(f"uniprof record -q -T 0.1 -o x.uniprof {PV}")
        for module, words in ("true", "load Linux's module xen-privcmd"), (PRIVCMD.split(".ko")[0] + ".ko", "unrestricted=1"):
            text = self.inside(f"rmmod xen-privcmd; {module}; uniprof list 2>&1; status=$?; rmmod xen-privcmd 2>/dev/null; {PRIVCMD}; exit $status",
                               expect=DENIED)
            self.assertIn(words, text)


if __name__ == "__main__":
    unittest.main()
