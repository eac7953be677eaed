#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""A guest that samples itself (inside/): true shares, next to no cost, and off again whatever ends the profiler."""

import re
import struct
import subprocess
import unittest

from hostcase import BUILD, UNIPROF, chance, impossible_edges, named
from qemucase import QemuCase

APP2 = {"function_1": 0.4, "function_2": 0.6, "function_3": 0.4, "function_4": 0.4, "function_5": 0.2}

# Numbers in the ring that change: ticks, head, every, lease (inside/uniprof_inside.h).
DYNAMIC = 56

# Share of the guest's work that sampling takes at most, at 101 samples a second.
COST = 0.002


class Inside(QemuCase):
    def boot_inside(self, variant="fp", **how):
        self.guest = f"inside-pvh-{variant}"
        self.process = self.qemu(self.guest, append="scale=1000", **how)

    def numbers(self):
        """Ticks, head, every and lease of the ring."""
        symbols = subprocess.run(["nm", BUILD / "guests" / f"{self.guest}.elf"], check=True, stdout=subprocess.PIPE).stdout.decode()
        at = int(re.search(r"^([0-9a-f]+) . memory$", symbols, re.MULTILINE)[1], 16) + DYNAMIC
        self.monitor.ask("pmemsave", val=at, size=16, filename=str(self.scratch / "numbers"))
        return struct.unpack("<4I", (self.scratch / "numbers").read_bytes())

    def lease(self):
        return self.numbers()[3]

    def is_on(self):
        head = self.numbers()[1]
        self.wait_for(lambda: self.numbers()[1] > head, "nothing is sampled")

    def is_off(self):
        self.wait_for(lambda: not self.lease(), "the guest goes on sampling")
        ticks, head, _, _ = self.numbers()
        self.wait_for(lambda: self.numbers()[0] > ticks + 5, "the guest's timer stands still")
        self.assertEqual(self.numbers()[1], head)

    def inside(self, *options):
        """Records until it is told to end."""
        profiler = self.start(UNIPROF, "record", "--inside", "-o", self.scratch / "inside.uniprof", *options, f"qemu:{self.process.pid}", cwd=self.scratch)
        self.wait_for(lambda: profiler.poll() is not None or self.lease(), "it is not switched on")
        self.assertIsNone(profiler.poll(), profiler.log.read_text())
        return profiler

    def check_edges(self, stacks):
        self.assertTrue(stacks)
        self.assertFalse(impossible_edges(self.guest, stacks)[0])
        self.assertFalse([stack for stack in stacks if "main" not in stack])

    def test_shares_agree_with_the_truth_and_with_those_from_outside(self):
        self.boot_inside()
        profiler = self.inside()
        outside = self.check_shares(f"qemu:{self.qmp}", APP2, 0.12, ("-F", 200), 5, among=True)
        self.interrupt(profiler)
        inside = self.folded("inside.uniprof")
        self.check_edges(inside)
        n, m = sum(inside.values()), sum(outside.values())
        self.assertGreater(n, 100)
        for name, true in APP2.items():
            share, other = (sum(k for stack, k in stacks.items() if name in stack) / sum(stacks.values()) for stacks in (inside, outside))
            self.assertLess(abs(share - true), chance.margin(true, n))
            self.assertLess(abs(share - other), chance.margin(true, n) + chance.margin(true, m))
        head = self.head("inside.uniprof")
        self.assertEqual(head["paused"]["total_ns"], 0)
        self.assertEqual(head["stacks"]["truncated_share"], 0)
        self.assertLess(head["stacks"]["weight_ns"], head["ticks"]["elapsed_ns"])

    def test_without_frame_pointers(self):
        self.boot_inside("nofp")
        self.uniprof("record", "--inside", "-T", 4, "-o", "inside.uniprof", str(self.process.pid))
        self.check_edges(self.folded("inside.uniprof"))
        self.is_off()

    def test_it_is_off_before_and_after(self):
        self.boot_inside()
        self.is_off()
        profiler = self.inside()
        self.is_on()
        self.interrupt(profiler)
        self.is_off()
        self.goes_on_printing()

    def test_a_killed_profiler_leaves_nothing_on(self):
        self.boot_inside()
        profiler = self.inside()
        self.is_on()
        profiler.kill()
        self.is_off()

    def test_a_profiler_that_is_killed_with_its_guard_leaves_nothing_on(self):
        self.boot_inside()
        before = named("unpause-guard")
        profiler = self.inside()
        self.is_on()
        for guard in named("unpause-guard") - before:
            if (guard / "stat").read_text().rsplit(")", 1)[1].split()[1] == str(profiler.pid):
                subprocess.run(["kill", "-KILL", guard.name], check=True)
        profiler.kill()
        self.is_off()

    def test_guests_without_a_sampler_are_refused(self):
        process = self.start("sleep", "60")
        said = self.uniprof("record", "--inside", "-o", "inside.uniprof", f"process:{process.pid}", expect=3)
        self.assertIn("there is no sampler in the guest", said)
        self.assertIn("goes with none of", self.uniprof("record", "--inside", "--threads", str(process.pid), expect=2))

    def spun(self, word):
        """Instructions that the same work took, and samples that were taken meanwhile."""
        process = self.boot("inside-pvh-fp", "-icount", "shift=0,sleep=off", "-device", "isa-debug-exit,iobase=0xf4,iosize=4",
                            append=f"work=spin inside={word}")
        process.wait(300)
        found = re.search(r"^spun for (\d+) ticks, (\d+) samples", self.console.read_text(errors="replace"), re.MULTILINE)
        self.console.unlink()
        return int(found[1]), int(found[2])

    def test_sampling_costs_next_to_nothing(self):
        without, none = self.spun("none")
        off, nothing = self.spun("off")
        on, samples = self.spun("on")
        self.assertEqual((none, nothing), (0, 0))
        self.assertGreater(samples, 20)
        print(f"off {off / without - 1:.5%}, on {on / without - 1:.5%}, {(on - off) / samples:.0f} instructions a sample", end=" ", flush=True)
        self.assertLess(on / without - 1, COST)


if __name__ == "__main__":
    unittest.main()
