#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""`uniprof history`: the load of a guest over time, from what `uniprof agent` keeps; made-up segments."""

import fcntl
import json
import os
import pty
import re
import struct
import subprocess
import sys
import tempfile
import termios
import time
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests" / "bench")]

from viewing.store import HOUR, Store, moment  # noqa: E402

BUILD = Path(os.environ.get("UNIPROF_BUILD", ROOT / "build")).resolve()
HZ, VCPUS = 2, 2

# Four hours of some day, the third of which is missing, and ten minutes of the fifth.
START = 1790000000 // HOUR * HOUR
END = START + 4 * HOUR + 600


def iso(unix_s):
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(unix_s))


class Case(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.place = Path(cls.enterClassContext(tempfile.TemporaryDirectory(prefix="uniprof-history-")))
        cls.store = Store(BUILD, cls.place, HZ, stacks=200, vcpus=VCPUS)
        for hour in (0, 1, 3):
            cls.store.hour("web", START + hour * HOUR)
        for minute in range(10):
            cls.store.minute("web", START + 4 * HOUR + minute * 60)

    def uniprof(self, verb, *options, guest="web", zone="UTC", window=("--from", iso(START), "--to", iso(END))):
        done = subprocess.run([BUILD / "uniprof", verb, *options, *window, "--store", self.place, guest], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                              env=os.environ | {"TZ": zone}, timeout=300, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout.decode()

    def json(self, *options, **more):
        return json.loads(self.uniprof("history", "--json", *options, **more))


class Numbers(Case):
    def test_sums_are_those_of_the_report_to_the_nanosecond(self):
        for key in ("function", "image", "vcpu"):
            with self.subTest(key):
                report = json.loads(self.uniprof("report", "--json", "--by", key))
                history = self.json("--by", key, "-n", "5")
                own = {str(row[key]): row["self"]["weight_ns"] for row in report["rows"] if row["self"]["weight_ns"]}
                named = {row["name"]: row["weight_ns"] for row in history["rows"] if row["name"] is not None}
                self.assertEqual(len(named), min(5, len(own)))
                self.assertEqual(named, {name: own[name] for name in named})
                self.assertEqual(sum(row["weight_ns"] for row in history["rows"]), report["stacks"]["weight_ns"])
                for row in history["rows"]:
                    self.assertEqual(sum(row["weights_ns"]), row["weight_ns"])

    def test_filters_choose_what_they_choose_in_the_report(self):
        options = ("--vcpu", "1", "--weight", "time")
        report = json.loads(self.uniprof("report", "--json", *options))
        self.assertEqual(sum(row["weight_ns"] for row in self.json(*options)["rows"]), report["stacks"]["weight_ns"])

    def test_time_without_recordings_is_a_gap_and_no_idle_time(self):
        history = self.json("--step", "1h")
        recorded = [ns / 1e9 for ns in history["recorded_ns"]]
        self.assertEqual(len(recorded), 5)
        self.assertEqual(recorded[2], 0)
        for hour, seconds in ((0, HOUR), (1, HOUR), (3, HOUR), (4, 600)):
            self.assertAlmostEqual(recorded[hour], seconds, delta=2)
            states = sum(history["states_ns"][state][hour] for state in ("running", "runnable", "blocked"))
            self.assertEqual(states, VCPUS * history["recorded_ns"][hour])
        axis = re.search(r"(?m)^ +0 \+(.*)$", self.uniprof("history", "--step", "1h"))[1]
        self.assertRegex(axis, r"^(-+) {14}(-+)$")

    def test_columns_begin_at_round_times_of_the_local_clock(self):
        history = self.json("--step", "1h", zone="Asia/Kolkata")  # 5:30 ahead
        self.assertEqual(history["first_s"] % HOUR, 1800)
        self.assertIn("IST", self.uniprof("history", zone="Asia/Kolkata"))

    def test_damaged_segments_are_told_and_skipped(self):
        for minute in range(3):
            path = self.store.minute("hurt", START + minute * 60)
        path.write_bytes(path.read_bytes()[:200] + bytes(100) + path.read_bytes()[300:])
        text = self.uniprof("history", guest="hurt")
        self.assertIn("1 of the recordings of that time could not be read whole", text)
        self.assertGreaterEqual(sum(self.json(guest="hurt", window=("--from", iso(START), "--to", iso(START + 180)))["recorded_ns"]), 119e9)

    def test_only_segments_of_the_time_asked_for_are_opened(self):
        """Or the last minutes of a week would take as long as the week."""
        for ago in range(5):
            path = self.store.hour("old", START - ago * HOUR)
            path.write_bytes(b"no recording")
        for minute in range(10):
            self.store.minute("old", START + 2 * HOUR + minute * 60)
        window = ("--from", iso(START + 2 * HOUR), "--to", iso(START + 2 * HOUR + 600))
        self.assertNotIn("could not be read", self.uniprof("report", guest="old", window=window))
        self.assertIn("recorded 10 min", self.uniprof("history", guest="old", window=window))

    def test_a_day_is_compared_with_the_day_before(self):
        now = int(time.time())
        for start in (now - 600, now - 600 - 24 * HOUR):
            for minute in range(10):
                self.store.minute("daily", start + minute * 60)
        text = self.uniprof("diff", "--against", "yesterday", guest="daily", window=("--last", "10m"))
        self.assertIn("function_0", text)

    def test_a_plain_recording_has_a_history_too(self):
        path = self.place / "web" / f"{moment(START + 4 * HOUR)}.uniprof"
        history = self.json(guest=path, window=())
        self.assertEqual((history["from_s"], history["step_s"]), (START + 4 * HOUR, 1))


class Text(Case):
    def test_it_is_as_wide_as_the_terminal(self):
        for width in (40, 77, 200):
            with self.subTest(width):
                lines = self.on_terminal(width).splitlines()
                chart = [line for line in lines if re.match(r"^[ \d.]{6} [|+]", line)]
                self.assertEqual(len(chart), 13)
                for line in chart:
                    self.assertLessEqual(len(line), width)
                self.assertGreater(max(map(len, chart)), width * 0.6)

    def on_terminal(self, width):
        ours, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 30, width, 0, 0))
        child = subprocess.Popen([BUILD / "uniprof", "history", "--color", "never", "--from", iso(START), "--to", iso(END), "--store", self.place, "web"],
                                 stdout=theirs, stderr=subprocess.DEVNULL)
        os.close(theirs)
        text = b""
        try:
            while part := os.read(ours, 65536):
                text += part
        except OSError:  # the other side is closed
            pass
        os.close(ours)
        self.assertEqual(child.wait(60), 0)
        return text.decode().replace("\r", "")

    def test_the_command_that_it_tells_works(self):
        text = self.uniprof("history")
        command = re.search(r"(?m)^  uniprof (flamegraph .*)$", text)[1]
        subprocess.run(f"{BUILD}/uniprof {command}", shell=True, check=True, cwd=self.place, env=os.environ | {"TZ": "UTC"})
        self.assertIn("function_0", text)
        self.assertGreater((self.place / "busiest.html").stat().st_size, 1000)

    def test_bands_are_the_letters_of_the_legend(self):
        text = self.uniprof("history", "-n", "2")
        self.assertRegex(text, r"(?m)^A +[\d.]+ +[\d.]+ +[\d.]+ %  function_0$")
        chart = set("".join(re.findall(r"(?m)^[ \d.]{6} [|+](.*)$", text))) - set(" -_")
        self.assertEqual(chart, set("ABo"))


class Page(Case):
    def test_the_page_holds_what_the_json_tells_and_no_code_of_a_name(self):
        subprocess.run([BUILD / "uniprof", "history", "--title", "</script><b>", "--from", iso(START), "--to", iso(END), "--store", self.place,
                        "-o", self.place / "web.html", "web"], check=True)
        page = (self.place / "web.html").read_text()
        data = re.search(r'<script type="text/plain" id="profile">(.*?)</script>', page, re.S)[1]
        self.assertEqual(json.loads(data), self.json("--title", "</script><b>"))
        self.assertEqual(page.count("</script>"), 2)


if __name__ == "__main__":
    unittest.main(verbosity=2)
