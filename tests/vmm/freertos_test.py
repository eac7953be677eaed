#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""Tasks of a guest on arm64 that keeps them as FreeRTOS does: their names, states and stacks, and what they wait for, compared with what they tell inside."""

import json
import re
import subprocess
import unittest

from hostcase import BUILD, chance
from qemucase import QemuCase

RATE = 97
SECONDS = 10
# Under emulation a look at a task takes some milliseconds.
COST = 50
TOLERANCE = 0.03

# What the waiter waits in, in the order in which it tells its times.
WAITS = ("lock_for", "event_for", "sleep_for")
# Functions that each task is in when it waits.
FUNCTIONS = {"waiter": {*WAITS, "down"}, "holder": {"down", "nap"}, "maker": {"down", "nap"}, "worker": {"nap"}, "halted": {"leave_for_ever"}}
# The states of those that never run again.
STILL = {"halted": "stopped", "ended": "dead"}


class FreeRTOS(QemuCase):
    def boot_tasks(self, guest):
        self.file = BUILD / "guests" / f"{guest}.elf"
        self.qemu(guest, append="seconds=100000")
        self.wait_for(self.inside, "it tells no waits", 300)

    def without_types(self):
        file = self.scratch / "untyped.elf"
        subprocess.run(["aarch64-linux-gnu-objcopy", "--strip-debug", self.file, file], check=True)
        self.file = file

    def inside(self):
        """ns that each wait has had, as it was told last."""
        told = re.findall(r"^waited (\d+) (\d+) (\d+)\r?\n", self.console.read_text(), re.M)
        return [int(ns) for ns in told[-1]] if told else None

    def rows(self, options):
        """{values of the keys: weight in ns, callees' too}, and all that was told."""
        told = json.loads(self.uniprof("report", "--json", "--rows", 0, *options.split(), "out.uniprof"))
        keys = re.search(r"--by (\S+)", options)[1].split(",")
        return {tuple(row[name] for name in keys): row["total"]["weight_ns"] for row in told["rows"]}, told

    def take(self, attempt):
        before = self.inside()
        self.uniprof("record", "-q", "--threads", "--thread-cost", COST, "-F", RATE, "--max-overhead", 100, "-T", SECONDS * chance.longer(attempt),
                     "-s", self.file, "-o", "out.uniprof", f"qemu:{self.qmp}", timeout=60 * chance.longer(attempt))
        had = [after - ns for after, ns in zip(self.inside(), before)]
        rows, told = self.rows("--state off-cpu --by thread,function")
        weights = {function: ns for (thread, function), ns in rows.items() if thread.startswith("FreeRTOS/waiter ") and function in WAITS}
        whole = max(sum(weights.values()), 1)
        samples = told["stacks"]["selected"] / len(FUNCTIONS)
        return ({function: samples * ns / whole for function, ns in weights.items()},
                {function: ns / max(sum(had), 1) for function, ns in zip(WAITS, had)})

    def check_list(self, still):
        told = json.loads(self.uniprof("ps", "--json", "-s", self.file, f"qemu:{self.qmp}"))
        self.assertEqual(told["system"], "FreeRTOS")
        self.assertIsNone(told["trouble"])
        states = {thread["name"]: thread["state"] for process in told["processes"] for thread in process["threads"]}
        self.assertEqual(states.keys(), {*FUNCTIONS, *STILL})
        self.assertEqual({name: states.pop(name) for name in STILL}, still)
        self.assertLessEqual({*states.values()}, {"running", "runnable", "sleeping"})

    def check_stacks(self):
        """Each task that waits is where it waits, and its stack is whole."""
        seen = {name: set() for name in FUNCTIONS}
        for _ in range(30):
            told = json.loads(self.uniprof("stack", "-q", "--all-threads", "--full-names", "--json", "-s", self.file, f"qemu:{self.qmp}"))
            for thread in told["threads"]:
                functions = [frame["symbol"] for frame in thread.get("trace", [])]
                if not functions:
                    continue
                self.assertEqual(functions[0], "leave_cpu", thread)
                self.assertEqual(functions[-1], thread["name"], thread)
                self.assertTrue(FUNCTIONS[thread["name"]] & set(functions), thread)
                seen[thread["name"]] |= FUNCTIONS[thread["name"]] & set(functions)
            if all(seen.values()) and len(seen["waiter"] & set(WAITS)) > 1:
                return
        self.fail(seen)

    def check_threads(self):
        """The vCPU's samples have their tasks, whose time that is; each task has waited but for when it ran."""
        running, told = self.rows("--by thread")
        self.assertEqual({thread.partition(" ")[0] for thread, in sorted(running, key=running.get)[-2:]}, {"[idle]", "FreeRTOS/worker"})
        waits, told = self.rows("--state off-cpu --by thread")
        elapsed = told["ticks"]["elapsed_ns"]
        for name in ("waiter", "holder", "maker", "halted"):
            (had,) = [ns for (thread,), ns in waits.items() if thread.startswith(f"FreeRTOS/{name} ")]
            self.assertGreater(had, 0.8 * elapsed, waits)
            self.assertLessEqual(had, 1.05 * elapsed, waits)
        states, _ = self.rows("--by state")
        self.assertGreater(states[("sleeping",)], states[("stopped",)])

    def test_waits(self):
        self.boot_tasks("tasks-arm64-fp")
        self.check_list(STILL)
        self.check_stacks()
        chance.check_shares(self.take, TOLERANCE)
        self.check_threads()
        self.goes_on_printing()

    def test_without_frame_pointers_and_types(self):
        self.boot_tasks("tasks-arm64-nofp")
        self.without_types()
        # A task that was suspended is not told from one that waits for a notification.
        self.check_list({**STILL, "halted": "other"})
        self.check_stacks()
        chance.check_shares(self.take, TOLERANCE)
        self.goes_on_printing()


if __name__ == "__main__":
    unittest.main()
