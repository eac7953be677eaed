#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""A Linux kernel that has moved itself when it started (KASLR): Debian's, in QEMU, told by itself how far.

Xen starts PV and PVH guests behind the code that moves kernels; so this one runs without Xen, and its
memory and registers are put into a snapshot file (docs/snapshot.md), which is then looked at. It has
no disk: it ends in a panic, from which its stack is known.
"""

import json
import re
import socket
import struct
import subprocess
import tempfile
import time
import unittest
import zlib
from pathlib import Path

import chance
from guestcase import BUILD
from xenrig import RigError, image

MEMORY = 192 << 20
FRAME = 4096
PATIENCE = 240
# Numbers of registers in DWARF (System V ABI for x86-64, figure 3.36).
REGISTERS = ["RAX", "RDX", "RCX", "RBX", "RSI", "RDI", "RBP", "RSP"] + [f"R{i}" for i in range(8, 16)]
FOUR_LEVELS = 3


class Machine:
    """A QEMU that has started the kernel, until the kernel has said how far it has moved."""

    def __init__(self, kernel, directory):
        self.directory, serial = directory, directory / "serial"
        serial.unlink(missing_ok=True)
        self._qemu = subprocess.Popen(
            ["qemu-system-x86_64", "-accel", "tcg", "-m", str(MEMORY >> 20), "-cpu", "max,la57=off", "-nodefaults", "-display", "none",
             "-no-reboot", "-kernel", kernel, "-append", "console=ttyS0 quiet panic=0 no_timer_check",
             "-serial", f"file:{serial}", "-qmp", f"unix:{directory / 'qmp'},server=on,wait=off"])
        end = time.monotonic() + PATIENCE
        self.offset = None
        while self.offset is None:
            if time.monotonic() > end or self._qemu.poll() is not None:
                self.close()
                raise RuntimeError("the kernel has not come to its end: " + serial.read_text(errors="replace")[-500:])
            time.sleep(0.5)
            said = re.search(r"Kernel Offset: (0x[0-9a-f]+) from", serial.read_text(errors="replace") if serial.exists() else "")
            self.offset = int(said[1], 16) if said else None

    def close(self):
        self._qemu.kill()
        self._qemu.wait()

    def stop(self):
        """The registers and the memory, from now on as they are."""
        with socket.socket(socket.AF_UNIX) as sock:
            sock.connect(str(self.directory / "qmp"))
            with sock.makefile("rw") as stream:
                stream.readline()
                memory = self.directory / "memory"
                for command, arguments in (("qmp_capabilities", {}), ("stop", {}),
                                           ("pmemsave", {"val": 0, "size": MEMORY, "filename": str(memory)})):
                    self._ask(stream, command, **arguments)
                text = self._ask(stream, "human-monitor-command", **{"command-line": "info registers"})
        return {name: int(value, 16) for name, value in re.findall(r"\b([A-Z0-9]+) *=([0-9a-f]+)", text)}, memory.read_bytes()

    @staticmethod
    def _ask(stream, command, **arguments):
        stream.write(json.dumps({"execute": command, "arguments": arguments}) + "\n")
        stream.flush()
        while True:
            answer = json.loads(stream.readline())
            if "return" in answer:
                return answer["return"]
            if "error" in answer:
                raise RuntimeError(answer["error"]["desc"])


def number(value):
    out = bytearray()
    while value > 0x7f:
        out.append(value & 0x7f | 0x80)
        value >>= 7
    return bytes(out) + bytes([value])


def text(value):
    return number(len(value)) + value.encode()


def record(tag, payload):
    head = tag + struct.pack("<I", len(payload)) + payload
    return head + struct.pack("<I", zlib.crc32(head))


def snapshot(path, registers, memory):
    """A snapshot of one sample, of one vCPU."""
    numbers = [1, 0, 8, FOUR_LEVELS, registers["CR3"] & ~0xfff, registers["RIP"], registers["RSP"], registers["RBP"],
               registers["RFL"], (1 << len(REGISTERS)) - 1] + [registers[name] for name in REGISTERS]
    with path.open("wb") as file:
        file.write(b"uniprof-snapshot")
        file.write(record(b"H", number(1) + number(0) + number(1) + text("x86_64") + text("moved") + text("1") + text("hvm")
                          + text("QEMU") + text("")))
        for at in range(0, len(memory), FRAME):
            frame = memory[at:at + FRAME].rstrip(b"\0")
            if frame:
                file.write(record(b"F", number(at // FRAME) + frame))
        file.write(record(b"S", b"".join(map(number, [1000000000, 0, 0, 0, 1] + numbers))))
        file.write(record(b"E", number(1)))


class MovedKernel(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        try:
            cls.kernel = image.ensure("4.17", print) / "linux"
        except RigError as error:
            raise unittest.SkipTest(str(error)) from error
        scratch = tempfile.TemporaryDirectory()
        cls.addClassCleanup(scratch.cleanup)
        cls.directory = Path(scratch.name)
        for _ in range(chance.BOOTS):
            machine = Machine(cls.kernel, cls.directory)
            try:
                cls.offset = machine.offset
                snapshot(cls.directory / "snapshot", *machine.stop())
            finally:
                machine.close()
            if cls.offset:
                break

    def look(self, *options):
        """The only stack, root first, and what was said."""
        out = self.directory / "out.uniprof"
        done = subprocess.run([BUILD / "uniprof", "record", "-v", "-o", out, *options, f"replay:{self.directory / 'snapshot'}"],
                              capture_output=True, text=True, check=False)
        stacks = subprocess.run([BUILD / "uniprof", "export", "--state=all", "--format=folded", out], capture_output=True, text=True, check=True)
        self.assertEqual(1, len(stacks.stdout.splitlines()), done.stderr + stacks.stdout)
        return stacks.stdout.rsplit(" ", 1)[0].split(";"), done.stderr

    def check(self, stack):
        self.assertIn("ret_from_fork", stack[0])
        self.assertIn("kernel_init", stack)
        self.assertIn("panic", stack)
        self.assertLess(stack.index("kernel_init"), stack.index("panic"))

    def test_it_has_moved(self):
        self.assertNotEqual(0, self.offset)

    def test_names_and_callers_are_found_in_its_memory(self):
        stack, _ = self.look()
        self.check(stack)

    def test_its_file_is_found_where_it_has_moved_to(self):
        stack, said = self.look("-s", str(self.kernel))
        self.check(stack)
        self.assertIn(f"is at 0x{0xffffffff81000000 + self.offset:x} in the guest, not where it was linked", said)


if __name__ == "__main__":
    unittest.main()
