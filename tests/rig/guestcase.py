# SPDX-License-Identifier: BSD-3-Clause
"""Shared by the tests in the rig: a dom0 with uniprof and the guests, and readers of what comes out.

UNIPROF_BUILD names the build directory with the uniprof to test (default: build), UNIPROF_GUESTS the
directory with the guests (default: build/guests). Where the rig cannot run, tests are skipped with
its reason.
"""

import collections
import gzip
import lzma
import os
import re
import shutil
import struct
import sys
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "rig" / "lib"))

import chance  # noqa: E402
import ran  # noqa: E402
import xenrig  # noqa: E402
from xenrig import image  # noqa: E402
from xenrig.port import PORTS  # noqa: E402

BUILD = Path(os.environ.get("UNIPROF_BUILD", ROOT / "build"))
GUESTS = Path(os.environ.get("UNIPROF_GUESTS", ROOT / "build" / "guests"))

# Programs of the tests that run in dom0; some need libraries that a machine may lack.
PROGRAMS = GUESTS.parent / "tests" / "rig" / "dom0"

# Parameters of Debian's Linux as a guest: without mitigations and self-tests, its boot takes half the time.
# tests/rig/linux_test.py has that kernel as it is.
LINUX_PARAMETERS = "console=hvc0 quiet mitigations=off cryptomgr.notests"

# Factor by which a busy machine may be slower than usual.
PATIENCE = 5

# The share of stacks that may lack their outermost frames: seen while a guest had just switched stacks.
CUT_SHORT = 0.002


# A user of no machine, as whom the agent's service is run.
SERVICE_USER = 61234


def service_rights():
    """Options for setpriv(1) of util-linux: user and capabilities of the agent's unit for systemd."""
    unit = (ROOT / "packaging/uniprof-agent.service.in").read_text(encoding="utf-8")
    names = re.search(r"^AmbientCapabilities=(.*)$", unit, re.MULTILINE)[1].split()
    has = ",".join(["-all", *(f"+{name.removeprefix('CAP_').lower()}" for name in names)])
    return [f"--reuid={SERVICE_USER}", f"--regid={SERVICE_USER}", "--clear-groups", "--no-new-privs", f"--inh-caps={has}",
            f"--ambient-caps={has}", f"--bounding-set={has}"]


def unpacked(vmlinuz):
    """The ELF file in a kernel's file of Debian's, which is packed with xz."""
    data = vmlinuz.read_bytes()
    start = (data[0x1f1] + 1) * 512 + struct.unpack_from("<I", data, 0x248)[0]
    return lzma.LZMADecompressor().decompress(data[start:])


class GuestCase(unittest.TestCase):
    """One dom0 for all tests of a class; every test leaves it without domUs."""

    rig_options = {}
    build = BUILD
    has_busy = False  # this test has called busy()
    lasting = ""      # a domU that all tests of the class share

    @classmethod
    def setUpClass(cls):
        qemu = PORTS[cls.rig_options.get("arch", "x86")].qemu
        if not shutil.which(qemu):
            raise unittest.SkipTest(f"no {qemu} on this machine: Xen cannot be booted")
        cls.rig = xenrig.Rig(**cls.rig_options)
        cls.addClassCleanup(cls.rig.close)
        cls.rig.put_stripped(cls.build / "uniprof", cls.build / "symbolize")
        # On one CPU and with equal weights, Xen lets dom0 wait for a busy guest, 5 ms at a time.
        cls.rig.run("xl sched-credit2 -d 0 -w 65535", check=True)
        cls.there = set()
        cls.busy_guest = None

    @classmethod
    def tearDownClass(cls):
        ran.note_rig(cls.__name__, cls.rig)

    def tearDown(self):
        # Only that directory goes with each test.
        ran.note_rig(type(self).__name__, self.rig, "[ -e out ]")
        kept = self.busy_guest if self.has_busy else None
        status, _ = self.dom0(f"gone=$(xl list | awk -v kept={kept or ''} -v lasting={self.lasting} 'NR > 1 && $2 != 0 && $1 != lasting {{"
                              " if ($1 == kept && $5 !~ /[psc]/) there = 1; else print $2 } END { exit !there }'); missing=$?;"
                              " for d in $gone; do xl destroy $d; done; rm -rf out; exit $missing")
        type(self).busy_guest = kept if status == 0 else None

    def dom0(self, commands, timeout=60):
        """Runs commands in dom0, which take so many seconds where nothing else runs; returns (status, output)."""
        result = self.rig.run(commands, timeout=PATIENCE * timeout)
        return result.status, result.text

    def bring(self, guest):
        """Puts a guest's files into dom0."""
        if guest not in self.there:
            kinds = (".elf", ".cfg", ".image") if "-arm" in guest else (".elf", ".cfg")
            self.rig.put(*(GUESTS / f"{guest}{kind}" for kind in kinds))
            self.there.add(guest)

    def bring_program(self, name):
        """Puts one of the tests' own programs into dom0."""
        if not (PROGRAMS / name).exists():
            self.skipTest(f"{name} was not built: it needs the libraries of libxen-dev, and tests")
        if name not in self.there:
            self.rig.put(PROGRAMS / name)
            self.there.add(name)

    def busy(self, guest, **settings):
        """A guest that is at work for as long as all tests take: one that a test before left behind, which runs."""
        self.bring(guest)
        if self.busy_guest != guest:
            self.create(guest, cmdline="scale=100000", **settings)
            type(self).busy_guest = guest
        self.has_busy = True

    def alone(self):
        """Ends the guest that a test before left behind."""
        if self.busy_guest and not self.has_busy:
            self.dom0(f"xl destroy {self.busy_guest}")
            type(self).busy_guest = None

    @classmethod
    def bring_linux(cls):
        """Puts Debian's Linux into dom0 as `linux`, packed so that an emulated dom0 unpacks it in a fraction of the time."""
        release = cls.rig_options.get("xen", "4.17")
        cls.rig.write("linux", gzip.compress(unpacked(image.locate(release) / "linux"), 1))

    def create(self, guest, cmdline=None, paused=False, **settings):
        """Starts a guest, or only makes it ready to; settings override its configuration."""
        self.alone()
        self.bring(guest)
        if cmdline is not None:
            settings["cmdline"] = cmdline
        extra = " ".join(f"'{key}=\"{value}\"'" if isinstance(value, str) else f"{key}={value}"
                         for key, value in settings.items())
        status, text = self.dom0(f"rm -f /var/log/xen/console/guest-{guest}.log; xl create {'-p' if paused else ''} {guest}.cfg {extra}")
        self.assertEqual(status, 0, text)

    def at_work(self, guest):
        """Waits until each vCPU of a busy guest has done something, so that none is at its beginning."""
        # Not before it can have: each look takes dom0 longer than that.
        status, text = self.dom0(f"i=0; until usleep 120000; xl vcpu-list {guest} | awk 'NR > 1 && $6 < 0.1 {{ n++ }} END {{ exit n || NR < 2 }}';"
                                 f" do i=$((i + 1)); [ $i -lt 200 ] || {{ xl vcpu-list {guest}; exit 1; }}; done", 120)
        self.assertEqual(status, 0, f"{guest} does not work: {text}")

    def record(self, guest, options="", expect=0, timeout=120):
        """Records a running guest into GUEST.uniprof; returns what uniprof said."""
        status, text = self.dom0(f"uniprof record {options} -o {guest}.uniprof {guest}", timeout)
        self.assertEqual(status, expect, text)
        return text

    def until(self, seen, take, seconds):
        """What take(seconds) gives, of recordings that are longer each time, until it shows what it has to: a busy machine takes few samples."""
        for attempt in range(chance.TAKES):
            taken = take(seconds * chance.longer(attempt))
            if seen(taken):
                return taken
        self.fail(f"not even in {seconds * chance.longer(attempt)} s: {taken}")

    def succeeds(self, commands, timeout=60):
        """The output of commands in dom0."""
        status, text = self.dom0(commands, timeout)
        self.assertEqual(status, 0, text)
        return text

    def record_enough(self, guest, options, seconds, least, state=""):
        """Records for longer, until there are enough samples; returns the stacks."""
        for attempt in range(chance.TAKES):
            self.record(guest, f"{options} -T {seconds * chance.longer(attempt)}")
            stacks = self.folded(guest, state)
            if sum(stacks.values()) >= least:
                return stacks
        self.fail(f"{guest}: {sum(stacks.values())} samples of {least}")

    def check_shares(self, guest, known, tolerance, options, seconds, first=None):
        """Asserts that functions of a running guest have the shares that are known, by recordings of it (chance.py).
        The first is of so many seconds, or was made: its stacks."""
        def take(attempt):
            stacks = first if attempt == 0 else None
            if stacks is None:
                self.record(guest, f"{options} -T {seconds * chance.longer(attempt)}")
                stacks = self.folded(guest)
            return stacks, known

        chance.check_shares(take, tolerance)

    def report(self, name, options=""):
        status, text = self.dom0(f"uniprof report {options} {name}.uniprof")
        self.assertEqual(status, 0, text)
        return text

    def folded(self, name, options=""):
        """{stack as a tuple of names, root first: samples}, of functions that are really called."""
        status, text = self.dom0(f"uniprof export --format=folded --no-inline {options} {name}.uniprof 2>/dev/null")
        self.assertEqual(status, 0, text)
        return parse_folded(text)

    def console(self, guest):
        return self.dom0(f"cat /var/log/xen/console/guest-{guest}.log")[1]

    def runs_on(self, guest):
        """Asserts that the guest is there, not left paused, and uses CPU time. Who has just ended may take a second to let it go."""
        status, text = self.dom0(f"first=; i=0; while [ $i -lt 150 ]; do rows=$(xl list {guest} 2>&1) || {{ echo \"$rows\"; exit 3; }};"
                                 " set -- $(echo \"$rows\" | tail -n 1); case $5 in *p*) [ $i -lt 5 ] || { echo left paused: $*; exit 4; };;"
                                 " *) : ${first:=$6}; [ $6 = $first ] || exit 0;; esac;"
                                 " usleep 200000; i=$((i + 1)); done; echo does not run: $*; exit 5", 60)
        self.assertEqual(status, 0, f"{guest}: {text}")

    def within_a_pause(self, guest, command, *outcomes):
        """Runs a command while a profiler that was stopped holds the guest; asserts how both end (status of command and profiler),
        and returns what was said."""
        self.bring_program("meanwhile")
        status, text = self.dom0(f"./meanwhile $(xl domid {guest}) '{command}'", 400)
        self.assertEqual(status, 0, text)
        self.assertIn(tuple(int(re.search(rf"^{word} (-?\d+)$", text, re.M)[1]) for word in ("command", "profiler")), outcomes, text)
        self.no_guard_is_left()
        return text

    def no_guard_is_left(self):
        """Asserts that guards end when who started them has."""
        status, text = self.dom0("i=0; while pidof unpause-guard; do i=$((i + 1)); [ $i -lt 200 ] || exit 1; usleep 100000; done")
        self.assertEqual(status, 0, f"a guard does not end: {text}")

    def no_impossible_edges(self, guest, stacks):
        """Asserts that all stacks take only calls that the program has, and hardly any is cut short."""
        wrong, cut = impossible_edges(guest, stacks)
        self.assertFalse(wrong, f"{guest}: impossible edges")
        allowed = chance.most(CUT_SHORT * sum(stacks.values()))
        self.assertLessEqual(sum(cut.values()), allowed, f"{guest}: cut short: {cut}")


def parse_folded(text):
    stacks = collections.Counter()
    for line in text.splitlines():
        names, count = line.rsplit(" ", 1)
        stacks[tuple(names.split(";"))] += int(count)
    return stacks


def edges(guest):
    """The calls that a guest's program can take, as (caller, callee)."""
    lines = (GUESTS / f"{guest}.edges").read_text(encoding="ascii").splitlines()
    return {tuple(line.split()) for line in lines if line and not line.startswith("#")}


def impossible_edges(guest, stacks):
    """{call that the program does not have: samples}, {outermost function of a stack that is cut short: samples}"""
    allowed = edges(guest)
    callees = {callee for _, callee in allowed}
    wrong, cut = collections.Counter(), collections.Counter()
    for stack, samples in stacks.items():
        if stack[0] in callees:
            cut[stack[0]] += samples
        for pair in zip(stack, stack[1:]):
            if pair not in allowed:
                wrong[" -> ".join(pair)] += samples
    return wrong, cut


def shares(stacks, functions):
    """{function: share of samples in stacks that hold it}"""
    total = sum(stacks.values())
    return {name: sum(n for stack, n in stacks.items() if name in stack) / total for name in functions}


def truth(console):
    """{function: share} that the guest counted itself."""
    return {name: float(share) for name, share in re.findall(r"^truth (\S+) calls \d+ ticks \d+ share ([\d.]+)", console, re.M)}
