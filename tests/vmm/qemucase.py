# SPDX-License-Identifier: BSD-3-Clause
"""Guests of QEMU for tests: their machines, a QMP connection, and profilers of them."""

import json
import shutil
import socket
import struct
import time
import unittest

from hostcase import BUILD, HostCase, chance, impossible_edges

# QEMU, machine, processor and MiB of a program's or platform's guests, where they are not the usual.
MACHINES = {
    "arm64": ("qemu-system-aarch64", "virt", "cortex-a57", "64"),
    "arm64g16": ("qemu-system-aarch64", "virt", "max", "64"),
    "arm64g64": ("qemu-system-aarch64", "virt", "cortex-a57", "64"),
    "arm32": ("qemu-system-arm", "virt", "cortex-a15", "64"),
    "arm32t": ("qemu-system-arm", "virt", "cortex-a15", "64"),
    "riscv64": ("qemu-system-riscv64", "virt", "rv64", "64"),
    "riscv64sv48": ("qemu-system-riscv64", "virt", "rv64", "64"),
    "riscv64sv57": ("qemu-system-riscv64", "virt", "rv64", "64"),
    "pvh57": ("qemu-system-x86_64", "pc", "max,la57=on", "64"),
    "large-pages": ("qemu-system-x86_64", "pc", "max,la57=on", "1088"),
}
USUAL = ("qemu-system-x86_64", "pc", "qemu64", "64")

# Samples that may be outside main.
ELSEWHERE = 0.01


def moved_there(image, to):
    """An image of 32-bit Arm for where Xen puts it: QEMU puts what it takes for Linux elsewhere, and this moves it."""
    behind, place = 0x40010000 + 4, 0x40008000
    code = image.read_bytes()
    code += bytes(-len(code) % 4)
    branch = 0xea000000 | (4 + len(code) - 8) // 4
    move = [0xe59f0018, 0xe59f1018, 0xe59f3018,  # ldr r0, =place; ldr r1, =behind; ldr r3, =words
            0xe4915004, 0xe4805004, 0xe2533001, 0x1afffffb,  # 1: ldr r5, [r1], #4; str r5, [r0], #4; subs r3, #1; bne 1b
            0xe59ff008,  # ldr pc, =place
            place, behind, len(code) // 4, place]
    to.write_bytes(struct.pack("<I", branch) + code + struct.pack(f"<{len(move)}I", *move))
    return to


class Monitor:
    """A QMP connection of the test's own."""

    def __init__(self, path):
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.settimeout(60)
        self.socket.connect(str(path))
        self.came, self.asked = b"", 0
        self.line(time.monotonic() + 60)
        self.ask("qmp_capabilities")

    def line(self, until):
        """The next line; TimeoutError if there is none by then."""
        while b"\n" not in self.came:
            self.socket.settimeout(max(until - time.monotonic(), 0.001))
            more = self.socket.recv(65536)
            if not more:
                raise ConnectionError("QEMU has hung up")
            self.came += more
        line, self.came = self.came.split(b"\n", 1)
        return line

    def ask(self, command, seconds=60, **arguments):
        """What QEMU answers; TimeoutError if it does not within so many seconds. A late answer does no harm."""
        self.asked += 1
        self.socket.settimeout(seconds)
        self.socket.sendall(json.dumps({"execute": command, "arguments": arguments, "id": self.asked}).encode() + b"\n")
        until = time.monotonic() + seconds
        while True:
            answer = json.loads(self.line(until))
            if answer.get("id") == self.asked:
                return answer.get("return")

    def tell(self, command, **arguments):
        """Asks for what QEMU may do and answer only once the guest runs again."""
        try:
            self.ask(command, 0.3, **arguments)
        except TimeoutError:
            pass

    def close(self):
        self.socket.close()

    def runs(self, seconds=60):
        return self.ask("query-status", seconds)["running"]

    def stubs(self):
        """Character devices of gdb stubs."""
        return [device for device in self.ask("query-chardev") if "gdb" in device["label"]]


@unittest.skipUnless(shutil.which("qemu-system-x86_64"), "no qemu-system-x86_64 on this machine")
class QemuCase(HostCase):
    def command(self, guest="app1-pvh-fp", *more, append="scale=1000", qemu=None):
        self.console, self.qmp, self.own, self.gdb = (self.scratch / name for name in ("console.txt", "qmp.sock", "own.sock", "gdb.sock"))
        program, platform, _ = guest.rsplit("-", 2)
        usual, machine, cpu, memory = MACHINES.get(program) or MACHINES.get(platform) or USUAL
        if not shutil.which(qemu or usual):
            self.skipTest(f"no {qemu or usual} on this machine")
        kernel = BUILD / "guests" / f"{guest}.{'image' if platform.startswith('arm') else 'elf'}"
        if platform.startswith("arm") and not kernel.exists():
            self.skipTest("guests for Arm were not built (gcc-aarch64-linux-gnu)")
        if platform.startswith("riscv64") and not kernel.exists():
            self.skipTest("guests for RISC-V were not built (gcc-riscv64-linux-gnu)")
        if platform.startswith("arm32"):
            kernel = moved_there(kernel, self.scratch / "kernel")
        return [qemu or usual, "-accel", "tcg", "-M", machine, "-cpu", cpu, "-m", memory, "-display", "none", "-no-reboot",
                "-serial", f"file:{self.console}", "-name", f"guest={guest},debug-threads=on", "-kernel", str(kernel), "-append", append, *more]

    def boot(self, guest, *more, says=None, **how):
        """Starts a guest, and waits for the first line of its program, or for what it says instead."""
        process = self.start(*self.command(guest, *more, **how))
        self.begins(says or guest.rsplit("-", 2)[0])
        return process

    def qemu(self, guest="app1-pvh-fp", *more, **how):
        process = self.boot(guest, "-qmp", f"unix:{self.scratch}/qmp.sock,server=on,wait=off",
                            "-qmp", f"unix:{self.scratch}/own.sock,server=on,wait=off", *more, **how)
        self.monitor = Monitor(self.own)
        self.addCleanup(self.monitor.close)
        return process

    def stop(self):
        """Stops the guest as its owner. Whoever does so while it is stopped for a sample cannot be told from the sample."""
        def stops():
            self.monitor.ask("stop")
            return self.stands_still(lambda: self.console.stat().st_size, lambda: not self.monitor.runs())

        self.wait_for(stops, "it runs though it was stopped")

    def stands(self, process):
        """QEMU says that the guest does not run; or it does not answer, as a vCPU of it is held."""
        try:
            return not self.monitor.runs(0.3)
        except TimeoutError:
            return self.thread_is_held(process)

    def runs_and_prints(self):
        """QEMU says that the guest runs, and so does the guest."""
        self.wait_for(self.monitor.runs, "the guest was left stopped")
        self.prints()

    def goes_on_printing(self):
        """The guest runs, and no stub is left."""
        self.wait_for(lambda: not self.monitor.stubs(), "a stub is left in QEMU")
        self.assertTrue(self.monitor.runs(), "the guest was left stopped")
        self.prints()

    def recorder(self, *options, rate=50, **more):
        """Records through the socket; with a stub there is something to be recorded."""
        return super().recorder(f"qemu:{self.qmp}", *options, rate=rate, **more)

    def by_stub(self, **more):
        profiler = self.recorder(**more)
        self.wait_for(self.monitor.stubs, "no stub comes")
        return profiler

    def check_stacks(self, guest, stacks):
        # Below guests for RISC-V there is firmware, whose functions have no names here.
        if "-riscv64" in guest:
            stacks = {stack: n for stack, n in stacks.items() if not all(name.startswith("0x") for name in stack)}
        self.assertLessEqual(sum(n for stack, n in stacks.items() if "main" not in stack), chance.most(ELSEWHERE * sum(stacks.values())))
        self.assertFalse(impossible_edges(guest, stacks)[0])
