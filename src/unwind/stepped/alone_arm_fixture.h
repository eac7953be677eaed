/* SPDX-License-Identifier: BSD-3-Clause */
#pragma once

/* As alone.h, for 32-bit Arm. */

#include "alone_arm_library_fixture.h"

void __aeabi_memcpy(void *to, const void *from, size_t n);
void __aeabi_memcpy4(void *to, const void *from, size_t n);
void __aeabi_unwind_cpp_pr0(void);
void __aeabi_unwind_cpp_pr1(void);
int stepped_main(void);

/* clang's names for these functions (RTABI32, 4.3.4). */
void __aeabi_memcpy(void *to, const void *from, size_t n)
{
	memcpy(to, from, n);
}

void __aeabi_memcpy4(void *to, const void *from, size_t n)
{
	memcpy(to, from, n);
}

/* Exception tables refer to these (EHABI32, 10.2); nobody calls them. */
void __aeabi_unwind_cpp_pr0(void)
{
}

void __aeabi_unwind_cpp_pr1(void)
{
}

__attribute__((noreturn)) static inline void leave_program(int status)
{
	__asm__ volatile("mov r0, %0\n\t"
			 "mov r7, #1\n\t"
			 "svc #0"
			 :
			 : "r"(status)
			 : "r0", "memory");
	__builtin_unreachable();
}

__asm__(".text\n"
	".arm\n"
	".globl _start\n"
	".type _start, %function\n"
	"_start:\n"
	".fnstart\n"
	"	mov fp, #0\n"
	"	mov r7, #0\n"
	"	mov lr, #0\n"
	"	bl stepped_main\n"
	"	udf #0\n"
	".cantunwind\n"
	".fnend\n"
	".size _start, . - _start\n"
#ifdef __thumb__
	".thumb\n"
#endif
);
