/* SPDX-License-Identifier: BSD-3-Clause */

/*
 * A process that hardly ever has the same stack twice: works for a moment at the
 * end of 48 calls, each of one of two functions by chance, and naps. A line of
 * numbers every tenth of a second tells how far it has come: pieces of work.
 */

#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#ifdef __clang__
#define NOINLINE __attribute__((noinline))
#else
#define NOINLINE __attribute__((noinline, noclone))
#endif

#define DEPTH 48
#define STEPS 200000

static volatile unsigned long steps;

static void left(unsigned depth);
static void right(unsigned depth);

static void go_on(unsigned depth)
{
	const struct timespec nap = {.tv_nsec = 4000000};

	if (depth) {
		(random() & 1 ? left : right)(depth - 1);
		return;
	}
	for (unsigned i = 0; i < STEPS; i++)
		steps++;
	nanosleep(&nap, NULL);
}

static NOINLINE void left(unsigned depth)
{
	go_on(depth);
	__asm__ volatile("");
}

static NOINLINE void right(unsigned depth)
{
	go_on(depth);
	__asm__ volatile("");
}

int main(void)
{
	struct timespec now;
	long said = 0;

	srandom((unsigned)getpid());
	setvbuf(stdout, NULL, _IOLBF, 0);
	for (unsigned long pieces = 1;; pieces++) {
		left(DEPTH);
		clock_gettime(CLOCK_MONOTONIC, &now);
		if (now.tv_nsec / 100000000 == said)
			continue;
		said = now.tv_nsec / 100000000;
		printf("%lu\n", pieces);
	}
}
