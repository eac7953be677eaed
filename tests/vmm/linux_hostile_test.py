#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""A Linux guest of QEMU whose kernel lies in its lists of processes and in their mappings while it is profiled, as a module could let
it: this test writes to its memory. Whatever is asked of it ends, and no stack has a call that there is not."""

import collections
import contextlib
import json
import mmap
import random
import re
import struct
import subprocess
import threading
import time
import unittest

from hostcase import PROGRAMS, UNIPROF
from linuxcase import BOOT, LinuxCase
from linuxfiles import SORTER_CALLS, files_of
from xenrig import packages

MEGABYTES = 192
# With "nokaslr" and "no5lvl" all memory is mapped from here on (Documentation/arch/x86/x86_64/mm.rst).
DIRECT_MAP = 0xffff888000000000
# Bytes before and behind the name in a task_struct: all of that structure is there; and its lists but those of the scheduler, which the guest needs to live.
AROUND, LISTS = 4096, 1024

SPINS = ("spin-a", "spin-b", "spin-c", "spin-d")
START = """#!/bin/busybox sh
b=/bin/busybox
$b mkdir /proc
$b mount -t devtmpfs none /dev
$b mount -t proc none /proc
spin() {
    echo -n $1 >/proc/self/comm
    while :; do :; done
}
for name in SPINS; do spin $name & echo "pid $name $!"; done
/bin/sorter &
for name in SPINS sorter; do until $b grep -q "^$name" /proc/[0-9]*/comm; do $b sleep 1; done; done
echo guest is up
exec $b sleep 1000000
""".replace("SPINS", " ".join(SPINS))

# Seconds that a question may take on a machine that is busy with the emulator; each of its walks ends within one.
MOST_S = 120

ROUNDS = 4
# Exit statuses: it was done, or no list made sense.
ENDS = (0, 1)
TROUBLE = re.compile(r"led nowhere|leads nowhere|never end|more threads than are listed|changed all the time")


class Liar(threading.Thread):
    """Writes lies to the guest's memory, and the truth again after some milliseconds, until it is stopped."""

    def __init__(self, memory, lists, roots):
        super().__init__()
        self.memory, self.lists, self.roots, self.ended, self.told = memory, lists, roots, threading.Event(), collections.Counter()

    def lie(self):
        """(what, address, word)"""
        if random.random() < 0.3:
            return "mappings", random.choice(self.roots), random.choice((0, 1, 0x1000, self.wild(), random.choice(self.roots) + DIRECT_MAP | 0x1e))
        at, what = random.choice(self.lists), random.choice(tuple(self.LIES))
        return what, at, self.LIES[what](self, at)

    # What a pointer of a list, at an address, becomes.
    LIES = {"loop": lambda liar, at: DIRECT_MAP + at, "shortcut": lambda liar, at: DIRECT_MAP + random.choice(liar.lists), "wild": lambda liar, at: liar.wild(),
            "nowhere": lambda liar, at: 0, "program": lambda liar, at: 0x400000}

    @contextlib.contextmanager
    def holding(self, what):
        """All pointers of lists are lies of one kind."""
        truth = {at: self.memory[at:at + 8] for at in self.lists}
        for at in self.lists:
            self.memory[at:at + 8] = struct.pack("<Q", self.LIES[what](self, at))
        try:
            yield
        finally:
            self.restore(truth)

    def restore(self, truth):
        for at, word in truth.items():
            self.memory[at:at + 8] = word

    @staticmethod
    def wild():
        return DIRECT_MAP + random.randrange(0, 1 << 40, 8)

    def run(self):
        while not self.ended.is_set():
            lies = [self.lie() for _ in range(random.randrange(1, 4))]
            truth = {at: self.memory[at:at + 8] for _, at, _ in lies}
            for what, at, word in lies:
                self.memory[at:at + 8] = struct.pack("<Q", word)
                self.told[what] += 1
            self.ended.wait(random.choice((0.001, 0.01, 0.2)))
            self.restore(truth)
            self.ended.wait(random.choice((0.001, 0.01)))


class Hostile(LinuxCase):
    def boot(self):
        deb = next(packages.ensure("4.17", print).glob("busybox-static_*.deb"))
        subprocess.run(["dpkg-deb", "-x", deb, self.scratch / "busybox"], check=True)
        init, ram = self.scratch / "init", self.scratch / "ram"
        init.write_text(START)
        files = files_of({"bin/busybox": self.scratch / "busybox/bin/busybox", "bin/sorter": PROGRAMS / "sorter"})
        self.start_linux("quiet console=ttyS0 nokaslr no5lvl", init, more=files, options=(
            "-object", f"memory-backend-file,id=ram,size={MEGABYTES}M,mem-path={ram},share=on", "-machine", "memory-backend=ram"))
        self.put_root(files)
        self.wait_for(lambda: "guest is up" in self.told(), "its programs do not begin", BOOT)
        with open(ram, "r+b") as file:
            memory = mmap.mmap(file.fileno(), MEGABYTES << 20)
        self.addCleanup(memory.close)
        return memory

    def names(self, memory):
        """Addresses of the names in the task_structs of the processes that do nothing but turn."""
        found = {}
        for name in SPINS:
            pid = int(re.search(rf"^pid {name} (\d+)$", self.told(), re.M)[1])
            for match in re.finditer(re.escape(name.encode() + bytes(16 - len(name))), memory):
                near = memory[max(match.start() - AROUND, 0):match.start()]
                # Its number stands twice there, as thread and as process.
                if match.start() % 8 == 0 and struct.pack("<II", pid, pid) in near:
                    found[name] = match.start()
        self.assertEqual(set(found), set(SPINS))
        return found

    def word(self, memory, at):
        return struct.unpack_from("<Q", memory, at)[0] if 0 <= at <= len(memory) - 8 else 0

    def lists(self, memory, names):
        """Addresses of their pointers to the next and the previous one in lists that lead from one task_struct to another."""
        places = sorted(names.values())
        found = set()
        for name in places:
            for at in range(name - LISTS, name + LISTS, 8):
                following = self.word(memory, at) - DIRECT_MAP
                if following != at and self.word(memory, following + 8) == DIRECT_MAP + at and any(abs(following - other) < LISTS for other in places if other != name):
                    found |= {at, following + 8}
        self.assertTrue(found)
        return sorted(found)

    def roots(self, memory, names):
        """Addresses of the roots of their mappings' trees: in a task_struct its address space stands twice, `mm` and `active_mm`, which
        begins with that tree; a pointer to one of its nodes has flags (lib/maple_tree.c)."""
        def is_node(word):
            return 0 <= word - DIRECT_MAP < len(memory) and word & 2

        found = set()
        for name in names.values():
            for at in range(name - AROUND, name, 8):
                mm = self.word(memory, at) - DIRECT_MAP
                if mm == self.word(memory, at + 8) - DIRECT_MAP and is_node(self.word(memory, mm + 8)):
                    found.add(mm + 8)
        self.assertTrue(found)
        return sorted(found)

    def asked(self, *words, expect=(0,)):
        """What uniprof says within the time, and its status."""
        begin = time.monotonic()
        done = self.start(UNIPROF, *map(str, words), f"qemu:{self.qmp}", cwd=self.scratch)
        done.wait(MOST_S)
        self.longest = max(self.longest, time.monotonic() - begin)
        text = done.log.read_text(errors="replace")
        self.assertIn(done.returncode, expect, text)
        return text

    def check_stacks(self, seen):
        """Functions of the program whose calls are known are called by those that call them."""
        for stack, samples in self.folded("out.uniprof", "--state", "all", "--weight", "samples").items():
            own = [name for name in stack if any(name in call for call in SORTER_CALLS)]
            seen["stacks"] += samples
            for call in zip(own, own[1:]):
                seen["calls"] += samples
                self.assertIn(call, SORTER_CALLS, stack)

    def test_a_kernel_whose_lists_lie(self):
        memory = self.boot()
        names = self.names(memory)
        liar = Liar(memory, self.lists(memory, names), self.roots(memory, names))
        seen, troubles, self.longest = collections.Counter(), collections.Counter(), 0
        before = {process["pid"] for process in json.loads(self.asked("ps", "--json"))["processes"]}
        for what in Liar.LIES:
            with liar.holding(what):
                told = self.asked("ps", expect=ENDS)
            # A shortcut may lead on to others of the list.
            self.assertTrue(TROUBLE.search(told) or what == "shortcut", told)
        liar.start()
        try:
            for _ in range(ROUNDS):
                said = self.asked("ps", expect=ENDS) + self.asked("ps", "--maps", expect=ENDS) + self.asked("stack", "--all-threads", expect=ENDS)
                said += self.asked("record", "--threads", "--sysroot", self.root, "--max-overhead", 50, "-F", 97, "-T", 5, "-o", "out.uniprof", expect=ENDS)
                troubles.update(TROUBLE.findall(said))
                self.check_stacks(seen)
        finally:
            liar.ended.set()
            liar.join()
        print(f"\nlies {dict(liar.told)}; told {dict(troubles)}; {dict(seen)}; longest {self.longest:.1f} s", end=" ", flush=True)
        self.assertTrue(troubles)
        self.assertGreater(seen["calls"], 0)
        # It is as it was, and so is what is seen of it.
        self.assertEqual({process["pid"] for process in json.loads(self.asked("ps", "--json"))["processes"]}, before)


if __name__ == "__main__":
    unittest.main()
