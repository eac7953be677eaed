#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""`uniprof stack` on guests with known answers, beside xenctx, and whatever way it ends."""

import json
import random
import re
import subprocess
import unittest
from pathlib import Path

from guestcase import GUESTS, GuestCase

USAGE, NO_GUEST, NO_OUTPUT = 2, 3, 7


class Stack(GuestCase):
    def stack(self, arguments, expect=0):
        status, text = self.dom0(f"uniprof stack {arguments}")
        self.assertEqual(status, expect, text)
        return text

    def json(self, arguments):
        return json.loads(self.stack(f"--json -q {arguments}"))

    def names(self, vcpu):
        return [frame.get("symbol") for frame in vcpu["trace"]]

    def xenctx(self, guest):
        """{register: value} of the only vCPU, as xenctx sees it."""
        status, text = self.dom0(f"xenctx -a $(xl domid {guest})")
        self.assertEqual(status, 0, text)
        return {name: int(value, 16) for name, value in re.findall(r"\b(r[a-z0-9]{1,2}|cr\d|[c-gs]s|flags): +([0-9a-f]+)", text)}

    def instructions(self, guest, start, count):
        """The addresses and bytes that objdump shows from `start` on."""
        listed = subprocess.run(["objdump", "-dzw", f"--start-address=0x{start}", GUESTS / f"{guest}.elf"],
                                check=True, capture_output=True, text=True).stdout
        found = re.findall(r"^ *([0-9a-f]+):\t((?:[0-9a-f]{2} )+)", listed, re.M)
        return [(int(address, 16), bytes.fromhex(code)) for address, code in found[:count]]

    def same_as_xenctx(self, guest, vcpu):
        theirs = self.xenctx(guest)
        self.assertGreater(len(theirs), 20, theirs)
        general, control = vcpu["registers"]["general"], vcpu["registers"]["control"]
        ours = {name: int(value, 16) for name, value in {**general, **control}.items()}
        ours.update({name: int(segment["selector"], 16) for name, segment in vcpu["segments"].items() if "selector" in segment})
        ours["flags"] = ours["rflags"]
        for name, value in theirs.items():
            self.assertEqual(ours[name], value, f"{guest}: {name}")

    def paused_guest_is_as_xenctx_sees_it(self, guest):
        self.busy(guest)
        self.at_work(guest)
        self.dom0(f"xl pause {guest}")
        seen = self.json(guest)
        self.assertEqual(seen["state"], "paused")
        self.assertEqual(seen["paused_ns"], 0)
        vcpu = seen["vcpus"][0]
        self.same_as_xenctx(guest, vcpu)
        self.assertTrue(vcpu["whole"], vcpu["end"])
        names = self.names(vcpu)
        self.assertIn("main", names)
        self.no_impossible_edges(guest, {tuple(reversed(names)): 1})
        text = self.stack(f"-S -a -D -n 2 -l max {guest}")
        self.assertIn("state    paused; not stopped for this dump", text)
        self.assertRegex(text, r"words .*\n +[0-9a-f]{16}  [0-9a-f]{16}  \w+\+0x")
        self.assertIn("--p---", self.dom0(f"xl list {guest}")[1])
        self.dom0(f"xl unpause {guest}")
        self.runs_on(guest)

    def test_a_paused_pv_guest_is_as_xenctx_sees_it_and_stays_paused(self):
        self.paused_guest_is_as_xenctx_sees_it("app1-pv-fp")

    def test_a_paused_pvh_guest_is_as_xenctx_sees_it_and_stays_paused(self):
        self.paused_guest_is_as_xenctx_sees_it("app1-pvh-fp")

    def test_a_running_guest_is_shown_as_text_with_its_code(self):
        for guest in "chain-pv-fp", "chain-pvh-nofp":
            self.create(guest, cmdline="seconds=1000")
            self.at_work(guest)
            text = self.stack(guest)
            self.assertRegex(text, rf'guest    xen:\d+ "{guest}", pvh?, 1 vCPU, on Xen 4.17')
            self.assertRegex(text, r"vCPU 0 +(running|runnable)")
            self.assertRegex(text, r"rip +[0-9a-f]{16}  \w+\+0x")
            self.assertRegex(text, r"rflags +[0-9a-f]{16}  ")
            self.assertRegex(text, r"cr0 .*PG")
            self.assertRegex(text, r"\n  ->  [0-9a-f]{16}  ")
            self.assertRegex(text, r"\n +0  [0-9a-f]{16}  \w+\+0x\w+  \S+\.[chS]:\d+\n")
            self.assertIn("  main+0x", text)
            self.assertNotIn("cut short", text)
            self.assertNotIn("no caller was found", text)
            self.runs_on(guest)
            self.dom0(f"xl destroy {guest}")

    def test_code_is_disassembled_where_the_library_is_there(self):
        library = next(Path("/usr/lib").glob("*/libcapstone.so.4"), None)
        if not library or "libcapstone" not in self.dom0("uniprof -V")[1]:
            self.skipTest("no libcapstone on this machine, or not when uniprof was built")
        self.rig.put(library)
        guest = "chain-pv-fp"
        self.create(guest, cmdline="seconds=1000")
        self.at_work(guest)
        status, text = self.dom0(f"LD_LIBRARY_PATH=$PWD uniprof stack {guest}")
        self.assertEqual(status, 0, text)
        self.assertRegex(text, r"\n  ->  [0-9a-f]{16}  ([0-9a-f]{2} )+ +[a-z]+")
        lines = re.findall(r"\n(?:  ->|    )  ([0-9a-f]{16})  ((?:[0-9a-f]{2} )+) +[a-z]+", text)
        self.assertEqual([(int(address, 16), bytes.fromhex(code)) for address, code in lines],
                         self.instructions(guest, lines[0][0], len(lines)))
        self.runs_on(guest)

    def test_of_several_vcpus_all_or_one_are_shown(self):
        guest = "vcpus-pv-fp"
        self.create(guest, cmdline="seconds=1000", vcpus=4)
        self.at_work(guest)
        vcpus = self.json(guest)["vcpus"]
        self.assertEqual([vcpu["vcpu"] for vcpu in vcpus], [0, 1, 2, 3])
        for vcpu in vcpus:
            self.assertIn(f"worker_{vcpu['vcpu']}", self.names(vcpu))
        self.assertEqual([vcpu["vcpu"] for vcpu in self.json(f"{guest} 2")["vcpus"]], [2])
        self.assertIn("4 vCPUs, numbered from 0", self.stack(f"{guest} 4", USAGE))
        self.runs_on(guest)

    def test_a_crashed_guest_that_is_kept_tells_where(self):
        for platform in "pv", "pvh":
            guest = f"ends-{platform}-fp"
            self.create(guest, cmdline="seconds=1 crash", on_crash="preserve")
            self.dom0("i=0; until xl list | grep -q -- '---[s-]c-' || [ $i = 100 ]; do sleep 0.5; i=$((i + 1)); done")
            seen = self.json(guest)
            self.assertEqual(seen["state"], "crashed")
            self.assertEqual(seen["paused_ns"], 0)
            self.assertIn("main", self.names(seen["vcpus"][0]))
            self.dom0(f"xl destroy {guest}")

    def test_memory_is_shown_as_it_is(self):
        guest = "app1-pv-fp"
        self.busy(guest)
        self.at_work(guest)
        vcpu = self.json(guest)["vcpus"][0]
        main = [int(frame["address"], 16) - frame["offset"] for frame in vcpu["trace"] if frame.get("symbol") == "main"][0]
        stack = int(vcpu["registers"]["general"]["rsp"], 16)
        seen = self.json(f"-m {main:x},16 -m 7ffff0000000,32 -d {stack:x} {guest}")["memory"]
        # Not assertIn, which would print all of the file.
        self.assertTrue(bytes.fromhex(seen[0]["bytes"]) in (GUESTS / f"{guest}.elf").read_bytes(), seen[0])
        self.assertEqual((seen[1]["asked"], seen[1]["bytes"]), (32, ""))
        self.assertEqual(len(seen[2]["bytes"]), 512)
        text = self.stack(f"-m {main:x},32 -m 7ffff0000000 {guest}")
        self.assertRegex(text, r"memory   at 0x\w+\n +[0-9a-f]{16} ( [0-9a-f]{2}){8} ( [0-9a-f]{2}){8}  \|.{16}\|\n")
        self.assertIn("(nothing can be read at 0x7ffff0000000)", text)
        self.runs_on(guest)

    def test_a_snapshot_can_be_looked_at(self):
        guest = "app1-pvh-fp"
        self.busy(guest)
        self.at_work(guest)
        self.dom0(f"uniprof record -F 100 -T 1 -q --snapshot g.snap {guest}")
        seen = self.json(f"-s {guest}.elf replay:g.snap")
        self.assertEqual(seen["guest"]["kind"], "replay")
        self.assertIn("main", self.names(seen["vcpus"][0]))

    def test_whatever_way_it_ends_the_guest_runs_on(self):
        guest = "vcpus-pvh-fp"
        self.create(guest, cmdline="seconds=1000", vcpus=4)
        status, text = self.dom0(
            "i=0; while [ $i -lt 15 ]; do"
            f" uniprof stack -q {guest} >out.txt 2>&1 & pid=$!;"
            f" usleep $((i * 34000 + {random.randrange(34000)})); [ $((i % 3)) = 0 ] && s=INT || s=KILL; kill -$s $pid 2>/dev/null; wait $pid 2>/dev/null; i=$((i + 1)); done", 120)
        self.assertEqual(status, 0, text)
        self.no_guard_is_left()
        self.runs_on(guest)
        # To where nothing can be written.
        self.assertIn("/dev/full", self.stack(f"-o /dev/full {guest}", NO_OUTPUT))
        self.runs_on(guest)

    def test_what_cannot_be_is_said(self):
        self.assertIn("no guest called", self.stack("nobody", NO_GUEST))
        self.assertIn("an address in hex", self.stack("-m zz 1", USAGE))
        self.assertIn("which guest", self.stack("", USAGE))


if __name__ == "__main__":
    unittest.main()
