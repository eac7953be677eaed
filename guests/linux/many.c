/* SPDX-License-Identifier: BSD-3-Clause */

/*
 * A program of many threads for a Linux guest. Each sleeps for one to ten seconds, again and again; the leader is busy. It says
 * once all are there, or that the kernel gives it no more.
 */

typedef unsigned long word;

void user_entry(void);

#include "machine.h"

#define THREADS	     10000ul
#define THREAD_STACK 4096ul

static char stacks[THREADS][THREAD_STACK] __attribute__((aligned(THREAD_STACK)));

struct time {
	word s, ns;
};

__attribute__((noipa)) static void sleep_for(word s, word ns)
{
	const struct time time = {s, ns};

	system_call(SYS_NANOSLEEP, (word)&time, 0, 0, 0);
}

static void sleeps(void)
{
	const word number = ((word)__builtin_frame_address(0) - (word)stacks) / THREAD_STACK;

	for (;;)
		sleep_for(1 + number % 9, number * 90000);
}

static void say(const char *text, word len)
{
	system_call(SYS_WRITE, 1, (word)text, len, 0);
}

__attribute__((used, noreturn)) void user_entry(void)
{
	static const char all[] = "all threads are there\n", few[] = "no more threads\n";
	word n = 0;

	while (n < THREADS && start_thread(sleeps, stacks[n] + THREAD_STACK) > 0)
		n++;
	if (n == THREADS)
		say(all, sizeof(all) - 1);
	else
		say(few, sizeof(few) - 1);
	/* Half of the time in the kernel, so that samples soon find it. */
	for (;;)
		system_call(SYS_GETPID, 0, 0, 0, 0);
}
