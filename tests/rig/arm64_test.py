#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""Xen on arm64, from beginning to end: uniprof is built for arm64 here and profiles guests there."""

import collections
import os
import unittest

from guestcase import CUT_SHORT, GUESTS, GuestCase, impossible_edges, shares
from guests_test import HardCase
from shares_test import APP1, APP2, SharesCase
from xenrig import cross, port

# Over all guests, where calls are looked for that cannot be; takes long.
SAMPLES = int(os.environ.get("UNIPROF_ARM_SAMPLES", "0"))
ENDED = 5  # uniprof's exit status for a guest that ended


class Arm64Case(GuestCase):
    rig_options = {"arch": "arm64", "icount": True}

    @classmethod
    def setUpClass(cls):
        if not cross.can_build(port.ARM64):
            raise unittest.SkipTest(f"no {cross.compiler(port.ARM64)} on this machine: uniprof cannot be built for arm64")
        cls.build = cross.build(port.ARM64, ("uniprof", "symbolize"))
        super().setUpClass()

    def record(self, guest, options="", **more):
        # xl's kernel there is no ELF file.
        return super().record(guest, f"{options} -s {guest}.elf", **more)


class Arm64Shares(Arm64Case, SharesCase):
    def profile(self, guest, functions, scale, options=""):
        super().profile(guest, functions, scale, f"-s {guest}.elf {options}")


class Shares(Arm64Shares):
    def test_app1(self):
        self.profile("app1-arm64-fp", APP1, 20)

    def test_app2_without_frame_pointers(self):
        self.profile("app2-arm64-nofp", APP2, 4)

    def test_app1_with_pages_of_16_kib(self):
        self.profile("app1-arm64g16-fp", APP1, 20)

    def test_app1_with_pages_of_64_kib_without_frame_pointers(self):
        self.profile("app1-arm64g64-nofp", APP1, 20)

    def test_app1_of_32_bits(self):
        self.profile("app1-arm32-fp", APP1, 20)

    def test_app2_of_32_bits_without_frame_pointers(self):
        self.profile("app2-arm32-nofp", APP2, 4)

    def test_app1_of_32_bits_in_thumb_without_frame_pointers(self):
        self.profile("app1-arm32t-nofp", APP1, 20)

    def test_app2_of_32_bits_in_thumb(self):
        self.profile("app2-arm32t-fp", APP2, 4)

    def test_app2_of_32_bits_by_tables_for_exceptions(self):
        self.profile("app2-arm32-exidx", APP2, 4, "--unwind=cfi")

    def test_app2_of_32_bits_in_thumb_by_tables_for_exceptions(self):
        self.profile("app2-arm32t-exidx", APP2, 4, "--unwind=cfi")


class Xen420(Arm64Shares):
    """A later Xen on arm64; versions_test.py has those on x86."""

    rig_options = Arm64Case.rig_options | {"xen": "4.20"}

    def test_guests_of_both_widths_are_listed_and_have_their_shares(self):
        for guest in "app1-arm64-nofp", "app1-arm32-fp":
            self.bring(guest)
            status, text = self.dom0(f"xl create -p {guest}.cfg && uniprof list")
            self.assertEqual(status, 0, text)
            self.assertRegex(text, rf"xen +\d+ +{guest} +pvh +1 +hypercalls ")
            self.dom0(f"xl destroy {guest}")
            self.profile(guest, APP1, 20)
            self.assertRegex(self.report(f"out/{guest}"), r"pvh, 1 vCPU, on Xen 4\.20,")
            self.dom0(f"xl destroy {guest}; rm -rf out")


class Hard(Arm64Case, HardCase):
    def test_each_vcpu_shows_its_own_worker(self):
        for kind in "arm64-nofp", "arm32-fp", "arm32t-nofp":
            self.each_vcpu_shows_its_own_worker(f"vcpus-{kind}")

    def test_a_deep_recursion_is_followed_to_its_end(self):
        for kind in "arm64-fp", "arm32-nofp", "arm32t-fp":
            self.a_deep_recursion_is_followed_to_its_end(f"recursion-{kind}")
            self.dom0(f"xl destroy recursion-{kind}")

    def test_an_idle_guest_is_not_work(self):
        for kind in "arm64-fp", "arm32-fp":
            self.being_idle_is_not_work(f"idle-{kind}")

    def test_all_of_a_chain_is_seen(self):
        for kind in "arm64-nofp", "arm32-fp", "arm32t-nofp":
            guest = f"chain-{kind}"
            stacks = self.profile(guest, "-F 500 -T 1", cmdline="frames=100")
            self.assertEqual({100}, {len(stack) for stack in stacks if stack[-1] == "spin"})
            self.assertGreater(shares(stacks, ["spin"])["spin"], 0.9)
            self.dom0(f"xl destroy {guest}")

    def test_a_guest_that_powers_off_is_told(self):
        for kind in "arm64-fp", "arm32-nofp":
            guest = f"ends-{kind}"
            self.create(guest, cmdline="seconds=3")
            said = self.record(guest, "-F 500 -T 60", expect=ENDED)
            self.assertRegex(said, "the guest (shut down|is gone)")
            self.assertGreater(shares(self.folded(guest), ["known_work"])["known_work"], 0.9)


@unittest.skipUnless(SAMPLES, "UNIPROF_ARM_SAMPLES is not set: this takes long")
class EveryImage(Arm64Case):
    """Page tables of all kinds, code of both widths and of two compilers at each level of optimization."""

    def stacks(self, guest, wanted):
        self.create(guest, cmdline="scale=100000")
        found = collections.Counter()
        while sum(found.values()) < wanted:
            before = sum(found.values())
            self.record(guest, "-q -F 8000 -T 0.2")
            found += self.folded(guest)
            self.assertGreater(sum(found.values()), before, guest)
        self.dom0(f"xl destroy {guest}; rm {guest}.*")
        return found

    def test_no_stack_has_a_call_that_cannot_be_or_is_cut_short(self):
        guests = sorted(path.stem for path in GUESTS.glob("app[12]-arm*.elf"))
        total, wrong, cut = 0, {}, {}
        for guest in guests:
            stacks = self.stacks(guest, SAMPLES // len(guests) + 1)
            samples = sum(stacks.values())
            total += samples
            wrong[guest], cut[guest] = impossible_edges(guest, stacks)
            if guest.endswith("-nofp") and "-clang-" in guest:
                # It never returns, so clang does not let it save who called it: nobody can tell.
                cut[guest].pop("guest_start", None)
            print(f"\n{guest}: {samples} samples, {sum(wrong[guest].values())} impossible, {sum(cut[guest].values())} cut short", end=" ", flush=True)
        print(f"\n{total} samples of {len(guests)} images", end=" ", flush=True)
        self.assertFalse({guest: edges for guest, edges in wrong.items() if edges})
        self.assertLessEqual(sum(sum(ends.values()) for ends in cut.values()), CUT_SHORT * total, cut)


if __name__ == "__main__":
    unittest.main()
