#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""record --host on a real KVM: the split of a vCPU's time is that of the kernel's tracepoints, exits are as many as KVM counts.

On a CPU that counts instructions: a clock that tells time to the instruction, and that costs nothing to read.
"""

import json
import unittest

import chance
from guestcase import PROGRAMS, parse_folded
from kvmcase import KvmCase

KVM_TIME = PROGRAMS.parent / "programs" / "kvm_time"

# Of the machine, which are many of ours where there are exits.
SECONDS = 1
TOLERANCE = 0.05

# In the order of kvm_time's numbers: from its last line before the guest to its first after, KVM says that it is in it.
PLACES = ("guest", "exits", "monitor", "idle")
PLACE = {"[guest]": "guest", "[entry and exit]": "guest", "[exits]": "exits", "[VMM]": "monitor"}


class Host(KvmCase):
    """Guests that do nothing but write to ports, touch fresh memory or compute, and one that naps."""

    rig_options = {"icount": True}
    way, rate, seconds = "host", 1000, SECONDS

    @classmethod
    def setUpClass(cls):
        if not KVM_TIME.exists():
            raise unittest.SkipTest("kvm_time is built where there are clang, bpftool and libbpf only")
        super().setUpClass()
        cls.rig.put_stripped(KVM_TIME)

    def setUp(self):
        self.host("kvm_time >>times 2>&1 &")

    def tearDown(self):
        self.host("killall -9 kvm_time; true")
        super().tearDown()

    def times(self):
        """Nanoseconds of the one thread that runs a guest, by place, and its exits."""
        said = self.host(": >times; kill -USR1 $(pidof kvm_time); i=0; "
                         "until grep -q '^$' times || [ $i -gt 100 ]; do i=$((i + 1)); usleep 20000; done; cat times")
        rows = [[int(word) for word in line.split()] for line in said.splitlines() if line]
        self.assertTrue(rows, "kvm_time saw no guest")
        return max(rows)[1:]

    def take(self, pid, seconds):
        """Records for so long; what was seen, {stack: samples}, and the shares by the kernel. Time that we took the CPU for is no part."""
        *_, first = self.times()
        self.host(f"rm -f out.uniprof; uniprof record --via {self.way} -F {self.rate} -T {seconds} -o out.uniprof kvm:{pid} >said 2>&1 &")
        self.until("[ -s out.uniprof ] || ! pidof uniprof")
        *before, begun = self.times()
        self.host("while pidof uniprof; do usleep 20000; done; cat said", timeout=60 * seconds)
        *after, last = self.times()
        counted = sum(self.exits().values())
        self.assertTrue(0.8 * (last - begun) <= counted <= last - first, f"{counted} exits instead of {last - begun} to {last - first}")
        ns = dict(zip(PLACES, (b - a for a, b in zip(before, after))))
        states = {name: cell["weight_ns"] for name, cell in json.loads(self.host("uniprof report --json out.uniprof"))["states"].items()}
        running = {(*stack, PLACE[stack[1]]): n for stack, n in self.folded("--state running").items()}
        idle = round(sum(running.values()) * states["blocked"] / states["running"])
        return running | {("idle",): idle}, {place: time / sum(ns.values()) for place, time in ns.items()}

    def check(self, name):
        pid = self.host(f"pidof {name}").strip()

        def take(attempt):
            stacks, known = self.take(pid, self.seconds * chance.longer(attempt))
            samples = sum(stacks.values())
            print(", ".join(f"{place} {sum(n for stack, n in stacks.items() if place in stack) / samples:.3f} ({known[place]:.3f})" for place in PLACES),
                  f"in {samples} samples", flush=True)
            return stacks, known

        chance.check_shares(take, TOLERANCE)

    def exits(self):
        return parse_folded(self.host("uniprof export --format=folded --no-inline --by exit out.uniprof 2>/dev/null"))

    def check_cause(self, reason, function):
        """Exits are for this reason, but for interrupts of the host, and this function's doing."""
        caused = {stack: n for stack, n in self.exits().items() if stack[0] != "interrupt"}
        self.assertGreater(caused[(reason, function)], 0.95 * sum(caused.values()), caused)

    def test_ports(self):
        self.start("exits-write_ports", "1", "kernel")
        self.check("monitor")
        self.check_cause("port", "write_ports")

    def test_fresh_memory(self):
        self.start("exits-touch_memory", "1", "kernel")
        self.check("monitor")
        self.check_cause("nested page fault", "touch_memory")

    def test_compute(self):
        self.start("exits-compute", "1", "kernel")
        self.check("monitor")
        exits = self.exits()
        self.assertGreater(exits[("interrupt",)], 0.99 * sum(exits.values()), exits)

    def test_halts(self):
        self.boot("naps-pvh-fp")
        self.check("qemu-system-x86_64")
        self.assertIn(("hlt", "bare_sleep_until"), self.exits())
        idle = [stack for stack in self.folded("--state blocked") if stack[1] == "[idle]"]
        self.assertTrue(any("kvm_vcpu_block" in stack for stack in idle), idle)

    def test_exits_of_a_guest_that_no_sample_meets(self):
        self.boot("naps-pvh-fp")
        said = self.record("naps-pvh-fp", "--via", self.way, "-F 20 -T 0.3")
        self.assertNotIn("not found", said)
        self.assertIn(("hlt", "bare_sleep_until"), self.exits())


class HostEvents(Host):
    """The same by perf events, and ptrace where the guest has a stack."""

    # Stops take the guest's time, but are no part of its shares.
    way, rate, seconds = "host-perf", 250, 4 * SECONDS
    test_compute = None


if __name__ == "__main__":
    unittest.main()
