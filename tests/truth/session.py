# SPDX-License-Identifier: BSD-3-Clause
"""One dom0 in which guests are profiled while the emulator counts them."""

import dataclasses
import sys
from pathlib import Path

from exact import Exact
from measure import Faults, bound95, distance

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "rig" / "lib"))

import xenrig  # noqa: E402
from xenrig import cross  # noqa: E402
from xenrig.port import PORTS, X86  # noqa: E402

# Looks a second. Two are then hardly ever more than half a millisecond apart: longer before the
# sampler's timer is due, a yield takes Xen more time than when it looks (docs/accuracy.md).
RATE = 3000
# Seconds of the guest's time before the first sample, so that it has begun its work.
BEGINNING = 0.5
# Seconds of real time for one step in dom0.
PATIENCE = 590


@dataclasses.dataclass
class Row:
    guest: str
    unwind: str
    samples: int
    impossible: int
    missing_callers: int
    truncated: int
    distance: float
    bound95: float
    tries: int


class Session:
    """The emulated CPU takes one nanosecond for each instruction, so that time is instructions."""

    def __init__(self, build, rate, arch="x86"):
        self._guests, self._rate, self._port = build / "guests", rate, PORTS[arch]
        self._exact = Exact(build / "tests" / "truth" / "exact.so")
        try:
            self._rig = xenrig.Rig(arch=arch, icount=True, plugin=self._exact.argument)
        except BaseException:
            self._exact.close()
            raise
        programs = build if self._port is X86 else cross.build(self._port, ["uniprof"])
        self._rig.put(programs / "uniprof")
        # dom0 shares the only CPU with the guest. With equal weights, Xen lets it wait 5 ms at a time;
        # and for 1 ms (the rate limit) after each switch, unless the guest yields: samples would
        # gather where it does.
        self._dom0("xl sched-credit2 -d 0 -w 65535; xl sched-credit2 -s -p Pool-0 -r 0")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._rig.close()
        self._exact.close()

    def _dom0(self, commands):
        return self._rig.run(commands, timeout=PATIENCE, check=True).text

    def knows_unwind(self):
        return "--unwind" in self._dom0("uniprof record --help")

    def measure(self, guest, unwinders, seconds, cmdline, tries):
        """A Row for each unwinder, None being the default, and how many samples had which stack that
        cannot be. A distance beyond the bound is measured anew, up to so many tries, if nothing but chance can be why."""
        self._create(guest, cmdline)
        try:
            for unwind in unwinders:
                for attempt in range(1, tries + 1):
                    row, wrong = self._measure(guest, unwind, seconds, attempt)
                    if row.distance <= row.bound95 or wrong:
                        break
                yield row, wrong
        finally:
            self._dom0(f"xl destroy {guest}; rm -f {guest}.*")

    def _create(self, guest, cmdline):
        endings = ("elf", "cfg") if self._port is X86 else ("elf", "cfg", "image")
        files = [self._guests / f"{guest}.{ending}" for ending in endings]
        self._exact.watch(files[0])
        self._rig.put(*files)
        extra = f"'cmdline=\"{cmdline}\"'" if cmdline is not None else ""
        self._dom0(f"xl create -q {guest}.cfg {extra}; sleep {BEGINNING}; xl pause {guest}")

    def _measure(self, guest, unwind, seconds, attempt):
        """The guest runs exactly while it is sampled: what is counted and what is sampled is the same."""
        options = f"--unwind={unwind}" if unwind else ""
        if self._port is not X86:
            # xl's kernel there is no ELF file.
            options += f" -s {guest}.elf"
        before = self._exact.read()
        # A paused guest has no running vCPU: all that is shown was seen between unpause and pause.
        self._dom0(f"uniprof record -q -F {self._rate} {options} -o out.uniprof {guest} >said 2>&1 & echo $! >pid; "
                   f"sleep 1; xl unpause {guest}; sleep {seconds}; xl pause {guest}; kill -INT $(cat pid); "
                   "while kill -0 $(cat pid) 2>/dev/null; do sleep 0.1; done")
        after = self._exact.read()
        if after.lost:
            raise RuntimeError(f"{guest}: the emulator lost the stack {after.lost} times: its count is not exact")
        sampled = _parse_folded(self._dom0("uniprof export --no-inline --format=folded out.uniprof 2>/dev/null || cat said"))
        samples = sum(sampled.values())
        faults = Faults(sampled, after.guest, after.edges())
        exact = after.since(before)
        return Row(guest, unwind or "default", samples, faults.impossible, faults.missing_callers, faults.truncated,
                   round(distance(sampled, exact), 5), round(bound95(exact, samples), 5), attempt), faults.examples


def _parse_folded(text):
    stacks = {}
    for line in text.splitlines():
        names, count = line.rsplit(" ", 1)
        stacks[tuple(names.split(";"))] = int(count)
    return stacks
