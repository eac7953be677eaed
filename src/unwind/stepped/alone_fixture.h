/* SPDX-License-Identifier: BSD-3-Clause */
#pragma once

/*
 * Replaces the C library: only the functions that the compiler itself may call,
 * and an entry point.
 */

void *memcpy(void *to, const void *from, size_t n);
void *memset(void *to, int byte, size_t n);
int stepped_main(void);

__attribute__((noinline)) void *memcpy(void *to, const void *from, size_t n)
{
	void *start = to;

	__asm__ volatile("rep movsb" : "+D"(to), "+S"(from), "+c"(n) : : "memory");
	return start;
}

__attribute__((noinline)) void *memset(void *to, int byte, size_t n)
{
	void *start = to;

	__asm__ volatile("rep stosb" : "+D"(to), "+c"(n) : "a"(byte) : "memory");
	return start;
}

static inline void with_library(int (*leaf)(int))
{
	leaf(0);
}

__attribute__((noreturn)) static inline void leave_program(int status)
{
#ifdef __x86_64__
	__asm__ volatile("syscall" : : "a"(60), "D"(status));
#else
	__asm__ volatile("int $0x80" : : "a"(1), "b"(status));
#endif
	__builtin_unreachable();
}

__asm__(".text\n"
	".globl _start\n"
	".type _start, @function\n"
	"_start:\n"
#ifdef __x86_64__
	"	xorl %ebp, %ebp\n"
	"	andq $-16, %rsp\n"
#else
	"	xorl %ebp, %ebp\n"
	"	andl $-16, %esp\n"
#endif
	"	call stepped_main\n"
	"	ud2\n"
	".size _start, . - _start\n");
