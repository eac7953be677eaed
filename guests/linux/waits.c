/* SPDX-License-Identifier: BSD-3-Clause */

/*
 * A program for a Linux guest that does nothing but wait: 100 ms asleep, 40 ms for a lock that
 * nobody gives, 60 ms for a child that shares its memory (so that no signal wakes it), again and
 * again. Each second it says how much time each has had in all, ns: "waited SLEEP LOCK CHILD".
 * Time that it had a CPU in between is none of a wait: it is left out.
 */

typedef unsigned long word;

void user_entry(void);

#include "machine.h"

#define MS	     1000000ul
#define MONOTONIC    1ul
#define CPU_TIME     3ul /* CLOCK_THREAD_CPUTIME_ID */
#define WAIT_PRIVATE 128ul
/* CLONE_VM, VFORK; no signal at its end */
#define NEW_CHILD   0x4100ul
#define ANY_CHILD   0x40000000ul /* __WALL */
#define CHILD_STACK 65536ul

/* A frame of its own, by its own name: stacks of waits are known. */
#define KEPT __attribute__((noipa))

struct time {
	word s, ns;
};

static word read_clock(word clock)
{
	struct time time;

	system_call(SYS_CLOCK_GETTIME, clock, (word)&time, 0, 0);
	return time.s * 1000 * MS + time.ns;
}

/* Time in which it had no CPU, since some moment. */
static word now(void)
{
	return read_clock(MONOTONIC) - read_clock(CPU_TIME);
}

KEPT static void sleep_for(word ms)
{
	const struct time time = {0, ms * MS};

	system_call(SYS_NANOSLEEP, (word)&time, 0, 0, 0);
}

KEPT static void lock_for(word ms)
{
	static const unsigned taken = 1;
	const struct time time = {0, ms * MS};

	system_call(SYS_FUTEX, (word)&taken, WAIT_PRIVATE, taken, (word)&time);
}

__attribute__((used, noreturn)) static void child(void)
{
	sleep_for(60);
	for (;;)
		system_call(SYS_EXIT, 0, 0, 0, 0);
}

KEPT static void wait_for_child(void)
{
	static char stack[CHILD_STACK] __attribute__((aligned(16)));
	long result;

	__asm__ volatile("syscall\n"
			 "test %0, %0\n"
			 "jnz 1f\n"
			 "xor %%ebp, %%ebp\n"
			 "call child\n"
			 "hlt\n"
			 "1:"
			 : "=a"(result)
			 : "a"(SYS_CLONE), "D"(NEW_CHILD), "S"(stack + CHILD_STACK), "d"(0ul)
			 : "rcx", "r11", "memory");
}

static char *put(char *to, word number)
{
	char digits[20];
	int n = 0;

	do
		digits[n++] = (char)('0' + number % 10);
	while (number /= 10);
	*to++ = ' ';
	while (n)
		*to++ = digits[--n];
	return to;
}

static void tell(const word *waited)
{
	char text[80] = "waited", *end = text + 6;

	for (int i = 0; i < 3; i++)
		end = put(end, waited[i]);
	*end++ = '\n';
	system_call(SYS_WRITE, 1, (word)text, (word)(end - text), 0);
}

__attribute__((used, noreturn)) void user_entry(void)
{
	word waited[3] = {0}, at[4];

	for (unsigned turn = 1;; turn++) {
		at[0] = now();
		sleep_for(100);
		at[1] = now();
		lock_for(40);
		at[2] = now();
		wait_for_child();
		at[3] = now();
		system_call(SYS_WAIT4, ~0ul, 0, ANY_CHILD, 0);
		for (int i = 0; i < 3; i++)
			waited[i] += at[i + 1] - at[i];
		if (turn % 5 == 0)
			tell(waited);
	}
}
