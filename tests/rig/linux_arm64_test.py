#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""Debian's own kernel as a domU on arm64, busy in many ways: what its stacks look like when no file is given.

It is dom0's kernel, too, which tells its names. The check of the calls compares each return address with the
code before it, as the kernel's file has it.
"""

import bisect
import collections
import json
import re
import struct
import unittest

import chance
import processes_test
from arm64_test import Arm64Case
from guestcase import GUESTS, GuestCase
from xenrig import image, port

# Link address of the kernel's code, and its offset in the file (the first page is the file's head).
LINKED, HEAD = 0xffff800008000000, 0x10000

# From here on is what leads into a kernel that hides from programs, and out of it: no stack is mapped there.
TRAMPOLINES = 0xfffffbff00000000

# Makes linux.cpio, whose first process tells on a console where the kernel is, and goes to work.
ROOT = r"""
mkdir -p tree/bin tree/dev tree/proc && cp /bin/busybox linux-load-arm64 tree/bin/
cat >tree/init <<'END'
#!/bin/busybox sh
/bin/busybox mount -t devtmpfs none /dev
/bin/busybox mount -t proc none /proc
/bin/busybox grep -m 1 ' _stext$' /proc/kallsyms >/dev/{console}
echo guest is up >/dev/{console}
exec /bin/linux-load-arm64
END
chmod +x tree/init
(cd tree && find . | cpio -o -H newc 2>/dev/null) >linux.cpio
"""

START = ROOT.format(console="hvc0") + r"""
rm -f /var/log/xen/console/guest-linux.log
printf 'name="linux"\nkernel="linux"\nramdisk="linux.cpio"\nmemory=256\nextra="console=hvc0 quiet"\n' >linux.cfg
xl create linux.cfg && i=0
until grep -q 'guest is up' /var/log/xen/console/guest-linux.log; do i=$((i + 1)); [ $i -lt 9000 ] || exit 1; usleep 10000; done
"""

# Entries of the kernel, first functions of its threads, and code on the way back to a program.
ENTRY = re.compile(r"el[01][th]_64_(?:sync|irq|fiq|error)|vectors|ret_to_user|ret_to_kernel|ret_from_fork|__primary_switched|__secondary_switched")
# Frames above interrupted code of the kernel.
UPON_KERNEL = re.compile(r"el1[th]_64_(?:sync|irq|fiq|error)|ret_to_kernel")
# So many functions may jump on before the one that is seen.
JUMPS = 4

# Share of cut stacks, %; 0.4 were seen, at the very beginning of the vectors.
MOST_CUT = 3
ENOUGH = 500
TRIES = 6
PATIENCE = 500


def sign_extend(value, bits):
    return value - (1 << bits) if value >> (bits - 1) else value


class Kernel:
    """Code and names of a kernel. Addresses are those of one that was not moved; where it was, `start` is its _stext."""

    def __init__(self, path, kallsyms, start=LINKED + HEAD):
        self.code = path.read_bytes()
        rows = sorted((int(address, 16), name) for address, kind, name in re.findall(r"^(\w+) (\w) (\S+)$", kallsyms, re.M))
        moved = next(address for address, name in rows if name == "_stext") - (LINKED + HEAD)
        self.moved = start - (LINKED + HEAD)
        self.starts = [address - moved for address, _ in rows]
        self.names = [name for _, name in rows]
        self.aliases = collections.defaultdict(set)
        for at, name in zip(self.starts, self.names):
            self.aliases[at].add(name)

    def place(self, address):
        """Where an address would be had the kernel not moved."""
        return address - self.moved if address >= LINKED else address

    def start(self, address):
        """Start of the function at an address; 0 if it is no kernel's."""
        i = bisect.bisect_right(self.starts, address) - 1
        return self.starts[i] if i >= 0 and address < self.starts[-1] else 0

    def name(self, address):
        return min(self.aliases[self.start(address)], default=hex(address))

    def word(self, address):
        return struct.unpack_from("<I", self.code, address - LINKED)[0] if self.start(address) else 0

    def leads(self, address, target):
        """Target of the branch at an address: bl and b; 0 for none, None for one by a register."""
        word = self.word(address)
        if word >> 26 & 0x1f == 5:
            return address + 4 * sign_extend(word & 0x3ffffff, 26)
        return None if word & 0xfffffc1f in (0xd63f0000, 0xd61f0000) else 0

    def jumps(self, start):
        end = self.starts[bisect.bisect_right(self.starts, start)]
        for address in range(start, end, 4):
            if self.word(address) >> 26 == 5 or self.word(address) & 0xfffffc1f == 0xd61f0000:
                yield self.leads(address, 0)

    def may_call(self, ret, callee):
        """True if the call before `ret` can lead to the function at `callee`, by itself or by jumps."""
        front, reached = {self.leads(ret - 4, 0)}, set()
        for _ in range(JUMPS):
            if None in front:
                return True
            front = {self.start(address) for address in front if address} - reached
            if self.start(callee) in front:
                return True
            reached |= front
            front = {target for start in front for target in self.jumps(start)}
        return False


class KernelChecks:
    """Of a test case with a `kernel`, and so many stacks that are `enough`."""

    # Share that does not reach an entry.
    may_lose = 0.01

    def trace(self, text):
        """The kernel's stacks as [(address, is it a return address?)], leaf first. Return addresses are told as the byte before."""
        stacks = [[int(address, 16) for address in re.findall(r"^\t([0-9a-f]+) ", block, re.M)] for block in text.split("\n\n")]
        return [[(self.kernel.place(address + 3 & ~3), address & 3 != 0) for address in stack]
                for stack in stacks if stack and LINKED <= stack[0] < TRAMPOLINES]

    def check_ends(self, stacks):
        ends = collections.Counter(self.kernel.name(stack[-1][0] - 4 * stack[-1][1]) for stack in stacks)
        lost = {name: n for name, n in ends.items() if not ENTRY.fullmatch(name)}
        print(f"\n{len(stacks)} kernel stacks, {sum(lost.values())} do not reach an entry:", lost, end=" ", flush=True)
        self.assertGreaterEqual(len(stacks), self.enough)
        self.assertLessEqual(sum(lost.values()), chance.most(self.may_lose * len(stacks)))

    def check_calls(self, stacks):
        wrong, calls, interrupted, stranded = collections.Counter(), 0, 0, 0
        for stack in stacks:
            # In the first and the last instructions of an entry, nobody may know what was interrupted.
            stranded += len(stack) > 1 and UPON_KERNEL.fullmatch(self.kernel.name(stack[-1][0] - 4)) is not None
            for (callee, called), (ret, returns) in zip(stack, stack[1:]):
                if not returns:
                    interrupted += ret >= LINKED
                    continue
                calls += 1
                if not self.kernel.may_call(ret, callee - 4 * called):
                    wrong[f"{self.kernel.name(ret - 4)} -> {self.kernel.name(callee - 4 * called)}"] += 1
        print(f"{calls} calls, {sum(wrong.values())} impossible:", dict(wrong),
              f"{interrupted} handlers on what they interrupted, {stranded} on nothing", end=" ", flush=True)
        self.assertFalse(wrong)
        self.assertEqual(0, stranded)


class Linux(Arm64Case, GuestCase, KernelChecks):
    enough = ENOUGH

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        linux = image.locate("4.17", port.ARM64) / "linux"
        cls.rig.put(GUESTS / "linux-load-arm64", linux=linux)
        cls.kernel = Kernel(linux, cls.rig.run("grep -v '\\[' /proc/kallsyms", check=True).text)

    def start(self):
        status, text = self.dom0(START, PATIENCE)
        self.assertEqual(status, 0, text)

    def stacks(self):
        """Enough of the kernel's stacks."""
        found = []
        for _ in range(TRIES):
            said = self.record("linux", "-F 4000 -T 0.4", timeout=PATIENCE)
            self.assertNotIn("no names", said)
            status, text = self.dom0("uniprof export --format=perf-script --state=all linux.uniprof 2>/dev/null")
            self.assertEqual(status, 0, text)
            found += self.trace(text)
            if len(found) >= ENOUGH:
                break
        return found

    def check_threads(self):
        """Debian's kernel for arm64 keeps names of its code alone, being built without CONFIG_KALLSYMS_ALL; it may not be met in kernel mode."""
        status, text = self.dom0("uniprof stack --all-threads linux", PATIENCE)
        self.assertEqual(status, 3, text)
        self.assertRegex(text, "has no names of its data .CONFIG_KALLSYMS_ALL.: its threads cannot be found|no vCPU was ever seen in the guest's kernel: try again")

    def test_stacks_of_a_busy_kernel_reach_its_entry_and_have_names(self):
        self.start()
        stacks = self.stacks()
        self.check_ends(stacks)
        self.check_calls(stacks)
        seen = {name for stack in self.folded("linux", "--state=all") for name in stack}
        for name in "el0t_64_sync", "el0_svc", "handle_mm_fault", "schedule", "vfs_write":
            self.assertIn(name, seen)
        self.assertLess(100 * json.loads(self.report("linux", "--json"))["stacks"]["truncated_share"], MOST_CUT)
        self.check_threads()

    def record(self, guest, options="", **more):
        # The kernel's names are in its memory.
        return GuestCase.record(self, guest, options, **more)


class Processes(processes_test.ProcessesChecks, Arm64Case):
    """Debian's 6.12, which has names of its data: samples tell their programs, though no context has TPIDR_EL1."""

    rig_options = Arm64Case.rig_options | {"xen": "4.20"}
    rate, tolerance = 47, 0.03

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.rig.put(**{"linux": image.locate("4.20", port.ARM64) / "linux", "linux-threads": GUESTS / "linux-threads-arm64"})

    record = Linux.record

    def check_files(self):
        """Functions of programs have names by their files where the guest's root directory is told, and each program its own."""
        self.record("linux", "-q -F 97 -T 5 --sysroot tree", timeout=100)
        found = {process.rsplit(" (", 1)[0]: image for (process, image), n in self.rows("--by process,image").items() if "/" in image}
        self.assertEqual({process: found.get(process) for process in ("linux-threads", "busybox")}, {"linux-threads": "/bin/linux-threads", "busybox": "/bin/busybox"})
        self.assertIn(("linux-threads", "turns"), {(process.rsplit(" (", 1)[0], function) for process, function in self.rows("--by process,function")})

    def test_of_a_kernel_that_hides_from_programs(self):
        self.check("pvh", 1, "console=hvc0 quiet")
        self.check_files()


if __name__ == "__main__":
    unittest.main()
