/* SPDX-License-Identifier: BSD-3-Clause */
#pragma once

/* Entry and system calls of a program on x86-64 (arch/x86/entry/syscalls/syscall_64.tbl). */

enum {
	SYS_READ = 0,
	SYS_WRITE = 1,
	SYS_CLOSE = 3,
	SYS_MMAP = 9,
	SYS_MUNMAP = 11,
	SYS_YIELD = 24,
	SYS_PAUSE = 34,
	SYS_NANOSLEEP = 35,
	SYS_GETPID = 39,
	SYS_CLONE = 56,
	SYS_EXIT = 60,
	SYS_WAIT4 = 61,
	SYS_PRCTL = 157,
	SYS_FUTEX = 202,
	SYS_CLOCK_GETTIME = 228,
	SYS_OPENAT = 257,
	SYS_NEWFSTATAT = 262,
	SYS_UNLINKAT = 263,
	SYS_PIPE2 = 293,
};

/* With ~0 and 0 for the last two arguments, as mmap has them for memory that is no file's. */
static inline long system_call(long number, word a, word b, word c, word d)
{
	register word r10 __asm__("r10") = d;
	register word r8 __asm__("r8") = ~0ul;
	register word r9 __asm__("r9") = 0;
	long result;

	__asm__ volatile("syscall"
			 : "=a"(result)
			 : "a"(number), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9)
			 : "rcx", "r11", "memory");
	return result;
}

/* CLONE_VM, FS, FILES, SIGHAND, THREAD, SYSVSEM (include/uapi/linux/sched.h) */
#define NEW_THREAD 0x50f00ul

/* Starts a thread that never returns, on the stack that ends there. */
static inline long start_thread(void (*thread)(void), char *stack_end)
{
	long result;

	__asm__ volatile("syscall\n"
			 "test %0, %0\n"
			 "jnz 1f\n"
			 "xor %%ebp, %%ebp\n"
			 "call *%[thread]\n"
			 "hlt\n"
			 "1:"
			 : "=a"(result)
			 : "a"(SYS_CLONE), "D"(NEW_THREAD), "S"(stack_end),
			   "d"(0ul), [thread] "b"(thread)
			 : "rcx", "r11", "memory");
	return result;
}

__asm__(".globl _start\n"
	"_start:\n"
	"	xor %ebp, %ebp\n"
	"	call user_entry\n"
	"	hlt\n");
