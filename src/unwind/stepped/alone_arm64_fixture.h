/* SPDX-License-Identifier: BSD-3-Clause */
#pragma once

/* As alone.h, for 64-bit Arm. */

#include "alone_arm_library_fixture.h"

int stepped_main(void);

__attribute__((noreturn)) static inline void leave_program(int status)
{
	register long number __asm__("x8") = 93;
	register long argument __asm__("x0") = status;

	__asm__ volatile("svc #0" : : "r"(number), "r"(argument) : "memory");
	__builtin_unreachable();
}

__asm__(".text\n"
	".globl _start\n"
	".type _start, %function\n"
	"_start:\n"
	"	.cfi_startproc\n"
	"	.cfi_undefined x30\n"
	"	mov x29, #0\n"
	"	mov x30, #0\n"
	"	bl stepped_main\n"
	"	udf #0\n"
	"	.cfi_endproc\n"
	".size _start, . - _start\n");
