/* SPDX-License-Identifier: BSD-3-Clause */
#pragma once

/* As alone.h, for 64-bit RISC-V. */

#include "alone_arm_library_fixture.h"

int stepped_main(void);

__attribute__((noreturn)) static inline void leave_program(int status)
{
	register long number __asm__("a7") = 93;
	register long argument __asm__("a0") = status;

	__asm__ volatile("ecall" : : "r"(number), "r"(argument) : "memory");
	__builtin_unreachable();
}

__asm__(".text\n"
	".globl _start\n"
	".type _start, %function\n"
	"_start:\n"
	"	.cfi_startproc\n"
	"	.cfi_undefined ra\n"
	"	.option push\n"
	"	.option norelax\n"
	"	la gp, __global_pointer$\n"
	"	.option pop\n"
	"	li s0, 0\n"
	"	li ra, 0\n"
	"	call stepped_main\n"
	"	unimp\n"
	"	.cfi_endproc\n"
	".size _start, . - _start\n");
