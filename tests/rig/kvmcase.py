# SPDX-License-Identifier: BSD-3-Clause
"""Shared by the tests on the rig's host with KVM: a host with uniprof, monitors and guests, and readers of what comes out.

UNIPROF_BUILD names the build directory with the uniprof to test (default: build).
"""

import shutil
import unittest

import chance
import ran
from guestcase import BUILD, GUESTS, PATIENCE, impossible_edges, parse_folded
from xenrig import Kvm, Rig

MONITORS = GUESTS.parent / "tests" / "vmm" / "programs"

# Pieces of work, of the last line that the monitor has told.
WORK = "tail -n 1 log | cut -d ' ' -f 1"

# The guest with two address spaces: functions that can be called in each.
SPACES = {letter: ("go_round", f"work_{letter}", f"function_{letter}", f"spin_{letter}") for letter in "ab"}


def mixed(stacks):
    """Those that are no beginning of what is called in one of the address spaces."""
    return {stack: n for stack, n in stacks.items() if not any(whole[:len(stack)] == stack for whole in SPACES.values())}


class KvmCase(unittest.TestCase):
    """One host for all tests of a class; every test leaves it without guests."""

    rig_options = {}

    @classmethod
    def setUpClass(cls):
        if not shutil.which("qemu-system-x86_64"):
            raise unittest.SkipTest("no qemu-system-x86_64 on this machine: no host can be booted")
        if not (MONITORS / "monitor").exists():
            raise unittest.SkipTest("the monitor is built on x86-64 only")
        cls.rig = Rig(machine=Kvm, **cls.rig_options)
        cls.addClassCleanup(cls.rig.close)
        cls.rig.put_stripped(BUILD / "uniprof")
        cls.rig.put(MONITORS / "monitor")
        cls.there = set()

    @classmethod
    def tearDownClass(cls):
        ran.note_rig(cls.__name__, cls.rig)

    def tearDown(self):
        self.host("for name in uniprof monitor qemu-system-x86_64; do killall -9 $name 2>/dev/null; done; true")

    def host(self, commands, expect=0, timeout=60):
        """Runs commands on the host, which take so many seconds where nothing else runs; returns their output."""
        result = self.rig.run(commands, timeout=PATIENCE * timeout)
        self.assertEqual(result.status, expect, f"{commands}:\n{result.text}")
        return result.text

    def bring(self, path):
        if path not in self.there:
            self.rig.put(path)
            self.there.add(path)

    def until(self, condition, before="true"):
        """Waits for a command on the host to succeed."""
        self.host(f"{before}; i=0; until {condition}; do i=$((i + 1)); [ $i -lt 600 ] || {{ cat log; ps; exit 1; }}; usleep 100000; done")

    def start(self, guest, *words):
        """A guest of our own monitor, at work."""
        self.bring(MONITORS / guest)
        self.host(f"monitor {guest} {' '.join(words)} >log 2>&1 &")
        self.works()

    def boot(self, guest, *words):
        """A guest of QEMU's microvm, at work."""
        self.bring(GUESTS / f"{guest}.elf")
        self.host(f"rm -f console; qemu-system-x86_64 -accel kvm -M microvm -cpu qemu64 -m 64 -nodefaults -display none -serial file:console "
                  f"-no-reboot -name {guest} -kernel {guest}.elf {' '.join(words)} >log 2>&1 &")
        self.until("[ -s console ]")

    def works(self):
        """Waits until the monitor's guest has come further."""
        self.until(f'[ "$({WORK})" -gt "${{before:-0}}" ] 2>/dev/null', f"before=$({WORK})")

    def record(self, guest, *options, expect=0, timeout=120):
        """Records a running guest into out.uniprof; returns what uniprof said."""
        return self.host(f"uniprof record {' '.join(map(str, options))} -o out.uniprof kvm:{guest}", expect, timeout)

    def folded(self, options="--state running,runnable"):
        return parse_folded(self.host(f"uniprof export --format=folded --no-inline {options} out.uniprof 2>/dev/null"))

    def check_shares(self, guest, known, tolerance, options, seconds):
        """Asserts that functions of a running guest have the shares that are known, by recordings of it (chance.py)."""
        def take(attempt):
            self.record(guest, *options, "-T", seconds * chance.longer(attempt))
            stacks = {stack: n for stack, n in self.folded("").items() if "main" in stack}
            self.assertFalse(impossible_edges(guest, stacks)[0])
            return stacks, known

        chance.check_shares(take, tolerance)
