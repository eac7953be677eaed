#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""That exact.so counts exactly: against what guests without Xen count and know of themselves.

    exact_test.py PLUGIN DIRECTORY    the plugin, and where the images were built
"""
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import unittest
from pathlib import Path

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from exact import Exact  # noqa: E402

PLUGIN, IMAGES = Path(), Path()
# A guest's platform: QEMU, its options, the kind of file it starts, and instructions in a tick of the guest's clock.
MACHINES = {"pvh": ("qemu-system-x86_64", [], "elf", 1),
            "arm64": ("qemu-system-aarch64", ["-machine", "virt", "-cpu", "cortex-a57"], "image", 16)}


def wait_for_the_end(process):
    """Until QEMU's monitor says that the guest has powered off."""
    while True:
        process.stdin.write("info status\n")
        process.stdin.flush()
        line = process.stdout.readline()
        while "VM status" not in line:
            line = process.stdout.readline()
        if "shutdown" in line:
            return
        time.sleep(0.05)


def run(name, command_line):
    """(Tree, {function: (calls, ticks)}): what the plugin and what the guest counted."""
    qemu, machine, kernel, _ = MACHINES[name.split("-")[1]]
    exact = Exact(PLUGIN)
    elf = IMAGES / f"{name}.elf"
    with tempfile.NamedTemporaryFile("r", encoding="ascii") as console:
        # It stops before its first instruction, and before it powers off: -no-shutdown.
        process = subprocess.Popen(
            [qemu, *machine, "-accel", "tcg,thread=single", "-icount", "shift=0,sleep=off", "-m", "64", "-display", "none",
             "-nodefaults", "-serial", f"file:{console.name}", "-no-shutdown", "-S", "-monitor", "stdio",
             "-plugin", exact.argument, "-kernel", str(elf.with_suffix(f".{kernel}")), "-append", command_line],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        try:
            exact.watch(elf)
            process.stdin.write("cont\n")
            process.stdin.flush()
            wait_for_the_end(process)
            tree = exact.read()
        finally:
            process.kill()
            process.communicate()
            exact.close()
        rows = re.findall(r"^truth (\S+) calls (\d+) ticks (\d+)", console.read(), re.M)
    return tree, {row[0]: (int(row[1]), int(row[2])) for row in rows}


@unittest.skipUnless(shutil.which("qemu-system-x86_64"), "qemu-system-x86_64 is missing")
class Counts(unittest.TestCase):
    def check(self, name, command_line, function, callers):
        _, _, _, instructions = MACHINES[name.split("-")[1]]
        tree, truth = run(name, command_line)
        self.assertEqual(0, tree.lost)
        calls, ticks = truth[function]
        edges = tree.calls_of_edges()
        self.assertEqual(calls, sum(edges[caller, function] for caller in callers))
        # Reading the counter on either side costs less than 40 instructions.
        counted, ran = tree.inclusive()[function], ticks * instructions
        self.assertLessEqual(counted, ran)
        self.assertGreaterEqual(counted, ran - 40 * calls)

    def test_calls_and_instructions_are_those_that_the_guest_counts(self):
        for variant, function in ("fp", "function_1"), ("nofp", "function_3"):
            with self.subTest(variant=variant, function=function):
                self.check(f"app1-pvh-{variant}", "scale=1", function, ["main"])

    @unittest.skipUnless(shutil.which("qemu-system-aarch64"), "qemu-system-aarch64 is missing")
    def test_calls_and_instructions_are_those_that_the_guest_counts_on_arm64(self):
        if not (IMAGES / "app1-arm64-fp.image").exists():
            self.skipTest("guests for Arm were not built (gcc-aarch64-linux-gnu)")
        self.check("app1-arm64-fp", "scale=1", "function_1", ["main"])
        self.check("app2-arm64-gcc-tail-nofp", "scale=1", "function_3", ["function_1"])

    def test_a_deep_recursion_is_counted_on_every_level(self):
        self.check("recursion-pvh-nofp", "seconds=1 depth=500", "bottom", ["recurse"])

    def test_handlers_stand_on_what_they_interrupt_and_take_nothing_from_it(self):
        for stack in "", "stack=own", "stack=ist":
            tree, truth = run("interrupt-pvh-fp", f"seconds=1 {stack}")
            self.assertEqual(0, tree.lost)
            edges = tree.calls_of_edges()
            ticks = sum(calls for (_, callee), calls in edges.items() if callee == "timer_entry")
            self.assertEqual(ticks, truth["tick_1"][0] + truth["tick_2"][0])
            self.assertEqual(edges["main", "phase_1"], truth["phase_1"][0])
            self.assertNotIn(("timer_entry", "timer_entry"), edges)

    def test_two_runs_agree_on_every_stack(self):
        first, second = (run("app2-pvh-nofp", "scale=1")[0].guest for _ in range(2))
        # Polls of the serial port for being ready, and the guest's progress before
        # it is off, depend on the emulator.
        idle = {stack for stack in first.keys() | second.keys() if {"serial_put", "shut_down"} & set(stack)}
        self.assertEqual({s: n for s, n in first.items() if s not in idle},
                         {s: n for s, n in second.items() if s not in idle})


if __name__ == "__main__":
    IMAGES, PLUGIN = Path(sys.argv.pop()), Path(sys.argv.pop())
    unittest.main()
