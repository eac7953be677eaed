#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""Files that are elsewhere in the guest than they were linked, or are not what runs in it at all."""

import gzip
import re
import subprocess
import unittest

import chance
from guestcase import GUESTS, GuestCase

GUEST = "app1-pv-fp"
INPUT = 6

# app1's shares, and the error of few samples: too small to take another function's share for one.
KNOWN, TOLERANCE = {"function_1": 0.1, "function_3": 0.6}, 0.2


def build_id(guest):
    notes = subprocess.run(["readelf", "-n", GUESTS / f"{guest}.elf"], check=True, capture_output=True, text=True).stdout
    return re.search(r"Build ID: ([0-9a-f]+)", notes).group(1)


class Images(GuestCase):
    def bring_linked_at(self, guest, name, difference):
        """Brings the guest's file as it would be if it had been linked elsewhere; build id and code stay."""
        path = GUESTS / name
        self.addCleanup(lambda: path.unlink(missing_ok=True))
        subprocess.run(["objcopy", f"--change-addresses={difference}", GUESTS / f"{guest}.elf", path], check=True)
        self.rig.put(path)

    def profile(self, guest, options, seconds=1):
        """Records the running guest; returns what uniprof said, and the stacks."""
        said = self.record(guest, f"-F 300 -T {seconds} {options}")
        stacks = self.folded(guest)
        self.assertFalse([stack for stack in stacks for name in stack if "0x" in name], f"{options}: {said}")
        return said, stacks

    def names_are_right(self, guest, options, stacks):
        """Asserts that functions have their shares, by stacks that were recorded and as many more as that takes."""
        self.check_shares(guest, KNOWN, TOLERANCE, f"-F 300 {options}", 1, stacks)

    def test_a_file_that_was_linked_elsewhere_is_found(self):
        self.busy(GUEST)
        for name, difference in ("up.elf", 0x40000000), ("high.elf", 0xffffffff80000000), ("zero.elf", -0x100000):
            self.bring_linked_at(GUEST, name, difference)
            said, stacks = self.profile(GUEST, f"-v -s {name}")
            self.assertIn(f"{name} is at 0x100000 in the guest, not where it was linked", said)
            self.no_impossible_edges(GUEST, stacks)
            self.assertNotIn("WARNING", self.report(GUEST))
            # Naming afterwards, with the file again, gives the same.
            self.assertEqual(self.folded(GUEST, f"-s {name}"), stacks)
            self.assertEqual(self.folded(GUEST, f"-s {name}@0x100000"), stacks)
            self.assertEqual(self.folded(GUEST, f"-s {GUEST}.elf"), stacks)
            self.names_are_right(GUEST, f"-s {name}", stacks)

    def test_a_kernel_that_gzip_packed_has_its_names(self):
        self.alone()
        self.bring(GUEST)
        self.rig.write("packed", gzip.compress((GUESTS / f"{GUEST}.elf").read_bytes()))
        self.create(GUEST, cmdline="scale=100000", kernel="packed")
        said, stacks = self.profile(GUEST, "-v")
        self.assertNotIn("no names", said)
        self.assertIn("packed is at 0x100000 in the guest, as its code shows", said)
        self.no_impossible_edges(GUEST, stacks)
        self.names_are_right(GUEST, "", stacks)
        # Naming afterwards, too.
        self.assertEqual(self.folded(GUEST, "-s packed"), self.folded(GUEST))

    def test_the_classic_tools_find_it_as_well(self):
        self.busy(GUEST)
        self.bring_linked_at(GUEST, "up.elf", 0x40000000)
        text = self.until(
            lambda text: re.search(r"online:[1-9]\d*\noffline:[1-9]\d*\n$", text),
            lambda seconds: self.dom0(f"uniprof -F 500 -T {seconds} -E up.elf online {GUEST} && uniprof -F 500 -T {seconds} -e up.elf raw {GUEST} &&"
                                      " symbolize up.elf@0x100000 raw >offline && grep -c '^0x' online offline; grep -c function_3 online offline")[1], 0.5)
        self.assertIn("online:0\noffline:0\n", text)
        self.assertEqual(self.dom0("grep -v '^0x\\|^[1#]\\|^$' raw | wc -l")[1].strip(), "0")

    def test_run_leaves_tables_with_the_guest_s_addresses(self):
        self.alone()
        self.bring(GUEST)
        self.bring_linked_at(GUEST, "up.elf", 0x40000000)
        status, text = self.dom0(f"uniprof run -F 500 -T 1 -s up.elf -o out -- xl create {GUEST}.cfg 'cmdline=\"scale=5000\"'")
        self.assertEqual(status, 0, text)
        self.assertRegex(self.dom0(f"cat out/{GUEST}.syms")[1], r"(?m)^000000000010[0-9a-f]{4} t function_3$")
        self.assertEqual(self.dom0(f"symbolize out/{GUEST}.syms out/{GUEST}.raw | cmp - out/{GUEST}.resolved.raw; grep -c '^0x' out/{GUEST}.resolved.raw")[1], "0\n")

    def test_another_build_is_an_error_that_names_both(self):
        self.busy(GUEST)
        self.bring("app1-pv-nofp")
        self.dom0("rm -f x.*")
        mine, there = build_id("app1-pv-nofp"), build_id(GUEST)
        for command in ("uniprof record -q -F 100 -T 5 -o x.uniprof -s app1-pv-nofp.elf {}", "uniprof -F 100 -T 5 -s app1-pv-nofp.elf x.raw {}",
                        "uniprof -F 100 -T 5 -e app1-pv-nofp.elf x.raw {}"):
            status, text = self.dom0(command.format(GUEST))
            self.assertEqual(status, INPUT, text)
            self.assertIn(f"app1-pv-nofp.elf (build id {mine}) is not what runs in guest \"{GUEST}\" (build id {there})", text)
        self.assertEqual(self.dom0("cat x.* 2>/dev/null")[1], "")
        # Without a build id, the code alone tells.
        subprocess.run(["objcopy", "--remove-section=.note.gnu.build-id", GUESTS / "app1-pv-nofp.elf", GUESTS / "noid.elf"], check=True)
        self.addCleanup((GUESTS / "noid.elf").unlink)
        self.rig.put(GUESTS / "noid.elf")
        status, text = self.dom0(f"uniprof record -q -F 100 -T 5 -o x.uniprof -s noid.elf {GUEST}")
        self.assertEqual(status, INPUT, text)
        self.assertIn(f"noid.elf (build id none) is not what runs in guest \"{GUEST}\" (build id {there})", text)
        self.runs_on(GUEST)

    def test_a_file_that_was_replaced_after_the_start_is_not_used(self):
        self.busy(GUEST)
        self.bring("app1-pv-nofp")
        self.there.discard(GUEST)
        # Else uniprof remembers the names of this build from the tests before.
        status, text = self.dom0(f"rm -rf ${{XDG_CACHE_HOME:-$HOME/.cache}}/uniprof; cp {GUEST}.elf kept.elf && cp app1-pv-nofp.elf {GUEST}.elf")
        said = self.record(GUEST, "-F 200 -T 2")
        self.assertIn("is not what runs in it", said)
        self.assertIn(build_id(GUEST), said)
        self.assertIn(build_id("app1-pv-nofp"), said)
        self.assertIn("WARNING", self.report(GUEST).splitlines()[0])
        self.assertIn("without a name", self.report(GUEST).splitlines()[0])
        # Whoever looks at it is told, in whatever form.
        picture = self.dom0(f"uniprof flamegraph {GUEST}.uniprof")[1]
        self.assertRegex(picture, r'<g class="warning"[^>]*>\s*<rect [^>]*/>\s*<text [^>]*>[^\n]*samples are in code without a name')
        self.assertRegex(self.dom0(f"uniprof export --format=folded {GUEST}.uniprof 2>&1 >x")[1], "warning: .*without a name")
        # The right file, given afterwards, names everything; a wrong one is refused.
        named = self.folded(GUEST, "-s kept.elf")
        self.assertNotIn("WARNING", self.report(GUEST, "-s kept.elf"))
        self.names_are_right(GUEST, "-s kept.elf", named)

    def test_the_classic_line_and_run_tell_what_a_profile_is_worth(self):
        self.create(GUEST, cmdline="scale=5000")
        self.rig.write("tiny", "0000000000000010 T nothing\n0000000000000020 T more\n")
        status, text = self.dom0(f"uniprof -F 200 -T 1 -s tiny x.raw {GUEST}")
        self.assertEqual(status, 0, text)
        self.assertIn("warning: 100 % of the samples are in code without a name", text)
        self.dom0(f"xl destroy {GUEST}")
        status, text = self.dom0(f"uniprof run -F 200 -T 1 -s tiny -o out -- xl create {GUEST}.cfg 'cmdline=\"scale=5000\"'")
        self.assertEqual(status, 0, text)
        self.assertIn("warning: 100 % of the samples are in code without a name", text)
        self.assertIn("100 % of the samples are in code without a name", self.dom0(f"cat out/{GUEST}.svg")[1])

    def test_names_are_not_given_by_another_build_afterwards(self):
        self.busy(GUEST)
        self.bring("app1-pv-nofp")
        self.record(GUEST, "-F 200 -T 0.3")
        for verb in "report", "flamegraph -o x.svg", "export --format=folded":
            status, text = self.dom0(f"uniprof {verb} -s app1-pv-nofp.elf {GUEST}.uniprof")
            self.assertEqual(status, INPUT, text)
            self.assertIn(build_id("app1-pv-nofp"), text)
            self.assertIn(build_id(GUEST), text)

    def test_several_files_serve_one_guest(self):
        self.busy(GUEST)
        self.bring_linked_at(GUEST, "up.elf", 0x40000000)
        nm = subprocess.run(["nm", "-n", GUESTS / f"{GUEST}.elf"], check=True, capture_output=True, text=True).stdout
        subprocess.run(["objcopy", "--strip-all", GUESTS / f"{GUEST}.elf", GUESTS / "stripped.elf"], check=True)
        self.addCleanup((GUESTS / "stripped.elf").unlink)
        self.rig.put(GUESTS / "stripped.elf")
        self.rig.write("app1.nm", nm)
        for options in "-s stripped.elf -s app1.nm", "-s app1.nm", "-s up.elf -s app1.nm":
            _, stacks = self.profile(GUEST, options)
            self.no_impossible_edges(GUEST, stacks)
        status, text = self.dom0(f"uniprof record -q -T 1 -s stripped.elf -o x.uniprof {GUEST}")
        self.assertEqual(status, INPUT, text)
        self.assertIn("no function symbols", text)

    def test_a_recording_that_was_killed_is_named_by_its_files(self):
        self.busy(GUEST)
        self.bring_linked_at(GUEST, "up.elf", 0x40000000)

        def take(attempt):
            self.dom0(f"rm -f killed.uniprof; uniprof record -q -F 300 -s $PWD/up.elf -o killed.uniprof {GUEST} & pid=$!; i=0;"
                      " until [ $(stat -c %s killed.uniprof 2>/dev/null || echo 0) -ge 2000 ] || [ $i = 300 ]; do i=$((i + 1)); usleep 100000; done;"
                      f" sleep {chance.longer(attempt)}; kill -9 $pid; wait", 120)
            return self.folded("killed"), KNOWN

        chance.check_shares(take, TOLERANCE)
        self.assertIn("stops in the middle", self.report("killed"))
        self.runs_on(GUEST)

    def test_text_at_address_0_and_high_half_kernels(self):
        for guest in "app1-pvzero-fp", "app1-pvhigh-nofp":
            self.create(guest, cmdline="scale=5000")
            said, stacks = self.profile(guest, f"-v -s {guest}.elf")
            self.assertIn(f"{guest}.elf is at", said)
            self.no_impossible_edges(guest, stacks)
            self.names_are_right(guest, f"-s {guest}.elf", stacks)
            self.dom0(f"xl destroy {guest}")


if __name__ == "__main__":
    unittest.main()
