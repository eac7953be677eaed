#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""Python programs in a Linux guest of QEMU: their functions and lines in place of the interpreter's, with the shares that they count themselves."""

import collections
import json
import os
import re
import sys
import time
import unittest

import python_test
from hostcase import PROGRAMS, chance
from linuxcase import BOOT, LinuxCase
from linuxfiles import PYTHON, files_of, python_files, python_words

TOLERANCE = 0.03

# Stacks that stay as they are until it is known where threads have their frames, and each function has been read in four stops.
BEGINNING = 60
# ... and later, of all: of a loop that is just entered, or a function that is just made.
LATER = 0.03

FOUND = re.compile(r"CPython 3\.11\.\d+: (\d+) stacks have its functions, (\d+) do not")


@unittest.skipIf(sys.platform != "linux" or os.uname().machine != "x86_64" or not PYTHON.exists(), f"there is no {PYTHON} for x86-64")
class LinuxPython(LinuxCase):
    def start_python(self, name, script):
        """Debian's Python as the first program of a guest, with a script; its files are below self.root, too."""
        files = python_files(name, script)
        self.start_linux(f"quiet console=ttyS0 pti=on {python_words(name)}", more=files)
        self.put_root(files)

    def console_says(self, words):
        self.wait_for(lambda: self.console.exists() and words in self.console.read_text(errors="replace"), "its program does not begin", BOOT)

    def record(self, attempt, *options):
        self.said = self.uniprof("record", "-v", "--max-overhead", 50, "-F", 97, "-T", 6 * chance.longer(attempt), "--sysroot", self.root, *options,
                                 "-o", "out.uniprof", f"qemu:{self.qmp}", timeout=600)
        return self.folded("out.uniprof")

    def spent(self):
        """CPU time of each kind of work until now, as the program told last."""
        told = json.loads(re.findall(r"^(\{.*\})\r?\n", self.console.read_text(), re.M)[-1])
        spent = collections.Counter()
        for name, seconds in told.items():
            spent[python_test.WORK[name.split()[1]]] += seconds
        return spent

    def start_counted(self):
        self.start_python("counted.py", python_test.COUNTED.read_text())
        self.console_says('"t0 plain"')
        self.wait_for_thread("python3.11")

    def take(self, attempt):
        before = self.spent()
        taken = self.record(attempt)
        time.sleep(0.5)
        known = self.spent()
        known.subtract(before)
        self.stacks.update(taken)
        merged, stayed = map(int, FOUND.search(self.said).groups())
        print(f"\n{merged} stacks with functions, {stayed} without", end=" ", flush=True)
        self.assertLessEqual(stayed, BEGINNING + chance.most(LATER * merged), self.said)
        return ({stack: n for stack, n in taken.items() if any(name in stack for name in python_test.WORK.values())},
                {name: seconds / sum(known.values()) for name, seconds in known.items()})

    def check_lines(self):
        source = python_test.COUNTED.read_text().splitlines()
        text = self.uniprof("report", "--annotate", "counted.spin", "out.uniprof")
        lines = {source[int(line) - 1].strip() for line in re.findall(r"counted\.py:(\d+)", text)}
        self.assertIn("total += i * i % 7", lines)
        self.assertLessEqual(lines, {"def spin(rounds):", "total = 0", "for i in range(rounds):", "total += i * i % 7", "return total"})

    def test_shares_calls_and_lines(self):
        self.stacks = collections.Counter()
        self.start_counted()
        chance.check_shares(self.take, TOLERANCE)
        python_test.Python.check_edges(self, self.stacks)
        self.assertTrue([stack for stack in self.stacks if stack.count("counted.recurse") == 41])
        for stack in self.stacks:
            self.assertIn(stack.count("counted.recurse"), range(42))
        self.check_lines()

    def test_functions_that_come_and_go_keep_their_names(self):
        self.start_python("churn.py", 'print("begins", flush=True)\n' + python_test.CHURN)
        self.console_says("begins")
        self.wait_for_thread("python3.11")
        pairs, mixed = 0, []
        for attempt in range(chance.TAKES):
            for stack in self.record(attempt):
                inner, outer = ([name for name in stack if f".{kind}_" in name] for kind in ("inner", "outer"))
                if inner:
                    n = inner[0].rpartition("_")[2]
                    pairs += 1
                    if (inner, outer) != ([f"m{n}.inner_{n}"], [f"m{n}.outer_{n}"]):
                        mixed.append((inner, outer))
            if pairs > 20:
                break
        self.assertGreater(pairs, 20)
        self.assertEqual(mixed, [])

    def test_a_program_that_lies_has_its_c_stack(self):
        """It is mapped under the interpreter's name, and what it says of itself changes all the time."""
        files = files_of({str(PYTHON).lstrip("/"): PROGRAMS / "liar"})
        self.start_linux(f"quiet console=ttyS0 pti=on rdinit={PYTHON}", more=files)
        self.put_root(files)
        self.wait_for_thread("python3.11")
        stacks = self.record(2)
        merged, stayed = map(int, FOUND.search(self.said).groups())
        self.assertGreater(stayed, 0)
        self.assertLessEqual(merged, stayed // 100)
        self.assertTrue([stack for stack in stacks if "_PyEval_EvalFrameDefault" in stack])
        # It goes on, and is sampled at the usual rate.
        self.assertGreater(sum(self.record(0).values()), 0)

    def test_functions_are_left_out_if_so_asked(self):
        self.start_counted()
        stacks = self.record(0, "--no-python")
        self.assertTrue([stack for stack in stacks if "_PyEval_EvalFrameDefault" in stack])
        self.assertFalse([stack for stack in stacks if python_test.own(stack)])


if __name__ == "__main__":
    unittest.main()
