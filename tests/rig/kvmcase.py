# SPDX-License-Identifier: BSD-3-Clause
"""Shared by the tests on the rig's host with KVM: a host with uniprof, monitors and guests, and readers of what comes out.

UNIPROF_BUILD names the build directory with the uniprof to test (default: build). UNIPROF_PARALLEL: hosts of several
CPUs have a thread of the emulator's for each, which makes more happen at once, and can crash them (rig/README.md).
"""

import os
import random
import shutil
import unittest

import chance
import ran
from guestcase import BUILD, GUESTS, PATIENCE, impossible_edges, parse_folded
from xenrig import Kvm, Rig
from xenrig.port import PORTS

MONITORS = GUESTS.parent / "tests" / "vmm" / "programs"

# What QEMU makes of a guest's machine.
BOARDS = {"x86": "-M microvm -cpu qemu64", "arm64": "-M virt,gic-version=host -cpu host"}

# Pieces of work, of the last line that the monitor has told.
WORK = "tail -n 1 log | cut -d ' ' -f 1"

# Shell: true if no thread of the monitor is traced.
UNTRACED = "! grep -h ^TracerPid: /proc/$(pidof monitor)/task/*/status | grep -qv '\t0$'"

# The guest with two address spaces: functions that can be called in each.
SPACES = {letter: ("go_round", f"work_{letter}", f"function_{letter}", f"spin_{letter}") for letter in "ab"}


# The kernel with two processes: what each function calls; letters are those of a process.
SERVES = {"a": "read", "b": "write"}
CALLS = {("system_call", "entry_syscall"), ("entry_syscall", "do_syscall"), ("do_syscall", "schedule"), ("schedule", "migrate_stacks"),
         ("schedule", "context_switch")}
CALLS |= {call for x, served in SERVES.items() for call in
          ((f"main_{x}", f"work_{x}"), (f"main_{x}", "system_call"), (f"work_{x}", f"function_{x}"), (f"function_{x}", f"spin_{x}"),
           (f"function_{x}", "system_call"), ("do_syscall", f"sys_{served}"), (f"sys_{served}", f"vfs_{served}"), (f"vfs_{served}", "spin"))}
PROCESS = {name: x for x, served in SERVES.items()
           for name in (f"main_{x}", f"work_{x}", f"function_{x}", f"spin_{x}", f"sys_{served}", f"vfs_{served}")}


def mixed(stacks):
    """Those that are no beginning of what is called in one of the address spaces.

    On arm64 nothing is on the stack yet at the first instruction of work_x, and no page is there: nothing is followed.
    """
    return {stack: n for stack, n in stacks.items()
            if not any(stack in (whole[:len(stack)], whole[1:2]) for whole in SPACES.values())}


def of_no_process(stacks):
    """Those with a call that no process makes, or with functions of both; one that is cut short is right as far as it goes."""
    return {stack: n for stack, n in stacks.items()
            if not CALLS.issuperset(zip(stack, stack[1:])) or len({PROCESS[name] for name in stack if name in PROCESS}) > 1}


class KvmCase(unittest.TestCase):
    """One host for all tests of a class; every test leaves it without guests."""

    rig_options = {}
    build, monitors = BUILD, MONITORS

    @classmethod
    def setUpClass(cls):
        cls.port = PORTS[cls.rig_options.get("arch", "x86")]
        if not shutil.which(cls.port.qemu):
            raise unittest.SkipTest(f"no {cls.port.qemu} on this machine: no host can be booted")
        if not (cls.monitors / "monitor").exists():
            raise unittest.SkipTest("the monitor is built on x86-64 only")
        parallel = {"parallel": True} if os.environ.get("UNIPROF_PARALLEL") and cls.rig_options.get("cpus", 1) > 1 else {}
        cls.rig = Rig(machine=Kvm, **(cls.rig_options | parallel))
        cls.addClassCleanup(cls.rig.close)
        cls.rig.put_stripped(cls.build / "uniprof")
        cls.rig.put(cls.monitors / "monitor")
        cls.there = set()

    @classmethod
    def tearDownClass(cls):
        ran.note_rig(cls.__name__, cls.rig)

    def tearDown(self):
        self.host(f"for name in uniprof monitor {self.port.qemu}; do killall -9 $name 2>/dev/null; done; true")

    def host(self, commands, expect=0, timeout=60):
        """Runs commands on the host, which take so many seconds where nothing else runs; returns their output."""
        result = self.rig.run(commands, timeout=PATIENCE * timeout)
        self.assertEqual(result.status, expect, f"{commands}:\n{result.text}")
        return result.text

    def bring(self, path):
        if path not in self.there:
            self.rig.put(path)
            self.there.add(path)

    def until(self, condition, before="true", seconds=60):
        """Waits for a command on the host to succeed."""
        self.host(f"{before}; i=0; until {condition}; do i=$((i + 1)); [ $i -lt {10 * seconds} ] || {{ cat log; ps; exit 1; }}; usleep 100000; done",
                  timeout=seconds)

    def start(self, guest, *words):
        """A guest of our own monitor, at work."""
        self.bring(self.monitors / guest)
        self.host(f"monitor {guest} {' '.join(map(str, words))} >log 2>&1 &")
        self.works()

    def boot(self, guest, *words, file=None):
        """A guest of QEMU's, at work."""
        file = file or f"{guest}.elf"
        self.bring(GUESTS / file)
        self.boot_file(guest, file, "-m 64", *words)
        self.until("[ -s console ]")

    def boot_file(self, name, file, *words):
        self.host(f"rm -f console; {self.port.qemu} -accel kvm {BOARDS[self.port.name]} -nodefaults -display none -serial file:console "
                  f"-no-reboot -name {name} -kernel {file} {' '.join(map(str, words))} >log 2>&1 &")

    def works(self):
        """Waits until the monitor's guest has come further."""
        self.until(f'[ "$({WORK})" -gt "${{before:-0}}" ] 2>/dev/null', f"before=$({WORK})")

    def record(self, guest, *options, expect=0, timeout=120):
        """Records a running guest into out.uniprof; returns what uniprof said."""
        return self.host(f"uniprof record {' '.join(map(str, options))} -o out.uniprof kvm:{guest}", expect, timeout)

    def folded(self, options="--state running,runnable"):
        return parse_folded(self.host(f"uniprof export --format=folded --no-inline {options} out.uniprof 2>/dev/null"))

    def check_shares(self, guest, known, tolerance, options, seconds, called=None):
        """Asserts that functions of a running guest have the shares that are known, by recordings of it (chance.py)."""
        def take(attempt):
            self.record(called or guest, *options, "-T", seconds * chance.longer(attempt))
            stacks = {stack: n for stack, n in self.folded("").items() if "main" in stack}
            self.assertFalse(impossible_edges(guest, stacks)[0])
            return stacks, known

        chance.check_shares(take, tolerance)


class SpacesChecks:
    """Of a KvmCase with `stacks` to take, by recordings of a length, and so many at most: `recorded`."""

    # So much of its time the guest is in its innermost functions.
    inside = 0.25

    def check_spaces(self, way, guest="spaces-fp"):
        self.check_stacks(way, guest, mixed, lambda stack: len(stack) == len(SPACES["a"]))

    def check_processes(self, way, guest):
        self.check_stacks(way, guest, of_no_process, lambda stack: stack[0].startswith("main_") and stack[-1].startswith("spin"))

    def check_stacks(self, way, guest, wrong, is_whole):
        self.start(guest, "1", "kernel")
        taken = whole = 0
        seconds, recordings = self.recorded
        for _ in range(recordings):
            said = self.record("monitor", "--via", way, "-F", 2000, "-T", seconds)
            self.assertIn(f" via {way},", said)
            stacks = self.folded()
            self.assertFalse(wrong(stacks))
            taken += sum(stacks.values())
            whole += sum(n for stack, n in stacks.items() if is_whole(stack))
            if taken >= self.stacks:
                break
        print(f"{guest} by {way}: {taken} stacks, {whole} of them whole, 0 wrong")
        self.assertGreaterEqual(taken, self.stacks)
        self.assertGreater(whole, max(0, self.inside - chance.margin(self.inside, taken)) * taken)
        self.works()


class KillsChecks:
    """Of a KvmCase with `kills`."""

    kill = """rm -f killed.uniprof
    uniprof record -q -F 2000 --via {way} -o killed.uniprof kvm:monitor >said 2>&1 &
    {until_begun}
    usleep {us}
    kill -9 $! && wait $!; [ -s killed.uniprof ] && echo sampling"""
    begun = "until [ -s killed.uniprof ]; do kill -0 $! || { cat said; exit 1; }; usleep 20000; done"
    freed = f"{UNTRACED} && ! pidof unpause-guard"

    def check_kills(self, way):
        self.start("spinner-fp")
        generator = random.Random(self.kills)
        for i in range(self.kills):
            # Each fourth before it samples, perhaps.
            commands = self.kill.format(way=way, us=generator.randrange(300_000), until_begun="" if i % 4 == 3 else self.begun)
            said = self.host(f"{commands}; true")
            self.assertTrue("sampling" in said or i % 4 == 3, said)
            self.until(self.freed)
            self.works()
