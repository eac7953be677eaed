#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""Guests with the traits of guests that others wrote: with frame pointers and CFI, and with CFI of assembly only."""

import json
import random
import unittest

import chance
from guestcase import CUT_SHORT, GuestCase

VARIANTS = ("fp", "cfiasm-nofp")
TABLES_OR_NONE = ("nofp", "cfiasm-nofp")
ENTRY = {"pv": "_start", "pvzero": "_start", "pvh": "start_long_mode"}
# Enough for most shares at once; where not, more is recorded.
OPTIONS, SECONDS = "-F 1000", 1
QUARTERS = {"function_1": 0.25, "function_3": 0.75}


class TraitsCase(GuestCase):
    def check(self, program, platforms, known, roots=None, variants=VARIANTS):
        """On each platform, and in each variant: of two by two guests those two of a diagonal, another one each time."""
        if len(platforms) == 1:
            guests = [(platforms[0], variant) for variant in variants]
        else:
            guests = zip(platforms, random.sample(variants, len(variants)))
        for platform, variant in guests:
            guest = f"{program}-{platform}-{variant}"
            with self.subTest(guest):
                self.check_guest(guest, known, roots or [ENTRY[platform]])

    def check_guest(self, guest, known, roots):
        """Every stack is whole and takes only calls that there are, and the shares are those that are known."""
        self.create(guest, cmdline="seconds=1000")
        self.at_work(guest)
        stacks = self.record_enough(guest, OPTIONS, SECONDS, 400)
        self.no_impossible_edges(guest, stacks)
        allowed = chance.most(CUT_SHORT * sum(stacks.values()))
        elsewhere = {stack: n for stack, n in stacks.items() if stack[0] not in roots}
        self.assertLessEqual(sum(elsewhere.values()), allowed, f"{guest}: {elsewhere}")
        ends = json.loads(self.report(guest, "--json"))["stacks"]["ends"]
        self.assertLessEqual(sum(ends.values()) - ends["whole"], allowed, ends)
        self.check_shares(guest, known, 0.06, OPTIONS, SECONDS, stacks)
        self.dom0(f"xl destroy {guest}")


class Traits(TraitsCase):
    def test_an_entry_whose_page_is_gone_is_read_from_the_file(self):
        self.check("page0", ("pvzero", "pvh"), QUARTERS)

    def test_code_of_64_bits_in_a_file_of_32_has_the_names_of_its_debug_information(self):
        self.check("elf32", ["pvh"], {"function_1": 0.1, "function_2": 0.3, "function_3": 0.6})

    def test_a_handler_that_falls_through_into_labels_stands_on_what_it_interrupted(self):
        self.check("handlers", ["pv"], {"phase_1": 0.5, "phase_2": 0.5})

    def test_64_threads_are_told_apart(self):
        self.check("threads", ("pv", "pvh"), {f"serve_{n}": 0.25 for n in range(1, 5)}, ["thread_starter", "begin_thread"])

    def test_a_call_at_the_end_of_a_function_belongs_to_it(self):
        self.check("noreturn", ("pv", "pvh"), QUARTERS, variants=TABLES_OR_NONE)

    def test_a_frame_is_found_by_a_word_below_the_stack_pointer(self):
        self.check("redzone", ("pv", "pvh"), {**QUARTERS, "hash_blocks": 1}, variants=TABLES_OR_NONE)

    def test_room_for_arguments_behind_a_call_begins_no_function(self):
        self.check("shadow", ["pvh"], QUARTERS, variants=TABLES_OR_NONE)

    def test_stacks_that_share_a_page_or_lie_amid_variables_are_told_apart(self):
        self.check("shared-page", ("pv", "pvh"), {f"serve_{side}": 1 / 3 for side in ("left", "right", "middle")},
                   variants=TABLES_OR_NONE)

    def test_code_without_cfi_is_followed_where_assembly_has_some(self):
        for platform, scale in ("pv", 1000), ("pvh", 150):
            guest = f"app2-{platform}-cfiasm-nofp"
            self.create(guest, cmdline=f"scale={scale}")
            self.at_work(guest)
            stacks = self.record_enough(guest, OPTIONS, SECONDS, 400)
            self.no_impossible_edges(guest, stacks)
            self.assertFalse({stack for stack in stacks if stack[0] != ENTRY[platform]})
            self.dom0(f"xl destroy {guest}")


if __name__ == "__main__":
    unittest.main()
