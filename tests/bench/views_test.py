#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""That views take bounded memory, however long a recording is, and that its benchmark works."""

import filecmp
import json
import os
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests" / "bench")]

from viewing import cli, measure  # noqa: E402

BUILD = Path(os.environ.get("UNIPROF_BUILD", ROOT / "build"))


class Memory(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        directory = cls.enterClassContext(tempfile.TemporaryDirectory(prefix="uniprof-views-"))
        cls.bench = measure.Bench(BUILD, directory)

    def test_ten_million_samples_of_50000_stacks_take_less_than_200_mib(self):
        recording = self.bench.record(10_000_000, 50_000)
        self.assertLess(self.bench.draw(recording)["mib"], 200)
        recording.unlink()

    def test_a_million_stacks_of_30_frames_take_less_than_200_mib(self):
        recording = self.bench.record(1_000_000, 1_000_000, depth=30)
        for view in ("report", "tree", "tree up", "svg", "svg chart", *cli.EXPORTS):
            with self.subTest(view):
                self.assertLess(self.bench.view(recording, *cli.VIEWS[view])["mib"], 200)
        recording.unlink()

    def test_samples_that_went_through_a_file_are_exported_alike(self):
        recording = self.bench.record(2_000_000, 1_000)
        for view in "speedscope", "firefox":
            # Without a place for the file all are kept in memory.
            for out, place in ("by-file", self.bench.directory), ("in-memory", "/nonexistent"):
                subprocess.run([BUILD / "uniprof", "export", f"--format={view}", "-o", self.bench.directory / out, recording], check=True,
                               stderr=subprocess.DEVNULL, env=dict(os.environ, TMPDIR=str(place)))
            written = [self.bench.directory / out for out in ("by-file", "in-memory")]
            # Not read as a whole: a child's peak memory is at least that of its parent.
            self.assertTrue(filecmp.cmp(*written, shallow=False), view)
            self.assertGreater(written[0].stat().st_size, 20_000_000)
        self.assertFalse([left for left in self.bench.directory.iterdir() if left.name.startswith("uniprof-")])
        recording.unlink()

    def test_memory_grows_with_stacks_and_not_with_samples(self):
        few, many = (self.bench.draw(self.bench.record(n, 5_000))["mib"] for n in (100_000, 2_000_000))
        self.assertLess(many, few + 4)


class Benchmark(unittest.TestCase):
    def test_it_prints_an_object_a_line(self):
        done = subprocess.run([ROOT / "tests/bench/views", "--build", BUILD, "--scale", "0.005", "--rounds", "1", "--json",
                               "--symbolize", BUILD / "symbolize"], stdout=subprocess.PIPE, check=True)
        rows = [json.loads(line) for line in done.stdout.splitlines()]
        recordings = [(samples, stacks) for samples in cli.SAMPLES for stacks in cli.STACKS]
        expected = {(view, *recording) for view in cli.VIEWS for recording in recordings}
        expected |= {("symbolize", cli.MILLION, stacks) for stacks in cli.STACKS}
        self.assertEqual(expected, {(row["view"], row["samples"], row["stacks"]) for row in rows})
        self.assertEqual(len(expected), len(rows))
        for row in rows:
            self.assertGreater(row["cpu"], 0)
            self.assertGreater(row["mib"], 0)
            self.assertEqual("ratio" in row, row["view"] == "symbolize")

    def test_figures_over_their_limits_are_told(self):
        row = {"view": "svg", "samples": 10_000_000, "stacks": 1_000_000, "cpu": 4.0, "mib": 300.0}
        self.assertEqual(1, len(list(cli.over([row]))))
        self.assertEqual([], list(cli.over([row | {"mib": 100.0}])))
        self.assertEqual([], list(cli.over([row | {"view": "raw", "cpu": 19.0, "mib": 100.0}])))
        self.assertEqual(1, len(list(cli.over([row | {"view": "raw", "cpu": 21.0, "mib": 100.0}]))))


if __name__ == "__main__":
    unittest.main()
