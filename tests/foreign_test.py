#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""tests/foreign: that it tells right stacks from wrong ones, and that guests of Debian's packages come out right."""

import os
import re
import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "rig" / "lib")]

from calls import check  # noqa: E402
from calls.code import Code, Memory  # noqa: E402

# Every function ends where the next begins; names of places behind calls are symbols, too.
SOURCE = """
	.text
	.globl _start
_start:	xorl %ebp, %ebp
	call main
in_start: ud2
main:	pushq %rax
	call leaf
in_main: call *pointer(%rip)
in_main_by_pointer: call tail
in_main_by_tail: popq %rax
	ret
leaf:	nop
	ret
tail:	nop
	jmp other
other:	nop
	ret
pointed: nop
	ret
alone:	nop
	call leaf
in_alone: ret
handler: pushq %rax
	jmp work
work:	call leaf
in_work: popq %rax
leave:	iretq
vector:	pushq $0x20
	movabsq $handler, %rax
	jmp *%rax
	.data
pointer: .quad pointed, handler
"""
WHOLE = {"whole": 1, "broken": 0}
CUT = {"whole": 0, "broken": 1}


class Judged(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        with tempfile.TemporaryDirectory() as directory:
            source, image = Path(directory) / "code.S", Path(directory) / "code"
            source.write_text(SOURCE, encoding="ascii")
            subprocess.run(["gcc", "-nostdlib", "-static", "-no-pie", "-o", image, source], check=True)
            cls.code = Code(image)
        cls.at = {name: address for address, name in cls.code.names}

    def told(self, ends, leaf, *callers, outermost=()):
        """One stack as reported, innermost first; callers as perf prints them."""
        lines = ["guest 1/1 [000] 0.1: 1 cpu-clock:", f"\t{self.at[leaf]:16x} x (code)"]
        lines += [f"\t{self.at[name] - name.startswith('in_'):16x} x (code)" for name in callers]
        verdict = check.Verdict(self.code, outermost)
        for stack in check.parse_perf_script("\n".join(lines) + "\n\n"):
            verdict.judge(stack)
        self.assertEqual(verdict.samples, 1)
        return check.told(verdict, ends), verdict

    def right(self, *stack):
        (lines, right), _ = self.told(WHOLE, *stack)
        self.assertTrue(right, lines)

    def impossible(self, *stack):
        (lines, right), verdict = self.told(WHOLE, *stack)
        self.assertFalse(right, lines)
        self.assertEqual(sum(verdict.impossible.values()), 1)

    def test_calls_that_the_code_has_are_right(self):
        self.right("leaf", "in_main", "in_start")

    def test_a_jump_at_a_functions_end_goes_on_in_another(self):
        self.right("other", "in_main_by_tail", "in_start")

    def test_a_pointer_may_lead_to_whatever_has_its_address_somewhere(self):
        self.right("pointed", "in_main_by_pointer", "in_start")
        self.impossible("alone", "in_main_by_pointer", "in_start")

    def test_a_call_of_something_else_is_impossible(self):
        self.impossible("leaf", "in_main_by_tail", "in_start")
        self.impossible("leaf", "in_start")

    def test_no_call_before_a_return_address_is_impossible(self):
        self.impossible("leaf", "alone", "in_start")

    def test_a_handler_stands_on_anything(self):
        self.right("leaf", "in_work", "other", "in_main_by_tail", "in_start")
        self.right("leave", "leaf", "in_main", "in_start")

    def test_nobody_calls_what_is_outermost(self):
        self.right("leaf", "in_alone")
        (lines, right), verdict = self.told(WHOLE, "leaf", "in_main")
        self.assertFalse(right, lines)
        self.assertEqual(sum(verdict.missing.values()), 1)

    def test_a_handler_is_not_outermost(self):
        (lines, right), _ = self.told(WHOLE, "leaf", "in_work")
        self.assertFalse(right, lines)

    def test_a_vector_that_jumps_to_its_handler_by_a_register_is_not_outermost(self):
        (lines, right), _ = self.told(WHOLE, "vector")
        self.assertFalse(right, lines)
        self.right("vector", "leaf", "in_main", "in_start")

    def test_what_a_pointer_leads_to_is_outermost_where_that_is_told(self):
        for outermost, expected in ([], False), (["pointed"], True):
            (lines, right), _ = self.told(WHOLE, "pointed", outermost=outermost)
            self.assertEqual(right, expected, lines)

    def test_a_missing_caller_that_is_said_to_be_missing_is_no_fault(self):
        (lines, right), verdict = self.told(CUT, "leaf", "in_main")
        self.assertTrue(right, lines)
        self.assertEqual(sum(verdict.missing.values()), 1)

    def test_a_whole_stack_must_not_be_said_to_be_cut_short(self):
        (lines, right), _ = self.told(CUT, "leaf", "in_main", "in_start")
        self.assertFalse(right, lines)


class Zeros(unittest.TestCase):
    """In memory, code stands behind zeros, of which two are an instruction of x86."""

    def test_a_function_behind_zeros_is_read_from_its_first_instruction(self):
        function = bytes.fromhex("4839d0 7304 4883c020 4829d0 c3")  # cmp; jae; add; sub; ret
        for zeros in range(40, 48):
            before = bytes.fromhex("b800000000")  # mov $0, %eax
            code = Code(Memory("x86-64", [(0x1000, before + bytes(zeros) + function)], {}))
            start = 0x1000 + len(before) + zeros
            self.assertEqual(code.at[0x1000].end, 0x1005)
            self.assertTrue(code.leads_to(start, start + 9), zeros)


MODULES = Path("/usr/lib/grub")


@unittest.skipUnless(shutil.which("qemu-system-x86_64"), "no qemu-system-x86_64 on this machine: Xen cannot be booted")
@unittest.skipUnless(shutil.which("grub-mkimage") and (MODULES / "x86_64-xen").exists(), "grub-mkimage and the modules of grub-xen-bin are missing")
class Grub(unittest.TestCase):
    """GRUB, which has no symbols, polls the console of a domU for a command."""

    def check(self, form):
        with tempfile.TemporaryDirectory() as directory:
            image = Path(directory) / f"grub-{form}.elf"
            subprocess.run(["grub-mkimage", "-O", form, "-d", MODULES / form, "-p", "/", "-o", image], check=True)
            done = subprocess.run([ROOT / "tests" / "foreign", image, "--samples", "1000", "--seconds", "3"], capture_output=True, text=True, check=False,
                                  env=dict(os.environ, PYTHONDONTWRITEBYTECODE="1"))
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertIn(" 0 with a missing caller", done.stdout)
        print(done.stdout, end=" ", flush=True)

    def test_pv(self):
        self.check("x86_64-xen")

    def test_pvh(self):
        self.check("i386-xen_pvh")


class Ours(unittest.TestCase):
    """Our own guests without symbols, and with tables of assembly only."""

    @unittest.skipUnless(shutil.which("qemu-system-x86_64"), "no qemu-system-x86_64 on this machine")
    def test_room_for_arguments_behind_a_call_begins_no_function(self):
        guests = Path(os.environ.get("UNIPROF_BUILD", ROOT / "build")) / "guests"
        with tempfile.TemporaryDirectory() as directory:
            image = Path(directory) / "shadow.elf"
            subprocess.run(["objcopy", "--strip-all", guests / "shadow-pvh-cfiasm-nofp.elf", image], check=True)
            done = subprocess.run([ROOT / "tests" / "foreign", image, "--on", "here", "--samples", "100", "--seconds", "2", "--arguments", "seconds=1000"],
                                  capture_output=True, text=True, check=False, env=dict(os.environ, PYTHONDONTWRITEBYTECODE="1"))
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertIn(" 0 said to be cut short", done.stdout)


# Where Debian's packages put firmware.
LIB = Path("/usr/lib")
OPENSBI = "riscv64-linux-gnu/opensbi/generic/fw_jump.bin"


OVMF = "/usr/share/ovmf/OVMF.fd"
IPXE = Path("/usr/lib/ipxe/qemu/efi-e1000.rom")


class Firmware(unittest.TestCase):
    """Debian's firmware, which has no symbols where it runs."""

    def right(self, mode, image, command, cut=0, options=("--samples", "300", "--seconds", "2")):
        emulator = command.split()[0]
        if not shutil.which(emulator):
            self.skipTest(f"no {emulator} on this machine")
        if not (LIB / image).exists():
            self.skipTest(f"no {LIB / image} on this machine (tools/setup firmware)")
        done = subprocess.run([ROOT / "tests" / "foreign", LIB / image, "--code-in-memory", mode, *options, "--command",
                               f"{command} -display none -serial file:{{console}} -bios {{image}} -qmp unix:{{qmp}},server=on,wait=off"],
                              capture_output=True, text=True, check=False, env=dict(os.environ, PYTHONDONTWRITEBYTECODE="1"))
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        samples, said = (int(re.search(pattern, done.stdout)[1]) for pattern in (r"(\d+) samples", r"(\d+) said to be cut short"))
        self.assertLessEqual(said, cut * samples, done.stdout)
        print(done.stdout, end=" ", flush=True)
        return samples, done.stdout

    def test_u_boot_arm64(self):
        self.right("arm64", "u-boot/qemu_arm64/u-boot.bin", "qemu-system-aarch64 -M virt -cpu cortex-a57")

    def test_u_boot_riscv64(self):
        self.right("riscv64", "u-boot/qemu-riscv64/u-boot.bin", "qemu-system-riscv64 -M virt")

    def test_u_boot_on_opensbi(self):
        self.right("riscv64", OPENSBI, f"qemu-system-riscv64 -M virt -kernel {LIB}/u-boot/qemu-riscv64_smode/u-boot.bin")

    def test_opensbi_in_its_trap_handler(self):
        """It jumps to where nothing is, which traps again and again; some samples are of that instruction."""
        self.right("riscv64", OPENSBI, "qemu-system-riscv64 -M virt", cut=0.1)

    def busy(self, name, script, devices):
        """OVMF with a directory in which a script says that it is at work, and then goes round and round. Nearly all stacks lead to
        one function, which never returns and is called through a pointer: those of interrupts, too, of which a busy machine has more."""
        with tempfile.TemporaryDirectory() as directory:
            (Path(directory) / name).write_text(script, encoding="ascii")
            samples, said = self.right("x86-64", OVMF, "qemu-system-x86_64 -M q35 -m 128 " + devices.format(directory), cut=1,
                                       options=("--samples", "100", "--seconds", "3", "--ready", "is at work"))
        self.assertGreaterEqual(int(re.search(r"outermost: \w+ (\d+)", said)[1]), 0.9 * samples, said)

    def test_ovmf_in_its_shell(self):
        """It calls by Microsoft's convention, and makes room for arguments behind calls."""
        self.busy("startup.nsh", "echo the shell is at work\r\n:top\r\nls fs0:\r\ngoto top\r\n", "-nic none -drive file=fat:rw:{},format=raw")

    @unittest.skipUnless(IPXE.exists(), f"no {IPXE} on this machine (tools/setup firmware)")
    def test_ipxe_on_ovmf(self):
        self.busy("loop.ipxe", "#!ipxe\necho iPXE is at work\n:top\nset counter busy\ngoto top\n",
                  f"-netdev user,id=net,tftp={{}},bootfile=loop.ipxe -device e1000,netdev=net,romfile={IPXE}")


if __name__ == "__main__":
    unittest.main()
