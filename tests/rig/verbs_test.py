#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""The verbs and the classic command line on a real guest, as a user types them."""

import re
import unittest

import chance
from guestcase import GuestCase, parse_folded

GUEST = "app1-pv-fp"

# Shell: a guest of somebody else's, which comes up once the command that `run` was given has begun.
STRANGER = """rm -f begun; (until [ -e begun ]; do usleep 100000; done; xl create app1-pvh-fp.cfg 'cmdline="scale=5000"') >/dev/null 2>&1"""


def stack_lines(trace):
    """The stacks of a classic trace as lists of lines, leaf first; checks its form on the way."""
    head, body = trace.split("\n\n", 1)
    assert len(head.splitlines()) == 2, head
    stacks, stack = [], []
    for line in body.splitlines():
        if line in ("0", "1"):
            stacks.append(stack)
        elif line == "":
            stack = []
        else:
            stack.append(line)
    return stacks


def collapse(trace):
    """FlameGraph's stackcollapse.pl by its description: cut at '+', join root first, count."""
    stacks = {}
    for stack in stack_lines(trace):
        names = ";".join(line.split("+")[0] for line in reversed(stack))
        stacks[names] = stacks.get(names, 0) + 1
    return stacks


class Verbs(GuestCase):
    def test_list_shows_the_guests_and_how_to_profile_them(self):
        self.busy(GUEST)
        self.create("app1-pvh-fp", cmdline="scale=5000")
        status, text = self.dom0("uniprof list")
        self.assertEqual(status, 0)
        self.assertRegex(text, r"xen +0 +Domain-0 .*runs in")
        self.assertRegex(text, rf"xen +\d+ +{GUEST} +pv +1 +hypercalls +15 us  uniprof record xen:{GUEST}")
        self.assertRegex(text, r"xen +\d+ +app1-pvh-fp +pvh +1 ")

    def test_guests_go_by_name_by_id_and_with_their_kind(self):
        self.busy(GUEST)
        domid = self.dom0(f"xl domid {GUEST}")[1].strip()
        for name in GUEST, domid, f"xen:{GUEST}", f"xen:{domid}":
            self.until(lambda text: "function_3" in text, lambda seconds, name=name: self.succeeds(
                f"uniprof record -q -F 500 -T {seconds} -o x.uniprof {name} && uniprof report --state=all x.uniprof"), 0.3)

    def test_the_agent_follows_a_guest_by_its_name_and_is_killed(self):
        """The guest comes, goes and comes again under another id; the agent is killed, and goes on."""
        self.alone()
        self.dom0("mkdir -p kept; (uniprof agent --store kept -F 50 -v >agent.log 2>&1 & echo $! >agent.pid)")
        show, count = "uniprof report --store kept --last 1h", "sed -n 's/^samples *\\([0-9]*\\) .*/\\1/p'"

        def wait_for(least, domains):
            status, text = self.dom0(f"for i in $(seq 60); do n=$({show} {GUEST} 2>/dev/null | {count}); [ ${{n:-0}} -ge {least} ] && "
                                     f"[ $(grep -c 'sampling xen:.* into {GUEST}' agent.log) -ge {domains} ] && exit 0; sleep 1; done; cat agent.log; exit 1", 120)
            self.assertEqual(status, 0, text)

        self.create(GUEST, cmdline="scale=5000")
        wait_for(100, 1)
        self.dom0(f"xl destroy {GUEST}")
        self.create(GUEST, cmdline="scale=5000")
        wait_for(200, 2)
        status, text = self.dom0("kill -9 $(cat agent.pid); sleep 2; ls -d kept/*/")
        self.assertEqual((status, text.split()), (0, [f"kept/{GUEST}/"]))
        self.runs_on(GUEST)
        self.dom0("(uniprof agent --store kept -F 50 -v >>agent.log 2>&1 & echo $! >agent.pid)")
        wait_for(300, 3)
        status, text = self.dom0(f"kill $(cat agent.pid); sleep 3; {show} --state=all {GUEST}")
        self.assertEqual(status, 0, text)
        self.assertIn("function_3", text)
        self.runs_on(GUEST)

    def test_of_several_guests_each_has_a_recording(self):
        guests = (GUEST, "app1-pvh-fp")
        for guest in guests:
            self.create(guest, cmdline="scale=5000")
        ids = [f"{guest}-{self.dom0(f'xl domid {guest}')[1].strip()}" for guest in guests]

        def take(seconds):
            self.succeeds(f"rm -rf both; uniprof record -F 200 -T {seconds} -o both {' '.join(guests)}", 120)
            return [self.folded(f"both/{name}", "--state=all") for name in ids]

        self.until(lambda taken: all(any("main" in stack for stack in stacks) for stacks in taken), take, 1)
        for guest in guests:
            self.runs_on(guest)

    def test_the_classic_trace_has_the_classic_form(self):
        self.busy(GUEST)
        domid = self.dom0(f"xl domid {GUEST}")[1].strip()

        def take(seconds):
            text = self.succeeds(f"uniprof -F 200 -T {seconds} raw {domid}")
            self.assertRegex(text, r"\A(uniprof: missed \d+ deadlines\n)?\Z")
            return self.rig.read("raw").decode()

        trace = self.until(lambda trace: len(stack_lines(trace)) > 10, take, 1)
        self.assertRegex(trace, rf"\A#unikernel stack tracer using libxen(call|ctrl) hypercall interface\n"
                                rf"#tracing domid {domid} on \d{{4}}-\d\d-\d\d \d\d:\d\d:\d\d \S+ \([+-]\d{{4}}\)\n\n")
        for stack in stack_lines(trace):
            for line in stack:
                self.assertRegex(line, r"\A0x[0-9a-f]+\Z")
        self.assertRegex(trace, r"\n[01]\n\n\Z")

    def test_online_and_offline_names_are_the_same(self):
        self.busy(GUEST)

        def take(seconds):
            self.succeeds(f"uniprof -F 500 -T {seconds} - {GUEST} >raw && symbolize {GUEST}.elf raw >offline && "
                          f"uniprof -F 500 -T {seconds} -s {GUEST}.elf online {GUEST}")
            offline, online = ({line for stack in stack_lines(self.rig.read(name).decode()) for line in stack} for name in ("offline", "online"))
            self.assertFalse([line for line in offline | online if line.startswith("0x")])
            return offline & online

        # Two runs see the same call sites, if not the same moments: those that are seen all the time.
        self.until(lambda both: {"main", "function_3"} <= {line.split("+")[0] for line in both}, take, 1)

    def test_symbols_may_come_from_elf_or_nm(self):
        self.busy(GUEST)
        self.succeeds(f"uniprof run -q -F 200 -T 0.5 -o two -- xl create {GUEST}.cfg 'name=\"two\"' >/dev/null && xl destroy two")
        text = self.until(lambda text: "function_3" in text, lambda seconds: self.succeeds(
            f"uniprof record -q -F 500 -T {seconds} -s two/two.syms -o nm.uniprof {GUEST} && uniprof report nm.uniprof"), 0.5)
        self.assertIn(" 0.0 % in code without a name", text)

    def test_one_command_leaves_everything(self):
        self.alone()
        self.bring(GUEST)
        self.until(lambda picture: "function_3" in picture, lambda seconds: self.succeeds(
            f"rm -rf out; xl destroy {GUEST} 2>/dev/null; uniprof run -F 500 -T {seconds} -o out -- xl create {GUEST}.cfg 'cmdline=\"scale=5000\"' && cat out/{GUEST}.svg"), 1)
        names = self.dom0("cd out; ls")[1].split()
        self.assertEqual(names, sorted(f"{GUEST}.{end}" for end in ("folded", "raw", "resolved.raw", "svg", "syms", "uniprof")))
        raw, resolved = self.rig.read(f"out/{GUEST}.raw").decode(), self.rig.read(f"out/{GUEST}.resolved.raw").decode()
        # A trace has a line a sample; folded stacks are weighed otherwise.
        folded = self.folded(f"out/{GUEST}", "--weight=samples")
        self.assertNotRegex(raw, r"\n[a-z_]+\+0x")
        self.assertEqual(self.dom0(f"symbolize out/{GUEST}.syms out/{GUEST}.raw")[1], resolved)
        self.assertEqual(collapse(resolved), {";".join(stack): n for stack, n in folded.items()})
        self.assertRegex(self.rig.read(f"out/{GUEST}.syms").decode(), r"(?m)^[0-9a-f]{16} [tT] function_3$")
        self.runs_on(GUEST)

    def test_run_tells_when_the_command_fails_or_starts_no_guest(self):
        self.alone()
        status, text = self.dom0("uniprof run -- xl create nothing.cfg 2>&1 | tail -1; uniprof run -- true 2>&1; echo status $?")
        self.assertIn("xl failed with status", text)
        self.assertIn("true has ended, and no guest of it is there", text)
        self.assertIn("status 3", text)
        status, text = self.dom0("uniprof run -- /nowhere/command")
        self.assertNotEqual(status, 0)
        self.assertIn("/nowhere/command", text)

    def test_run_takes_the_guest_that_xl_names_and_no_stranger(self):
        self.alone()
        self.bring(GUEST)
        self.bring("app1-pvh-fp")
        status, text = self.dom0(f"{STRANGER} &"
                                 f" uniprof run -F 200 -T 1 -o out -- sh -c 'touch begun; until xl domid app1-pvh-fp; do sleep 1; done >/dev/null 2>&1; xl create {GUEST}.cfg'",
                                 120)
        self.assertEqual(status, 0, text)
        self.assertEqual({name.split(".")[0] for name in self.dom0("ls out")[1].split()}, {GUEST}, text)
        self.runs_on("app1-pvh-fp")

    def test_run_names_the_domains_that_it_cannot_tell_to_be_its_own(self):
        self.alone()
        self.bring("app1-pvh-fp")
        status, text = self.dom0(f"{STRANGER} &"
                                 " uniprof run -o out -- sh -c 'touch begun; until xl domid app1-pvh-fp; do sleep 1; done >/dev/null 2>&1'", 120)
        self.assertEqual(status, 3, text)
        self.assertRegex(text, r"these came up meanwhile, but cannot be told to be its: xen:\d+ \(app1-pvh-fp\)")
        self.assertEqual(self.dom0("ls out")[1], "")
        self.runs_on("app1-pvh-fp")

    def test_run_follows_a_guest_to_its_own_end(self):
        self.alone()
        self.bring("ends-pv-fp")
        status, text = self.dom0("uniprof run -F 200 -o out -- xl create ends-pv-fp.cfg 'cmdline=\"seconds=5\"'")
        self.assertEqual(status, 0, text)
        self.assertRegex(text, r"the guest (shut down|is gone) after [1-9]\d*\.\d s")
        stacks = parse_folded(self.rig.read("out/ends-pv-fp.folded").decode())
        self.assertGreater(sum(n for s, n in stacks.items() if "known_work" in s) / sum(stacks.values()), 0.9)

    def test_a_snapshot_replays_to_the_same_stacks(self):
        self.busy(GUEST)

        def take(seconds):
            self.succeeds(f"uniprof record -q -F 100 -T {seconds} --snapshot s.snap {GUEST}")
            status, text = self.dom0(f"uniprof record -q -F 1000 -T 60 -s {GUEST}.elf -o {GUEST}.uniprof replay:s.snap")
            self.assertEqual(status, 5, text)
            return self.folded(GUEST, "--state=all")

        stacks = self.until(lambda stacks: sum(stacks.values()) > 10 and sum(self.folded(GUEST).values()) > 0, take, 1)
        self.no_impossible_edges(GUEST, stacks)
        # The guest never rests, and the snapshot says so: it ran, or waited for what dom0 left of the CPU.
        busy = sum(self.folded(GUEST, "--state=running,runnable").values())
        self.assertLessEqual(sum(stacks.values()) - busy, chance.most(0.05 * sum(stacks.values())))

    def test_missed_deadlines_are_counted_and_printed(self):
        self.busy(GUEST)
        said = self.record(GUEST, "-F 10000 -T 0.5 -M")
        missed = int(re.search(r"(\d+) deadlines? missed\n?\Z", said.strip()).group(1))
        self.assertGreater(missed, 0)
        self.assertRegex(said, r"\d+ deadlines? missed, [\d.]+ s behind")
        self.assertIn("deadlines missed", self.report(GUEST))

    def test_two_profilers_share_a_guest(self):
        self.busy(GUEST)
        self.until(lambda text: text.count("function_3") == 2, lambda seconds: self.succeeds(
            f"uniprof record -q -F 300 -T {seconds} -o a.uniprof {GUEST} & uniprof record -q -F 300 -T {seconds} -o b.uniprof {GUEST};"
            " wait; uniprof report a.uniprof; uniprof report b.uniprof"), 1)
        self.runs_on(GUEST)


if __name__ == "__main__":
    unittest.main()
