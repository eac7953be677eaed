#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""Files that uniprof writes: who may read them, what is not overwritten, and what is said when they cannot be written."""

import fcntl
import os
import subprocess
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
BUILD = Path(os.environ.get("UNIPROF_BUILD", ROOT / "build"))
CANNOT_WRITE = 7


class Outputs(unittest.TestCase):
    def setUp(self):
        directory = tempfile.TemporaryDirectory(prefix="uniprof-outputs-")
        self.addCleanup(directory.cleanup)
        self.place = Path(directory.name)
        for name in "a", "b":
            subprocess.run([BUILD / "tests/browser/folded_to_recording", self.place / name, "1"], check=True, input=b"main;work 100\nmain;rest 50\n")
        self.before = (self.place / "a").read_bytes()

    def uniprof(self, *arguments, expect=0):
        done = subprocess.run([BUILD / "uniprof", *arguments], cwd=self.place, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, check=False, umask=0)
        text = done.stdout.decode()
        self.assertEqual(done.returncode, expect, text)
        return text

    def unchanged(self, *arguments):
        text = self.uniprof(*arguments, expect=CANNOT_WRITE)
        self.assertIn("it is what is read, too", text)
        self.assertEqual((self.place / "a").read_bytes(), self.before)

    def test_a_recording_is_not_overwritten_by_what_is_made_of_it(self):
        os.link(self.place / "a", self.place / "link")
        for output in "a", "link":
            self.unchanged("export", "--format=folded", "-o", output, "a")
            self.unchanged("flamegraph", "-o", output, "a")
            self.unchanged("merge", "-o", output, "a", "b")
            self.unchanged("diff", "-o", output, "b", "a")

    def test_only_the_owner_can_read_what_is_written(self):
        self.uniprof("export", "-o", "a.folded", "a")
        self.uniprof("flamegraph", "-o", "a.svg", "a")
        self.uniprof("merge", "-o", "both", "a", "b")
        for name in "a.folded", "a.svg", "both":
            self.assertEqual((self.place / name).stat().st_mode & 0o777, 0o600, name)

    def test_a_file_that_another_process_writes_is_refused_with_its_number(self):
        with (self.place / "busy").open("w") as busy:
            busy.write("what the other process writes")
            busy.flush()
            fcntl.flock(busy, fcntl.LOCK_EX)
            for command in ("merge", "-o", "busy", "a", "b"), ("export", "--format=folded", "-o", "busy", "a"):
                self.assertIn(f"process {os.getpid()} is writing it", self.uniprof(*command, expect=CANNOT_WRITE))
        self.assertEqual((self.place / "busy").read_text(), "what the other process writes")

    def test_why_a_file_cannot_be_written_is_told(self):
        for command in ("export", "--format=folded", "-o", "/dev/full", "a"), ("flamegraph", "-o", "/dev/full", "a"), ("merge", "-o", "/dev/full", "a", "b"):
            text = self.uniprof(*command, expect=CANNOT_WRITE)
            self.assertRegex(text.lower(), "no space (is )?left on (the )?device")


if __name__ == "__main__":
    unittest.main()
