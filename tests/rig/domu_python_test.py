#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""Debian's Python in a domU with Debian's own kernel: its functions in place of the interpreter's, with the shares that it counts itself."""

import collections
import json
import re
import sys
import tempfile
import unittest
from pathlib import Path

import chance
from guestcase import LINUX_PARAMETERS, ROOT, GuestCase
from linuxfiles import PYTHON, archive, python_files, python_words

sys.path.append(str(ROOT / "tests" / "vmm"))

import python_test  # noqa: E402

CREATE = r"""
rm -f /var/log/xen/console/guest-python.log
printf 'name="python"\ntype="TYPE"\nkernel="linux"\nramdisk="SCRIPT.cpio"\nmemory=256\nvcpus=1\ntsc_mode="native"\nextra="WORDS"\n' >python.cfg
xl create python.cfg || exit
i=0
until grep -q 'BEGUN' /var/log/xen/console/guest-python.log; do i=$((i + 1)); [ $i -lt 200 ] || exit 1; sleep 1; done
"""

SCRIPTS = {"counted": python_test.COUNTED.read_text(encoding="utf-8"), "churn": f'print("begins", flush=True)\n{python_test.CHURN}'}

# At many more samples a second, sampling and the guest's own time slices would fall into step on one CPU.
RATE = 43
SECONDS = 30
TOLERANCE = 0.03

# Stacks that stay as they are: at first, until it is known where threads have their frames; and later, of all.
BEGINNING = 60
LATER = 0.03

FOUND = re.compile(r"CPython 3\.11\.\d+: (\d+) stacks have its functions, (\d+) do not")


class PythonCase(GuestCase):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.bring_linux()
        with tempfile.TemporaryDirectory() as directory:
            for name, script in SCRIPTS.items():
                file = Path(directory) / f"{name}.cpio"
                file.write_bytes(archive({"dev": (0o40755, b"", (0, 0)), "dev/console": (0o20600, b"", (5, 1)), **python_files(f"{name}.py", script)}))
                cls.rig.put(file)

    def start(self, kind, name, begun, parameters=""):
        create = CREATE
        for word, text in (("TYPE", kind), ("SCRIPT", name), ("BEGUN", begun), ("WORDS", f"{LINUX_PARAMETERS} {parameters} {python_words(f'{name}.py')}")):
            create = create.replace(word, text)
        status, text = self.dom0(create, 500)
        self.assertEqual(status, 0, text + self.console("python"))


@unittest.skipIf(not PYTHON.exists(), f"there is no {PYTHON}")
class DomuPython(PythonCase):
    """Counts instructions: on a busy machine its clock tells too much of what waits for memory."""

    rig_options = {"icount": True}

    def spent(self):
        """CPU time of each kind of work until now, as the program told last."""
        told = json.loads(re.findall(r"^(\{.*\})\r?\n", self.console("python"), re.M)[-1])
        spent = collections.Counter()
        for name, seconds in told.items():
            spent[python_test.WORK[name.split()[1]]] += seconds
        return spent

    def take(self, attempt):
        before = self.spent()
        said = self.record("python", f"-v {self.options} -F {RATE} -T {SECONDS * chance.longer(attempt)}", timeout=60 * chance.longer(attempt))
        known = self.spent()
        known.subtract(before)
        taken = self.folded("python")
        self.stacks.update(taken)
        # On a busy machine all of it may be the search for the kernel.
        told = FOUND.search(said)
        merged, stayed = map(int, told.groups()) if told else (0, 0)
        print(f"\n{merged} stacks with functions, {stayed} without", end=" ", flush=True)
        self.assertLessEqual(stayed, BEGINNING + chance.most(LATER * merged), said)
        return ({stack: n for stack, n in taken.items() if any(name in stack for name in python_test.WORK.values())},
                {name: seconds / sum(known.values()) for name, seconds in known.items()})

    def check(self, kind, parameters="", options=""):
        self.options = options
        self.start(kind, "counted", '"t0 plain"', parameters)
        self.stacks = collections.Counter()
        chance.check_shares(self.take, TOLERANCE)
        python_test.Python.check_edges(self, self.stacks)
        self.assertTrue([stack for stack in self.stacks if stack.count("counted.recurse") == 41])
        for stack in self.stacks:
            self.assertIn(stack.count("counted.recurse"), range(42))
        self.runs_on("python")

    def test_pvh_in_pauses_with_tables_of_the_kernel_apart(self):
        """On one CPU a guest never runs while it is sampled, and is not paused unless that is asked for."""
        self.check("pvh", "pti=on", "--always-pause")

    def test_pv_without_a_pause(self):
        self.check("pv")


@unittest.skipIf(not PYTHON.exists(), f"there is no {PYTHON}")
class Churn(PythonCase):
    def test_functions_that_come_and_go_keep_their_names(self):
        """Each calls the one that was made with it, at addresses that are used again and again."""
        self.start("pvh", "churn", "begins")
        pairs, mixed = 0, []
        for attempt in range(chance.TAKES):
            self.record("python", f"-q --always-pause -F {RATE} -T {SECONDS * chance.longer(attempt)}", timeout=60 * chance.longer(attempt))
            for stack in self.folded("python"):
                inner, outer = ([name for name in stack if f".{kind}_" in name] for kind in ("inner", "outer"))
                if inner:
                    n = inner[0].rpartition("_")[2]
                    pairs += 1
                    if (inner, outer) != ([f"m{n}.inner_{n}"], [f"m{n}.outer_{n}"]):
                        mixed.append((inner, outer))
            if pairs > 20:
                break
        print(f"\n{pairs} stacks", end=" ", flush=True)
        self.assertGreater(pairs, 20)
        self.assertEqual(mixed, [])


if __name__ == "__main__":
    unittest.main()
