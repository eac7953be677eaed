#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""Calls to Xen that fail, memory that runs out, several profilers: the guest runs on, and what is said is true."""

import re
import unittest

from guestcase import GuestCase

GUESTS = "app1-pv-fp", "app1-pvh-fp"
FAILED, DENIED = 1, 4

# Message about a guest that Xen refuses to unpause, and the command that frees it.
STANDS_STILL = r"uniprof: domain \d+ stands still: Xen refuses to let it run on \(.*\); .*`xl unpause {}` in dom0 frees the domain"


class Faults(GuestCase):
    def with_fault(self, guest, fault, options="--always-pause -F 500 -T 1"):
        """Records while calls fail (tests/rig/dom0/xen_faults.c); returns (status, what uniprof said)."""
        self.bring_program("xen_faults.so")
        status, text = self.dom0(f"rm -f x.uniprof; LD_PRELOAD=./xen_faults.so XEN_FAULT='{fault}' uniprof record {options} -o x.uniprof {guest} 2>&1")
        self.assertLess(status, 126, f"{fault}: {text}")
        self.no_guard_is_left()
        self.runs_on(guest)
        return status, text

    def stacks(self):
        return self.folded("x", "--state=all")

    def test_frames_that_cannot_be_mapped_end_stacks_and_nothing_else(self):
        for guest in GUESTS:
            self.create(guest, cmdline="scale=5000")
            for fault in "map 1 1000000", "page 1 1000000":
                status, text = self.with_fault(guest, fault)
                self.assertEqual(status, 0, text)
                # Nothing but the registers was there: each stack is marked, and none is made up.
                self.assertIn("100.0 % cut short", self.report("x", "--state=all"))
                self.assertLessEqual({len(stack) for stack in self.stacks()}, {1, 2})

    def test_one_frame_that_cannot_be_mapped_is_asked_for_again_later(self):
        self.create(GUESTS[0], cmdline="scale=5000")
        self.bring_program("xen_faults.so")
        # Not before some hundred samples have been taken without it.
        status, text = self.dom0(
            f"LD_PRELOAD=./xen_faults.so XEN_FAULT='map 1 1' uniprof record -v -F 5000 -o x.uniprof {GUESTS[0]} >said 2>&1 & pid=$!; i=0;"
            " until awk '/ samples$/ { n = $(NF - 1) } END { exit !(n > 600) }' said || [ $i = 500 ]; do usleep 200000; i=$((i + 1)); done;"
            " kill -INT $pid; wait $pid; s=$?; cat said; exit $s", 150)
        self.assertEqual(status, 0, text)
        stacks = self.stacks()
        self.assertTrue(any("function_3" in stack for stack in stacks), stacks)
        self.runs_on(GUESTS[0])

    def test_too_little_memory_says_so_or_is_enough(self):
        self.create(GUESTS[0], cmdline="scale=5000")
        outcomes = set()
        for kib in 4000, 8000, 10000, 12000, 14000, 16000, 20000, 60000:
            status, text = self.dom0(f"rm -f x.uniprof; sh -c 'ulimit -v {kib}; exec uniprof record -F 500 -T 0.5 -o x.uniprof {GUESTS[0]}' 2>&1")
            outcomes.add(status)
            self.assertLess(status, 128, f"{kib} KiB: {text}")
            if status == 0:
                self.report("x")
            else:
                self.assertRegex(text, "memory|cannot|error while loading|mmap", f"{kib} KiB")
        self.assertIn(0, outcomes)
        self.assertGreater(len(outcomes), 1)
        self.runs_on(GUESTS[0])

    def test_calls_that_fail_now_and_then_cost_their_samples_only(self):
        for guest in GUESTS:
            self.create(guest, cmdline="scale=5000")
            for fault in "multicall 8 3", "midway 5 3", "context 8 3", "unpause 5 1":
                # A guest that stood still from the fault on would not be sampled any more.
                for seconds in 0.5, 10, 60:
                    status, text = self.with_fault(guest, fault, f"--always-pause -F 500 -T {seconds}")
                    self.assertEqual(status, 0, f"{fault}: {text}")
                    if sum(self.stacks().values()) > 10:
                        break
                else:
                    self.fail(f"{fault}: {text}")

    def test_calls_that_fail_from_now_on_end_the_recording_with_a_reason(self):
        self.create(GUESTS[0], cmdline="scale=5000")
        for fault in "multicall 20 1000000", "midway 5 1000000":
            status, text = self.with_fault(GUESTS[0], fault, "--always-pause -F 500 -T 30")
            self.assertEqual(status, FAILED, f"{fault}: {text}")
            self.assertRegex(text, r"cannot sample domain \d+: ")
            self.report("x")

    def test_a_guest_that_xen_does_not_let_go_at_first_is_let_go_later(self):
        for guest in GUESTS:
            self.create(guest, cmdline="scale=5000")
            status, text = self.with_fault(guest, "unpause 1 10", "--always-pause -F 500 -T 30")
            self.assertEqual(status, DENIED, text)
            self.assertRegex(text, STANDS_STILL.format(guest))

    def test_a_guest_that_xen_does_not_let_go_is_told_of_and_freed_by_the_command_that_is_named(self):
        guest = GUESTS[0]
        self.bring_program("xen_faults.so")
        for verb in "record --always-pause -q -F 500 -o x.uniprof", "top --always-pause --batch":
            self.create(guest, cmdline="scale=5000")
            status, text = self.dom0(f"LD_PRELOAD=./xen_faults.so XEN_FAULT='unpause 1 1000000' uniprof {verb} {guest} 2>&1; s=$?; xl list {guest}; exit $s")
            self.assertEqual(status, DENIED, text)
            self.assertIn("--p---", text)
            command = re.search(STANDS_STILL.format(f"({guest})"), text)
            self.assertTrue(command, text)
            self.assertEqual(self.dom0(f"pidof unpause-guard && xl unpause {command[1]}")[0], 0)
            self.runs_on(guest)
            self.no_guard_is_left()
            self.dom0(f"xl destroy {guest}")

    def test_a_guard_that_xen_refuses_says_so_and_tries_on(self):
        for guest in GUESTS:
            self.create(guest, cmdline="scale=5000")
            self.bring_program("xen_faults.so")
            status, text = self.dom0(f"LD_PRELOAD=./xen_faults.so XEN_FAULT='death 20 10' uniprof record --always-pause -q -F 500 -o x.uniprof {guest} 2>said;"
                                     " s=$?; while pidof unpause-guard >/dev/null; do usleep 20000; done; cat said; exit $s")
            self.assertEqual(status, 132, text)
            self.assertRegex(text, STANDS_STILL.format(guest))
            self.runs_on(guest)

    def test_a_second_profiler_that_is_killed_leaves_the_first_one_alone(self):
        self.create(GUESTS[0], cmdline="scale=5000")
        status, text = self.dom0(
            f"uniprof record --always-pause -q -F 300 -o a.uniprof {GUESTS[0]} & a=$!; i=0; while [ $i -lt 3 ]; do"
            f" uniprof record --always-pause -q -F 3000 -o b.uniprof {GUESTS[0]} & b=$!; until [ -s b.uniprof ]; do usleep 20000; done; usleep $(((i * 3 + $(od -An -N1 -tu1 /dev/urandom) % 3) * 8192)); kill -KILL $b;"
            " wait $b 2>/dev/null; rm b.uniprof; i=$((i + 1)); done;"
            " kill -INT $a; wait $a; echo status $?", 120)
        self.assertIn("status 0", text)
        self.assertIn("function_3", self.report("a"))
        self.no_impossible_edges(GUESTS[0], self.folded("a"))
        self.runs_on(GUESTS[0])

    def test_an_administrators_pause_outlives_two_profilers_one_of_which_is_killed(self):
        self.create(GUESTS[0], cmdline="scale=5000")
        status, text = self.dom0(
            f"rm -f a.uniprof b.uniprof; for f in a b; do uniprof record --always-pause -q -F 300 -T 60 -o $f.uniprof {GUESTS[0]} & done; b=$!; i=0;"
            " until [ $(stat -c %s a.uniprof 2>/dev/null || echo 0) -ge 2000 ] && [ $(stat -c %s b.uniprof 2>/dev/null || echo 0) -ge 2000 ]"
            " || [ $i = 300 ]; do usleep 100000; i=$((i + 1)); done; usleep 300000;"
            f" xl pause {GUESTS[0]}; usleep 500000; kill -KILL $b; sleep 1; xl list {GUESTS[0]}; xl unpause {GUESTS[0]}; usleep 300000; kill -INT $(pidof uniprof); wait", 120)
        self.assertRegex(text, r"--p---", "two profilers have undone the administrator's pause")
        for name in "a", "b":
            self.assertIn("function_3", self.report(name, "--state=all"))
        self.runs_on(GUESTS[0])


if __name__ == "__main__":
    unittest.main()
