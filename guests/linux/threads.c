/* SPDX-License-Identifier: BSD-3-Clause */

/* A program with threads for a Linux guest: its leader and one thread wait for ever, another turns. */

typedef unsigned long word;

void user_entry(void);

#include "machine.h"

#define PR_SET_NAME  15ul
#define THREAD_STACK 65536ul

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

	start_thread(waits, stacks[0] + THREAD_STACK);
	start_thread(turns, stacks[1] + THREAD_STACK);
	for (;;)
		system_call(SYS_PAUSE, 0, 0, 0, 0);
}
