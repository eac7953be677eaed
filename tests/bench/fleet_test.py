#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""That the benchmark of a fleet counts what it sends."""

import json
import os
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests" / "bench")]

from viewing import measure  # noqa: E402

BUILD = Path(os.environ.get("UNIPROF_BUILD", ROOT / "build"))


class Fleet(unittest.TestCase):
    def test_what_is_sent_is_taken_and_stored(self):
        with tempfile.TemporaryDirectory(prefix="uniprof-fleet-") as directory:
            recording = measure.Bench(BUILD, directory).record(1000, 100)
            done = subprocess.run([ROOT / "tests/bench/fleet", "--build", BUILD, "--agents", "20", "--minutes", "0.05", "--json", recording],
                                  stdout=subprocess.PIPE, check=True)
        *sizes, sums = [json.loads(line) for line in done.stdout.splitlines()]
        size = {row["bytes of a guest and minute"]: row["bytes"] for row in sizes}
        self.assertEqual(set(size), {"kept by the agent", "otlp", "pyroscope", "parca"})
        self.assertEqual((sums["guests"], sums["sent"], sums["taken"]), (200, 10, 10))
        self.assertEqual(sums["received_bytes"], 10 * size["otlp"])
        self.assertGreater(sums["stored_bytes"], 0)
        self.assertGreater(sums["receiver_cpu"], 0)


if __name__ == "__main__":
    unittest.main()
