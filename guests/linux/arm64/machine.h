/* SPDX-License-Identifier: BSD-3-Clause */
#pragma once

/* Entry and system calls of a program on arm64 (include/uapi/asm-generic/unistd.h). */

enum {
	SYS_UNLINKAT = 35,
	SYS_OPENAT = 56,
	SYS_CLOSE = 57,
	SYS_PIPE2 = 59,
	SYS_READ = 63,
	SYS_WRITE = 64,
	SYS_NEWFSTATAT = 79,
	SYS_PAUSE = 73, /* ppoll of nothing, for ever */
	SYS_EXIT = 93,
	SYS_NANOSLEEP = 101,
	SYS_YIELD = 124,
	SYS_PRCTL = 167,
	SYS_GETPID = 172,
	SYS_MUNMAP = 215,
	SYS_CLONE = 220,
	SYS_MMAP = 222,
	SYS_WAIT4 = 260,
};

/* With ~0 and 0 for the last two arguments, as mmap has them for memory that is no file's. */
static inline long system_call(long number, word a, word b, word c, word d)
{
	register word x8 __asm__("x8") = (word)number;
	register word x0 __asm__("x0") = a;
	register word x1 __asm__("x1") = b;
	register word x2 __asm__("x2") = c;
	register word x3 __asm__("x3") = d;
	register word x4 __asm__("x4") = ~0ul;
	register word x5 __asm__("x5") = 0;

	__asm__ volatile("svc #0"
			 : "+r"(x0)
			 : "r"(x8), "r"(x1), "r"(x2), "r"(x3), "r"(x4), "r"(x5)
			 : "memory");
	return (long)x0;
}

/* CLONE_VM, FS, FILES, SIGHAND, THREAD, SYSVSEM (include/uapi/linux/sched.h) */
#define NEW_THREAD 0x50f00ul

/* Starts a thread that never returns, on the stack that ends there. */
static inline long start_thread(void (*thread)(void), char *stack_end)
{
	register word x8 __asm__("x8") = SYS_CLONE;
	register word x0 __asm__("x0") = NEW_THREAD;
	register char *x1 __asm__("x1") = stack_end;
	register word x2 __asm__("x2") = 0;
	register word x3 __asm__("x3") = 0;
	register word x4 __asm__("x4") = 0;

	__asm__ volatile("svc #0\n"
			 "cbnz x0, 1f\n"
			 "mov x29, xzr\n"
			 "mov x30, xzr\n"
			 "blr %[thread]\n"
			 "brk #0\n"
			 "1:"
			 : "+r"(x0)
			 : "r"(x8), "r"(x1), "r"(x2), "r"(x3), "r"(x4), [thread] "r"(thread)
			 : "x30", "memory");
	return (long)x0;
}

__asm__(".globl _start\n"
	"_start:\n"
	"	mov x29, xzr\n"
	"	mov x30, xzr\n"
	"	bl user_entry\n"
	"	brk #0\n");
