#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""Debian's own kernel as a domU, busy in many ways: what its stacks look like when no file is given.

The check of the calls compares each return address with the code before it, as the kernel's file has it.
"""

import bisect
import collections
import re
import struct
import subprocess
import tempfile
import unittest
from pathlib import Path

import chance
from guestcase import BUILD, GUESTS, GuestCase, unpacked
from xenrig import image, packages

KERNEL, MODULES = 0xffffffff80000000, 0xffffffffc0000000

# Starts a guest of TYPE with LOAD, which may use guests/linux/load.c. It says where its kernel is.
START = r"""
mkdir -p tree/bin tree/dev && cp /bin/busybox linux-load brd.ko tree/bin/
cat >tree/init <<'END'
#!/bin/busybox sh
/bin/busybox mount -t devtmpfs none /dev
PREPARE
/bin/busybox mkdir /proc; /bin/busybox mount -t proc none /proc; /bin/busybox grep ' startup_64$' /proc/kallsyms >/dev/hvc0
echo guest is up >/dev/hvc0
LOAD
END
chmod +x tree/init
(cd tree && find . | cpio -o -H newc 2>/dev/null) >linux.cpio
rm -f /var/log/xen/console/guest-linux.log
printf 'name="linux"\ntype="TYPE"\nkernel="/job/linux"\nramdisk="/job/linux.cpio"\nmemory=256\nvcpus=VCPUS\ntsc_mode="native"\nextra="console=hvc0 quiet"\nSETTINGS' >linux.cfg
xl create linux.cfg && i=0
until grep -q 'guest is up' /var/log/xen/console/guest-linux.log; do i=$((i + 1)); [ $i -lt 1200 ] || { cat /var/log/xen/console/guest-linux.log; exit 1; }; usleep 250000; done
"""
# There is the disk when the load begins, or the guest never says that it is up.
DISK = "until [ -b /dev/ram0 ]; do /bin/busybox insmod /bin/brd.ko rd_nr=1 >/dev/hvc0 2>&1; /bin/busybox sleep 0.1; done"

# Entries of the kernel, and the first functions of its idle loop and threads.
ENTRY = re.compile(r"(entry: |asm_|exc_xen_|xen_asm_|xen_entry_|xen_error_|entry_|ret_from_fork|secondary_startup|startup_|native_iret|xen_iret|"
                   r"error_|paranoid_|common_interrupt_return|swapgs_|xenpv_|xen_start_kernel|pvh_start_xen|start_kernel|"
                   # Labels on the ways back: where code is after them, it is on its way out.
                   r"restore_regs_and_return|native_irq_return|early_xen_iret_patch|syscall_return_via_sysret)")
# Calls that lead elsewhere than their target says: the kernel changes these calls when it runs, or they jump on.
INDIRECT = re.compile(r"__x86_indirect_|__SCT__|__fentry__|.*_thunk|BUG_func|xen_.*|native_.*|paravirt_|pv_native_|.*alternative|"
                      r"__raw_callee_save_|clear_page|clear_user_|__put_user_|__get_user_|memcpy|memset|memmove|__memcpy|__memset|copy_user_generic|__static_call")
# Opcodes of jumps with 32 bits, conditional or not, up to the number.
JUMP = re.compile(rb"\xe9|(?<=\x0f)[\x80-\x8f]")
RETURN = re.compile(r".*_return_thunk$")

# Callers of the functions in guests/linux/load.c, all of them.
PROGRAM = {
    "_start": {"user_entry"}, "user_entry": {"start_all"},
    "start_all": {"call", "run_faults", "run_files", "run_pipes", "run_forks", "run_user", "run_sleeps"},
    "run_faults": {"call", "touch_pages"}, "run_files": {"call"}, "run_pipes": {"call"}, "run_forks": {"call"}, "run_user": {"spin"},
    "run_sleeps": {"call"}, "call": set(), "touch_pages": set(), "spin": set()}
# Functions in which it enters the kernel, and how.
ENTERED = {("call", "call"), ("touch_pages", "fault"), ("spin", "interrupt")}
# Callers of the functions of the kernel's block/brd.ko when its disk is read.
MODULE = {"brd_submit_bio": {"__submit_bio"}, "brd_do_bvec": {"brd_submit_bio"}}
# Entries from the middle of any code, and functions that only run after these.
INTERRUPT = re.compile(r"asm_(exc_xen_hypervisor_callback|common_interrupt|sysvec_.*)|xen_asm_exc_xen_hypervisor_callback|exc_xen_hypervisor_callback")
HANDLER = re.compile(r"__irq_exit_rcu|__do_softirq|__xen_pv_evtchn_do_upcall|__xen_evtchn_do_upcall|handle_percpu_irq|sysvec_.*")

# Entries from programs; and functions that switch between programs, so that their stacks cannot be told.
USER_ENTRY = re.compile(r"entry_|xen_entry_|asm_exc_page_fault")
SWITCHES = {"__switch_to", "__switch_to_asm", "switch_mm_irqs_off", "do_exit", "load_elf_binary"}

# No function of the kernel is longer, bytes.
LONGEST = 1 << 16

# Samples in which all that the load does is seen.
ENOUGH = 500
# A machine with much else to do lets the emulated one stand still for seconds: recordings get longer.
TRIES = 8
OPTIONS, SECONDS = "-F 400", 6
PATIENCE = 500


class Kernel:
    """Code and names of a vmlinuz that is packed with xz."""

    def __init__(self, path):
        self.path = path
        self.elf = unpacked(path)
        count = struct.unpack_from("<H", self.elf, 56)[0]
        headers = [struct.unpack_from("<IIQQQQQQ", self.elf, 64 + 56 * i) for i in range(count)]
        self.loads = [(h[3], h[2], h[5]) for h in headers if h[0] == 1]
        table = subprocess.run([BUILD / "symbols_nm", path], check=True, capture_output=True, text=True).stdout
        rows = [line.split() for line in table.splitlines()]
        self.starts = [int(row[0], 16) for row in rows]
        self.names = [row[2] for row in rows]
        self.calls = {}

    def function(self, address):
        """(start, end, name) of the function at an address; None if it is no kernel's."""
        i = bisect.bisect_right(self.starts, address) - 1
        if i < 0 or i + 1 == len(self.starts) or address < KERNEL:
            return None
        return self.starts[i], self.starts[i + 1], self.names[i]

    def address(self, name):
        return self.starts[self.names.index(name)]

    def read(self, address, length):
        for start, offset, size in self.loads:
            if start <= address < start + size:
                return self.elf[offset + address - start:offset + address - start + length]
        return b""

    def called(self, ret):
        """The target of the direct call before `ret`; None for any other call, False if there is no call."""
        code = self.read(ret - 7, 7)
        if len(code) == 7 and code[2] == 0xe8:
            return (ret + struct.unpack("<i", code[3:])[0]) & (1 << 64) - 1
        if any(len(code) == 7 and code[7 - n] == 0xff and code[8 - n] >> 3 & 7 == 2 for n in (2, 3, 4, 6, 7)):
            return None
        # In the guest, calls through a table, or filled up with nops for other code, are calls of five bytes.
        changed = code[2:4] in (b"\xff\x14", b"\xff\x15") or b"\x90" in code[2:] or code[2:3] in (b"\x0f", b"\x66")
        return None if changed else False

    def is_on_irq_stack(self, ret):
        """True if the code that is returned to goes back to the interrupted stack, by popping its pointer."""
        return re.match(rb"(\xe8.{4}|\x48\x89.)*\x5c", self.read(ret, 32), re.DOTALL) is not None

    def jumps(self, start, end):
        """Addresses that the code from start to end may jump to, and what lies in it by chance."""
        code = self.read(start, end - start + 5)
        return {start + at.end() + 4 + struct.unpack_from("<i", code, at.end())[0] for at in JUMP.finditer(code, 0, len(code) - 4)}

    def may_call(self, ret, callee):
        """True if the call before `ret` can lead to the function of this name, by itself or by jumps."""
        if (ret, callee) not in self.calls:
            self.calls[ret, callee] = self.leads_to(ret, callee)
        return self.calls[ret, callee]

    def leads_to(self, ret, callee):
        target = self.called(ret)
        if target is None or target is False:
            return target is None
        reached, front = set(), {target}
        for _ in range(3):
            functions = [self.function(address) for address in front]
            names = {function[2] for function in functions if function}
            if callee in names or any(INDIRECT.match(name) for name in names):
                return True
            reached |= front
            # A longer one is no function, but the space behind the last one of a section.
            front = set().union(*(self.jumps(*function[:2]) for function in functions
                                  if function and function[1] - function[0] < LONGEST)) - reached
        return False


class LinuxCase(GuestCase):
    """A busy kernel whose stacks are checked."""

    settings = ""  # more lines of the guest's configuration
    moved = 0      # so far from where its file has it, bytes

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        vmlinuz = image.locate("4.17", hvm=cls.rig_options.get("hvm", False)) / "linux"
        cls.kernel = Kernel(vmlinuz)
        with tempfile.TemporaryDirectory() as tree:
            packages.unpack(packages.directory("4.17"), tree, lambda name: name.endswith("/block/brd.ko"))
            module = next(Path(tree).rglob("brd.ko"))
            cls.rig.put(GUESTS / "linux-load", module, linux=vmlinuz)

    def start(self, kind, load, vcpus, prepare=""):
        script = START.replace("TYPE", kind).replace("LOAD", load).replace("PREPARE", prepare).replace("VCPUS", str(vcpus))
        status, text = self.dom0(script.replace("SETTINGS", self.settings), PATIENCE)
        self.assertEqual(status, 0, text)
        self.moved = int(re.search(r"([0-9a-f]{16}) \w startup_64", self.console("linux"))[1], 16) - self.kernel.address("startup_64")

    def stacks(self):
        """Enough of the kernel's stacks, of handlers, too: addresses, leaf first."""
        found = []
        for attempt in range(TRIES):
            found += self.trace(f"{OPTIONS} -T {SECONDS * chance.longer(attempt)}")
            if len(found) > ENOUGH and self.beneath_handlers(found):
                break
        return found

    def trace(self, options):
        """The kernel's stacks in a classic trace."""
        status, text = self.dom0(f"uniprof {options} linux.trace linux", 60)
        self.assertEqual(status, 0, text)
        found, stack = [], []
        for line in self.rig.read("linux.trace").decode().splitlines()[3:]:
            if line.startswith("0x"):
                address = int(line, 16)
                stack.append(address - self.moved if KERNEL <= address < MODULES else address)
            elif not line:
                found.append(stack)
                stack = []
        return [stack for stack in found if stack and stack[0] >= KERNEL]

    def functions(self, stack):
        """The functions of a kernel stack, leaf first."""
        found, offset = [], 0
        for address in stack:
            exact = self.kernel.function(address)
            # A new task is given its first return address by hand: nothing before it has called anything.
            if exact and exact[2] == "ret_from_fork" and exact[0] == address:
                offset = 0
            found.append(self.kernel.function(address - offset) or (0, 0, hex(address)))
            # An entry returns to interrupted code, which did not call it.
            offset = 0 if ENTRY.match(found[-1][2]) else 1
        return found

    def check_ends(self, stacks):
        ends = collections.Counter()
        for stack in stacks:
            names = [function[2] for function in self.functions(stack)]
            # The first CPU's idle loop was called by code that the kernel has thrown away since.
            ends["entry: idle loop" if "cpu_startup_entry" in names else names[-1]] += 1
        lost = {name: n for name, n in ends.items() if not ENTRY.match(name)}
        total = sum(ends.values())
        print(f"\n{total} kernel stacks, {sum(lost.values())} do not reach an entry:", lost, end=" ", flush=True)
        self.assertGreater(total, ENOUGH)
        self.assertLessEqual(sum(lost.values()), chance.most(0.01 * total))

    def check_calls(self, stacks):
        wrong = collections.Counter()
        for stack in stacks:
            functions = self.functions(stack)
            for callee, caller, ret in zip(functions, functions[1:], stack[1:]):
                # It fills the processor's buffer of return addresses, by calls within itself.
                if callee[2] == caller[2] == "__switch_to_asm":
                    continue
                # Pushed by hand, as above.
                if caller[2] == "ret_from_fork" and ret == caller[0]:
                    continue
                # Any function returns through it; and code of a module, or of the program on whose stack an entry begins, is in no file of ours.
                if RETURN.match(callee[2]) or ret >= MODULES or ret < KERNEL:
                    continue
                if not ENTRY.match(callee[2]) and not self.kernel.may_call(ret, callee[2]):
                    wrong[f"{caller[2]} -> {callee[2]}"] += 1
        total = sum(len(stack) - 1 for stack in stacks)
        print(f"{total} calls, {sum(wrong.values())} impossible:", dict(wrong), end=" ", flush=True)
        self.assertFalse(wrong)

    def beneath_handlers(self, stacks):
        """Handlers on the CPU's stack for interrupts by what they stand on: code of the kernel (True), another's or nothing (None)."""
        beneath = collections.Counter()
        for stack in stacks:
            names = [function[2] for function in self.functions(stack)]
            for i, (ret, entry) in enumerate(zip(stack[1:], names[2:])):
                if INTERRUPT.match(entry) and self.kernel.is_on_irq_stack(ret):
                    beneath[stack[i + 3] >= KERNEL if stack[i + 3:] else None] += 1
        return beneath

    def check_interrupts(self, stacks):
        """Handlers on the CPU's stack for interrupts, which only the kernel's code is interrupted for, stand on that code."""
        beneath = self.beneath_handlers(stacks)
        print(f"{beneath[True]} handlers on a stack for interrupts", end=" ", flush=True)
        self.assertEqual({True}, set(beneath), beneath)

    def whole(self, options, complete):
        """Enough stacks with all their names, until they are complete: {stack, root first: samples}."""
        stacks = collections.Counter()
        for attempt in range(TRIES):
            self.record("linux", f"{OPTIONS} -T {SECONDS * chance.longer(attempt)} {options}")
            stacks += self.folded("linux", "--state=all --weight=samples")
            if sum(stacks.values()) >= 2 * ENOUGH and complete(stacks):
                break
        return stacks

    def check_names(self, expected):
        """Without any option the profile has names, of all that the load does; returns its stacks."""
        def seen(stacks):
            return {name for stack in stacks for name in stack}

        stacks = self.whole("", lambda stacks: set(expected) <= seen(stacks))
        self.assertLessEqual(set(expected), seen(stacks), self.report("linux"))
        return stacks

    def judge_program(self, stacks):
        """Samples that stand on the program's stack, by where, and by what; on what is wrong, on nothing and on a part of it; and handlers."""
        wrong, entered, lost, short, interrupted = (collections.Counter() for _ in range(5))
        for stack, samples in stacks.items():
            own = next((i for i, name in enumerate(stack) if name not in PROGRAM), len(stack))
            user, kernel = stack[:own], stack[own:]
            if any(callee not in PROGRAM[caller] for caller, callee in zip(user, user[1:])) or set(kernel) & PROGRAM.keys() \
                    or (user and kernel and not ENTRY.match(kernel[0])):
                wrong[";".join(stack)] += samples
            elif user and user[0] != "_start":
                short[user[0]] += samples
            elif user and kernel:
                entered[user[-1], "interrupt" if INTERRUPT.match(kernel[0]) else "fault" if "page_fault" in kernel[0] else "call"] += samples
            elif kernel[1:] and USER_ENTRY.match(kernel[0]) and not SWITCHES & set(kernel):
                lost[kernel[0]] += samples
            at = next((i for i, name in enumerate(stack) if INTERRUPT.match(name)), 0)
            if at > own and any(HANDLER.match(name) for name in stack[at:]):
                interrupted[stack[at - 1]] += samples
        return wrong, entered, lost, short, interrupted

    def check_program(self):
        """With the program's file, stacks go on from the kernel's entry to the program's first function."""
        def complete(stacks):
            _, entered, _, _, interrupted = self.judge_program(stacks)
            return ENTERED <= entered.keys() and interrupted

        wrong, entered, lost, short, interrupted = self.judge_program(self.whole("-s linux-load", complete))
        total = sum(entered.values())
        print(f"\n{total} kernel stacks on the program's, {sum(short.values())} on a part of them, {sum(lost.values())} on nothing; "
              f"{sum(interrupted.values())} handlers on what they interrupted in the kernel", end=" ", flush=True)
        self.assertFalse(wrong)
        self.assertLessEqual(sum(lost.values()), chance.most(0.01 * total))
        # The program's stack is not in memory while the kernel copies a page of it.
        self.assertLessEqual(sum(short.values()), chance.most(0.03 * total))
        self.assertLessEqual(ENTERED, entered.keys(), entered)
        self.assertTrue(interrupted)

    def check_module(self, stacks):
        """A module's functions have names and callers, from the guest's memory alone."""
        seen, wrong = collections.Counter(), collections.Counter()
        for stack, samples in stacks.items():
            for i, name in enumerate(stack):
                if name not in MODULE:
                    continue
                seen[name] += samples
                if stack[i - 1] not in MODULE[name] or not ENTRY.match(stack[0]):
                    wrong[";".join(stack)] += samples
        print(f"of the module: {dict(seen)}", end=" ", flush=True)
        self.assertFalse(wrong)
        self.assertEqual(MODULE.keys(), seen.keys(), self.report("linux"))

    def check(self, kind, load, vcpus, names, prepare=""):
        self.start(kind, load, vcpus, prepare)
        stacks = self.stacks()
        self.check_ends(stacks)
        self.check_calls(stacks)
        self.check_interrupts(stacks)
        named = self.check_names(names)
        if "linux-load" in load:
            self.check_program()
        if prepare == DISK:
            self.check_module(named)


class Linux(LinuxCase):
    def test_stacks_of_a_busy_pv_kernel(self):
        self.check("pv", "exec /bin/linux-load", 2, ["do_syscall_64", "handle_mm_fault", "schedule"])

    def test_stacks_of_a_pvh_kernel_with_an_idle_cpu_and_a_module(self):
        self.check("pvh", "while :; do /bin/busybox dd if=/dev/ram0 of=/dev/null bs=64k count=64 iflag=direct 2>/dev/null; /bin/busybox sleep 0.01; done",
                   1, ["do_syscall_64", "do_idle", *MODULE], DISK)


if __name__ == "__main__":
    unittest.main()
