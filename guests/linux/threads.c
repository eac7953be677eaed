/* SPDX-License-Identifier: BSD-3-Clause */

/* A program with threads for a Linux guest: its leader and one thread wait for ever, another turns. */

typedef unsigned long word;

void user_entry(void);

#include "machine.h"

/* CLONE_VM, FS, FILES, SIGHAND, THREAD, SYSVSEM */
#define NEW_THREAD   0x50f00ul
#define PR_SET_NAME  15ul
#define THREAD_STACK 65536ul

static void start(void (*thread)(void), char *stack)
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
			 : "a"(SYS_CLONE), "D"(NEW_THREAD), "S"(stack + THREAD_STACK),
			   "d"(0ul), [thread] "b"(thread)
			 : "rcx", "r11", "memory");
}

static void waits(void)
{
	system_call(SYS_PRCTL, PR_SET_NAME, (word) "waits", 0, 0);
	for (;;)
		system_call(SYS_PAUSE, 0, 0, 0, 0);
}

static void turns(void)
{
	system_call(SYS_PRCTL, PR_SET_NAME, (word) "turns (x) y", 0, 0);
	for (;;)
		__asm__ volatile("" ::: "memory");
}

__attribute__((used, noreturn)) void user_entry(void)
{
	static char stacks[2][THREAD_STACK] __attribute__((aligned(16)));

	start(waits, stacks[0]);
	start(turns, stacks[1]);
	for (;;)
		system_call(SYS_PAUSE, 0, 0, 0, 0);
}
