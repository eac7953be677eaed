#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""Core files that QEMU writes: what is seen in them is what is seen in the guest."""

import json
import subprocess
import unittest

import hostile_core
from hostcase import BUILD, UNIPROF
from qemucase import QemuCase


class Core(QemuCase):
    def look(self, guest, *options):
        return json.loads(self.uniprof("stack", "-q", "--json", *options, guest))

    def dump(self, paging=False):
        """The stopped guest, into a core file."""
        core = self.scratch / "guest.core"
        self.monitor.ask("dump-guest-memory", paging=paging, protocol=f"file:{core}")
        return core

    def same(self, guest, paging=False, smp="1", append="scale=1000"):
        elf = BUILD / "guests" / f"{guest}.elf"
        process = self.qemu(guest, "-smp", smp, append=append)
        self.monitor.ask("stop")
        core = self.dump(paging)
        live, dead = self.look(f"qemu:{self.qmp}"), self.look(f"core:{core}", "-s", elf)
        self.assertEqual(len(dead["vcpus"]), int(smp))
        self.assertEqual((dead["state"], dead["paused_ns"], dead["guest"]["kind"]), ("paused", 0, "core"))
        for here, there in zip(live["vcpus"], dead["vcpus"]):
            for part in "registers", "stack", "trace", "code", "whole":
                self.assertEqual(here.get(part), there.get(part), part)
        self.assertTrue(live["vcpus"][0]["trace"])
        self.end(process)
        return core

    def test_64_bits(self):
        core = self.same("app1-pvh-fp")
        elf = BUILD / "guests" / "app1-pvh-fp.elf"
        text = self.uniprof("stack", "-s", elf, core)
        self.assertIn("main+0x", text)
        self.assertIn("one moment", self.uniprof("record", "-T", 1, "-s", elf, core, expect=3))

    def test_without_frame_pointers_and_with_addresses_as_the_guest_has_them(self):
        self.same("app2-pvh-nofp", paging=True)

    def test_32_bits_with_two_levels_of_tables(self):
        self.same("app1-pvh32-fp")

    def test_32_bits_with_pae(self):
        self.same("app1-pvh32pae-nofp")

    def test_each_vcpu(self):
        self.same("vcpus-pvh-fp", smp="4", append="seconds=60")

    def test_cut_off(self):
        core = self.same("app1-pvh-fp")
        whole = core.read_bytes()
        for size in 0, 3, 40, 64, 100, 1000, 5000, len(whole) // 2:
            core.write_bytes(whole[:size])
            done = subprocess.run([UNIPROF, "stack", f"core:{core}"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
            self.assertEqual(done.returncode, 6, done.stdout)

    def test_what_is_no_core_of_a_guest(self):
        self.assertIn("another kind of ELF file", self.uniprof("stack", f"core:{UNIPROF}", expect=6))
        self.qemu()
        core = self.scratch / "guest.kdump"
        self.monitor.ask("dump-guest-memory", paging=False, protocol=f"file:{core}", format="kdump-zlib")
        self.assertIn("compressed", self.uniprof("stack", f"core:{core}", expect=6))

    def test_memory_full_of_what_may_be_names_is_given_up_and_shown(self):
        core = self.scratch / "hostile.core"
        for name, flood in hostile_core.FLOODS.items():
            with self.subTest(name):
                core.write_bytes(hostile_core.core(flood()))
                text = self.uniprof("stack", f"core:{core}")
                self.assertIn("ffffffff81000000", text)
                self.assertIn("was given up", text)


del QemuCase

if __name__ == "__main__":
    unittest.main()
