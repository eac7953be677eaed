#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""edges.py, on code that the compiler here makes."""
import os
import shutil
import subprocess
import tempfile
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))

SOURCE = """
	.text
	.macro function name
	.globl \\name
	.type \\name, @function
\\name:
	.endm
	function top
	call middle
	call page + 32
	ret
	function middle
	jne other
	jmp middle
	function other
	jmp last
	function last
	ret
	function dispatch
	{dispatch}
	ret
	function page
	.skip 64, 0xcc
"""

SOURCE_A64 = """
	.text
	.macro function name
	.globl \\name
	.type \\name, @function
\\name:
	.endm
	function top
	bl middle
	bl compares
	ret
	function middle
	b.ne other
	b middle
	function other
	cbz x0, other
	ret
	function compares
	tbnz w0, #3, last
	ret
	function last
	ret
	function dispatch
	{dispatch}
	ret
"""

SOURCE_A32 = """
	.syntax unified
	.text
	.{set}
	.macro function name
	.globl \\name
	.type \\name, %function
\\name:
	.endm
	function top
	bl middle
	bl compares
	bx lr
	function middle
	bne other
	b middle
	function other
	blt other
	bx lr
	function compares
	ble last
	bx lr
	function last
	bx lr
	function dispatch
	{{dispatch}}
	bx lr
"""

SOURCE_RISCV64 = """
	.option norelax
	.text
	.macro function name
	.globl \\name
	.type \\name, @function
\\name:
	.endm
	function top
	call middle
	jal compares
	ret
	function middle
	bnez a0, other
	tail middle
	function other
	beq a0, a1, other
	j last
	function compares
	bltu a0, a1, last
	ret
	function last
	ret
	function dispatch
	{dispatch}
	ret
"""


class Edges(unittest.TestCase):
    def edges(self, dispatch, indirect, source=SOURCE, tools=""):
        with tempfile.TemporaryDirectory() as directory:
            path = lambda name: os.path.join(directory, name)
            with open(path("indirect"), "w", encoding="utf-8") as file:
                file.write(indirect)
            subprocess.run([f"{tools}as", "-o", path("code.o")], check=True, text=True,
                           input=source.format(dispatch=dispatch))
            subprocess.run([f"{tools}ld", "-e", "top", "-o", path("code"), path("code.o")], check=True)
            self.result = subprocess.run([os.path.join(HERE, "edges.py"), "--objdump", f"{tools}objdump", "--indirect",
                                       path("indirect"), path("code"), path("edges")],
                                      capture_output=True, text=True)
            if self.result.returncode:
                return None
            with open(path("edges"), encoding="utf-8") as file:
                return file.read().splitlines()

    def test_calls_into_the_middle_of_a_function_count_for_that_function(self):
        self.assertIn("top page", self.edges("nop", ""))

    def test_a_tail_jump_gives_the_edges_of_the_jumping_functions_caller(self):
        found = self.edges("nop", "")
        self.assertEqual(found, ["top last", "top middle", "top other", "top page"])

    def test_an_indirect_call_takes_its_written_edges_that_exist(self):
        found = self.edges("call *%rax", "# a comment\ndispatch last\ndispatch absent\n")
        self.assertIn("dispatch last", found)
        self.assertNotIn("dispatch absent", found)

    def test_an_indirect_branch_that_nobody_wrote_down_fails_and_names_the_function(self):
        for branch in ("call *%rax", "jmp *(%rax)"):
            self.assertIsNone(self.edges(branch, "top last\n"))
            self.assertIn("dispatch", self.result.stderr)

    def test_written_edges_of_a_function_without_indirect_calls_are_left_out(self):
        self.assertNotIn("last top", self.edges("nop", "last top\n"))

    def test_a_handler_stands_on_everything_that_not_only_itself_calls(self):
        found = self.edges("call *%rax", "* top\ndispatch page\n* absent\n")
        self.assertEqual([edge for edge in found if edge.endswith(" top")],
                         ["dispatch top", "page top"])

    @unittest.skipUnless(shutil.which("aarch64-linux-gnu-as"), "no assembler for arm64 (binutils-aarch64-linux-gnu)")
    def test_a64_code_has_its_edges(self):
        found = self.edges("blr x3", "dispatch last\n", SOURCE_A64, "aarch64-linux-gnu-")
        self.assertEqual(found, ["dispatch last", "top compares", "top last", "top middle", "top other"])
        self.assertIsNone(self.edges("br x3", "top last\n", SOURCE_A64, "aarch64-linux-gnu-"))

    @unittest.skipUnless(shutil.which("arm-linux-gnueabihf-as"), "no assembler for 32-bit Arm (binutils-arm-linux-gnueabihf)")
    def test_a32_and_t32_code_have_their_edges(self):
        for instructions in "arm", "thumb":
            source = SOURCE_A32.format(set=instructions)
            found = self.edges("blx r3", "dispatch last\n", source, "arm-linux-gnueabihf-")
            self.assertEqual(found, ["dispatch last", "top compares", "top last", "top middle", "top other"])
            self.assertIsNone(self.edges("bx r3", "top last\n", source, "arm-linux-gnueabihf-"))

    @unittest.skipUnless(shutil.which("riscv64-linux-gnu-as"), "no assembler for RISC-V (binutils-riscv64-linux-gnu)")
    def test_riscv64_code_has_its_edges(self):
        found = self.edges("jalr a5", "dispatch last\n", SOURCE_RISCV64, "riscv64-linux-gnu-")
        self.assertEqual(found, ["dispatch last", "top compares", "top last", "top middle", "top other"])
        self.assertIsNone(self.edges("jr 8(a5)", "top last\n", SOURCE_RISCV64, "riscv64-linux-gnu-"))


if __name__ == "__main__":
    unittest.main()
