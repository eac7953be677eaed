#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""The raw trace and the folded stacks of one recording say the same.

Usage: raw_trace_test.py EXPORT_EXAMPLE [unittest options]

The trace is collapsed here the way FlameGraph's stackcollapse.pl documents
it, and by that program itself where FLAMEGRAPH_DIR says where it is.
"""

import os
import re
import subprocess
import sys
import tempfile
import unittest
from collections import Counter

EXAMPLE = os.path.abspath(sys.argv.pop(1))


def collapse(trace):
    """Multi-line stacks with a count behind each, after three lines of head."""
    stacks, frames = Counter(), []
    for line in trace.split(b"\n")[3:]:
        if re.fullmatch(rb"\s*\d+", line):
            stacks[b";".join(frames)] += int(line)
            frames = []
        elif line.strip():
            name = re.sub(rb"\+[^+]*$", b"", line.lstrip())
            frames.insert(0, name.replace(b";", b":"))
    return b"".join(b"%s %d\n" % stack for stack in sorted(stacks.items()))


def without_leading_l(folded):
    """stackcollapse.pl deletes a leading L from names."""
    return re.sub(rb"(^|;)L", rb"\1", folded, flags=re.MULTILINE)


class RawTrace(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        with tempfile.TemporaryDirectory() as work:
            subprocess.run([EXAMPLE, work], check=True)
            with open(os.path.join(work, "example.raw"), "rb") as file:
                cls.raw = file.read()
            with open(os.path.join(work, "example.folded"), "rb") as file:
                cls.folded = file.read()

    def test_collapsed_trace_is_the_folded_export(self):
        self.assertEqual(collapse(self.raw), self.folded)

    def test_nothing_was_lost(self):
        counts = [int(line.rsplit(b" ", 1)[1]) for line in self.folded.splitlines()]
        self.assertEqual(sum(counts), self.raw.count(b"\n1\n\n"))
        self.assertGreater(len(counts), 500)
        for name in (b"Lua", b"operator+", b"123", b"0x77", b"semi:colon", b"[no stack]"):
            self.assertRegex(self.folded, rb"(?m)(^|;)" + re.escape(name) + rb"[; ]")

    def test_every_line_is_text_with_a_count(self):
        for line in self.folded.decode("utf-8", "strict").split("\n")[:-1]:
            self.assertRegex(line, r"^[^\x00-\x1f]+ [1-9][0-9]*$")

    @unittest.skipUnless("FLAMEGRAPH_DIR" in os.environ, "FLAMEGRAPH_DIR is not set")
    def test_stackcollapse_gives_the_same(self):
        script = os.path.join(os.environ["FLAMEGRAPH_DIR"], "stackcollapse.pl")
        done = subprocess.run(["perl", script], input=self.raw, stdout=subprocess.PIPE, check=True)
        expected = without_leading_l(self.folded)
        self.assertEqual(sorted(done.stdout.splitlines()), sorted(expected.splitlines()))


if __name__ == "__main__":
    unittest.main()
