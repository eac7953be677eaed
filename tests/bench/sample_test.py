#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""That the benchmark of sampling works, and that a sample costs no more instructions than it should.

The rig counts instructions here, so that the figures are the same on every machine, however busy.
"""

import os
import shutil
import sys
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests" / "bench"), str(ROOT / "rig" / "lib")]

from sampling import limits, measure, picture, render  # noqa: E402
from xenrig import cross  # noqa: E402
from xenrig.port import ARM64  # noqa: E402

BUILD = Path(os.environ.get("UNIPROF_BUILD", ROOT / "build"))
NUMBERS = ("paused", "single", "whole", "floor", "classic", "libxc", "xenctx")
ROUNDS = 40
# One sample in some hundred takes ten times as long, as dom0 has other work just then: of 40 it bends the mean.
TRIES = 3
# Of the bare calls, even when every sample pauses.
PAUSED = 1.05
LONGEST_OF = 1000


def row(**values):
    return {"guest": "pv", "vcpus": 1, "frames": 8, "unwind": "auto", "unit": "icount_us", "paused": 10, "whole": 12, "floor": 10,
            "classic": 20, "libxc": 50, "xenctx": 9000, "way": "pause", "busy": 1, "calls": 11, "single": 13, "unpaused": 1.0,
            "steps": dict.fromkeys(render.STEPS, 1.0)} | values


WORK = {"guest": "pv", "unit": "icount", "scheduler": "default", "rate": 997, "work": 0.9, "samples_per_second": 160, "paused_share": 0}


class Pages(unittest.TestCase):
    def test_a_figure_over_its_limit_is_marked(self):
        found = {limit.text: limit.ok() for limit in limits.limits([row(way="auto"), WORK])}
        self.assertTrue(found["PV, auto: paused / floor"])
        self.assertFalse(found["PV, auto: whole / floor"])
        self.assertFalse(found["guest's work at 997/s, one CPU, default scheduler"])
        self.assertIn("| over |", render.text([row(way="auto"), WORK]))

    def test_what_was_not_measured_is_left_out(self):
        self.assertEqual([], limits.limits([row(guest="hvm")]))
        self.assertEqual("", render.text([]))
        self.assertNotIn("sampled", picture.draw([row()]))

    def test_the_picture_shows_the_ways(self):
        drawn = picture.draw([row(), WORK])
        for words in ("PV, 8 frames", "uniprof", "classic", "libxc", "9,000", "997/s (160), default"):
            self.assertIn(words, drawn)


@unittest.skipUnless(shutil.which("qemu-system-x86_64"), "no qemu-system-x86_64 on this machine: Xen cannot be booted")
@unittest.skipUnless((BUILD / "tests/bench/sampling/sample_cost").exists(), "sample_cost was not built: no libxenctrl")
class SmokeCase(unittest.TestCase):
    machine = measure.ICOUNT

    def rows(self, setting):
        bench = measure.Bench(BUILD, self.machine, ROUNDS)
        self.addCleanup(bench.close)
        costs = bench.costs(setting)
        return {found["way"]: found for found in measure.rows_of(bench, setting, costs, costs)}

    def check(self, guest):
        rows = self.rows(measure.Setting(guest, unwind="auto"))
        for found in rows.values():
            self.assertTrue(all(isinstance(found[name], (int, float)) for name in NUMBERS), found)
            self.assertAlmostEqual(found["frames_seen"], 8, delta=0.5)
            self.assertLess(found["floor"], found["classic"])
            self.assertLess(found["classic"], found["libxc"])
            self.assertLess(found["libxc"], found["xenctx"])
        self.assertEqual(rows["auto"]["unpaused"], 1)
        self.assertEqual(rows["pause"]["unpaused"], 0)
        self.assertLess(rows["pause"]["paused"], rows["pause"]["whole"])
        self.assertAlmostEqual(sum(rows["pause"]["steps"].values()), rows["pause"]["whole"], delta=0.1)
        return rows


class Smoke(SmokeCase):
    def test_pv(self):
        rows = self.check("pv")
        self.assertLessEqual(rows["auto"]["whole"], 1.17 * rows["auto"]["floor"])
        for found in rows.values():
            self.assertLessEqual(found["paused"], PAUSED * found["floor"])
            self.assertLessEqual(found["whole"], 0.92 * found["classic"])
            self.assertLessEqual(found["whole"], found["xenctx"] / 500)

    def test_a_guest_with_a_trait(self):
        bench = measure.Bench(BUILD, measure.ICOUNT, ROUNDS)
        self.addCleanup(bench.close)
        for _ in range(TRIES):
            rows = list(measure.foreign(bench, ["noreturn-pv"]))
            self.assertEqual([("noreturn-pv", "icount_us")], [(found["guest"], found["unit"]) for found in rows])
            self.assertLessEqual(rows[0]["whole"], 1.2 * rows[0]["floor"])
            self.assertLessEqual(rows[0]["paused"], PAUSED * rows[0]["floor"])
            self.assertIn("| noreturn-pv", render.text(rows))
            over = [limit for limit in limits.limits(rows) if not limit.ok()]
            if not over:
                break
        self.assertEqual(over, [])
        # A gap of a page between two frames, and a stack that leads to another.
        for found in measure.foreign(bench, ["redzone-pv", "shared-page-pvh"]):
            self.assertLessEqual(found["paused"], PAUSED * found["floor"], found)

    def test_pvh(self):
        for found in self.check("pvh").values():
            self.assertLessEqual(found["paused"], PAUSED * found["floor"])
            self.assertLessEqual(found["whole"], 0.65 * found["classic"])


class Pv32(SmokeCase):
    machine = measure.PV32

    def test_a_guest_of_32_bits(self):
        for found in self.check("pv32").values():
            self.assertLessEqual(found["paused"], PAUSED * found["floor"])
            self.assertLessEqual(found["whole"], 0.92 * found["classic"])


@unittest.skipUnless(shutil.which(ARM64.qemu), f"no {ARM64.qemu} on this machine: Xen for arm64 cannot be booted")
@unittest.skipUnless(cross.can_build(ARM64), f"no {cross.compiler(ARM64)} on this machine: uniprof cannot be built for arm64")
class Arm64(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.bench = measure.Bench(BUILD, measure.ARM64, ROUNDS)
        cls.addClassCleanup(cls.bench.close)

    def test_a_guest_stands_still_for_hardly_longer_than_the_bare_calls_take(self):
        for guest in "arm64", "arm32":
            setting = measure.Setting(guest, unwind="auto")
            costs = self.bench.costs(setting)
            rows = {row["way"]: row for row in measure.rows_of(self.bench, setting, costs, costs)}
            print(f"\n{guest}: " + ", ".join(f"{way} {row['paused']} paused, {row['whole']} whole" for way, row in rows.items())
                  + f", floor {rows['auto']['floor']}", end=" ", flush=True)
            for row in rows.values():
                self.assertAlmostEqual(row["frames_seen"], 8, delta=0.5)
                self.assertLessEqual(row["paused"], PAUSED * row["floor"])

    def test_no_pause_is_much_longer_than_the_others_not_even_the_first(self):
        for row in measure.longest(self.bench, LONGEST_OF):
            print(f"\n{row}", end=" ", flush=True)
            self.assertEqual(row["samples"], LONGEST_OF)
            self.assertLessEqual(row["longest_pause"], 10 * row["median_pause"])


if __name__ == "__main__":
    unittest.main()
