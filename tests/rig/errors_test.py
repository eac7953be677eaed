#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""Errors are one sentence, with the exit code of the manual, and the guest runs on."""

import unittest

from guestcase import GuestCase

GUEST = "app1-pv-fp"
USAGE, NO_GUEST, DENIED, INPUT, OUTPUT = 2, 3, 4, 6, 7


class Errors(GuestCase):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.there.add(GUEST)
        from guestcase import GUESTS
        cls.rig.put(GUESTS / f"{GUEST}.elf", GUESTS / f"{GUEST}.cfg")

    def fails(self, command, status, *words):
        """Runs a command; asserts its status, and one sentence on stderr with these words in it."""
        got, text = self.dom0(f"{{ {command}; }} 2>&1 >stdout", 60)
        self.assertEqual(got, status, f"{command}: {text}")
        lines = [line for line in text.splitlines() if line]
        self.assertEqual(len(lines), 1, f"{command}: {text}")
        self.assertTrue(lines[0].startswith("uniprof: "), lines[0])
        for word in words:
            self.assertIn(word, lines[0])
        self.assertEqual(self.dom0("cat stdout")[1], "")

    def test_no_such_domain(self):
        self.fails("uniprof record nobody", NO_GUEST, "no guest called", "nobody")
        self.fails("uniprof record xen:4711", NO_GUEST, "no domain 4711")
        self.fails("uniprof out.raw 4711", NO_GUEST, "4711")
        self.fails("uniprof record xen:nobody", NO_GUEST, "nobody")

    def test_of_several_guests_each_that_is_not_there_is_named(self):
        status, text = self.dom0("uniprof record nobody no-one")
        self.assertEqual(status, NO_GUEST, text)
        self.assertEqual(sorted(line.split('"')[0] for line in text.splitlines()),
                         ["uniprof: no-one: there is no guest called ", "uniprof: nobody: there is no guest called "])

    def test_dom0_is_refused(self):
        self.fails("uniprof record 0", NO_GUEST, "domain 0")
        self.fails("uniprof record Domain-0", NO_GUEST, "domain 0")
        self.fails("uniprof out.raw 0", NO_GUEST, "domain 0")

    def test_without_rights(self):
        self.busy(GUEST)
        self.fails(f"su -s /bin/sh nobody -c \"$(command -v uniprof) record -o /tmp/x {GUEST}\"", DENIED, "root")
        self.runs_on(GUEST)

    def test_without_xen(self):
        # A machine without Xen: it has no devices of Xen's.
        self.fails("mkdir -p nothing && unshare -m sh -c 'mount --bind nothing /dev/xen; mount --bind nothing /proc/xen;"
                   " exec uniprof record 1'", DENIED, "Xen")

    def test_rates_and_times_out_of_bounds(self):
        for option in "-F 0", "-F 1e9", "-F -1", "-F nan", "-F 10001", "-F 0x10", "-T 0", "-T -1", "-T 5parsecs", "-T ''":
            self.fails(f"uniprof record {option} {GUEST}", USAGE, option.split()[1].strip("'"))
            self.fails(f"uniprof {option} out.raw 1", USAGE)

    def test_wrong_command_lines(self):
        for line in ("record", "record -X a", "record --nonsense a", "report", "report a b", "export a",
                     "export --format=nonsense a", "flamegraph", "list a", "run", "nonsense", "-s a@0xz c d",
                     "record nonsense:1"):
            self.fails(f"uniprof {line}", USAGE)

    def test_bad_symbol_files(self):
        self.busy(GUEST)
        self.rig.write("empty", "")
        self.rig.write("binary", bytes(range(256)) * 16)
        self.rig.write("text", "this is no symbol table\n")
        for name in "/tmp", "empty", "binary", "text", "missing", "/dev/null":
            self.fails(f"uniprof record -q -T 1 -s {name} -o s.uniprof {GUEST}", INPUT, name)
            self.fails(f"uniprof -s {name} s.raw {GUEST}", INPUT, name)
        self.runs_on(GUEST)

    def test_odd_symbol_files_that_are_good(self):
        self.busy(GUEST)
        table = "0000000000100000 T " + "long" * 1024 + "\n0000000000200000 T end"
        self.rig.write("long", table + "\n")
        self.rig.write("nonewline", table)
        for name in "long", "nonewline":
            status, text = self.dom0(f"uniprof record -q -F 200 -T 1 -s {name} -o s.uniprof {GUEST}; uniprof report s.uniprof >r; grep -c longlong r")
            self.assertEqual(status, 0, text)
        self.runs_on(GUEST)

    def test_outputs_that_cannot_be_written(self):
        self.busy(GUEST)
        for path in "/nowhere/x", "/tmp", "/proc/version":
            self.fails(f"uniprof record -q -T 1 -o {path} {GUEST}", OUTPUT, path)
            self.fails(f"uniprof {path} {GUEST}", OUTPUT, path)
        self.runs_on(GUEST)

    def test_a_full_disk(self):
        self.busy(GUEST)
        status, text = self.dom0("mkdir -p small && mount -t tmpfs -o size=16k none small")
        self.assertEqual(status, 0, text)
        self.addCleanup(self.dom0, "umount small")
        self.fails(f"uniprof record -q -F 5000 -T 30 -o small/x.uniprof {GUEST}", OUTPUT, "small/x.uniprof", "no space")
        # The part that fitted in can still be read.
        status, text = self.dom0("uniprof report small/x.uniprof")
        self.assertEqual(status, 0, text)
        self.assertIn("stops in the middle", text)
        self.fails(f"uniprof -F 1000 -T 5 small/x.raw {GUEST}", OUTPUT, "small/x.raw")
        self.dom0("rm -f small/*; dd if=/dev/zero of=small/fill bs=4k count=4 2>/dev/null")
        self.assertEqual(self.dom0(f"uniprof record -q -F 200 -T 1 -o good.uniprof {GUEST}")[0], 0)
        for verb in "flamegraph -o small/x.svg", "export -o small/x.folded", "report -o small/x.txt":
            self.fails(f"uniprof {verb} good.uniprof", OUTPUT, "No space left")
        self.runs_on(GUEST)

    def test_files_that_are_no_recordings(self):
        self.rig.write("text", "this is no recording\n")
        for verb in "report", "flamegraph", "export --format=folded":
            for name in "text", "/dev/null", "/tmp", "missing":
                self.fails(f"uniprof {verb} {name}", INPUT, name)


if __name__ == "__main__":
    unittest.main()
