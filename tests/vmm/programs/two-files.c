/* SPDX-License-Identifier: BSD-3-Clause */

/*
 * A program with known answers in two files: own_work() is its own, memfrob() is libc's. Each round
 * tells ns that were spent in either so far; after it the program executes itself anew, with
 * other addresses. There are two processes of it.
 */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#ifdef __clang__
#define NOINLINE __attribute__((noinline))
#else
#define NOINLINE __attribute__((noinline, noclone))
#endif

#define ROUND_NS 500000000ull
#define PIECE	 20000u

static volatile unsigned long steps;
static char bytes[PIECE];

NOINLINE void own_work(void);

NOINLINE void own_work(void)
{
	for (unsigned i = 0; i < PIECE; i++)
		steps++;
}

static unsigned long long now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
	return (unsigned long long)now.tv_sec * 1000000000ull + (unsigned long long)now.tv_nsec;
}

static NOINLINE void work(unsigned long long *own_ns, unsigned long long *libc_ns)
{
	const unsigned long long begin = now_ns();
	unsigned long long then;

	for (unsigned i = 0; i < 8; i++)
		own_work();
	then = now_ns();
	for (unsigned i = 0; i < 24; i++)
		memfrob(bytes, sizeof(bytes));
	*own_ns += then - begin;
	*libc_ns += now_ns() - then;
}

int main(int argc, char **argv)
{
	unsigned long long own_ns = argc == 3 ? strtoull(argv[1], NULL, 10) : 0;
	unsigned long long libc_ns = argc == 3 ? strtoull(argv[2], NULL, 10) : 0;
	const unsigned long long end = now_ns() + ROUND_NS;
	char own[32], libc[32];

	if (argc < 2)
		(void)!fork();
	while (now_ns() < end)
		work(&own_ns, &libc_ns);
	printf("spent %d %llu %llu\n", (int)getpid(), own_ns, libc_ns);
	fflush(stdout);
	snprintf(own, sizeof(own), "%llu", own_ns);
	snprintf(libc, sizeof(libc), "%llu", libc_ns);
	execl(argv[0], argv[0], own, libc, (char *)NULL);
	return 1;
}
