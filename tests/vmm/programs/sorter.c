/* SPDX-License-Identifier: BSD-3-Clause */

/*
 * A program whose functions have names in its own table of symbols alone: main calls rounds,
 * that calls sort_all, that libc's qsort, and that by_bits, which does the work in spin.
 * No frame pointers lead through them.
 */

#include <stdio.h>
#include <stdlib.h>

#ifdef __clang__
#define NOINLINE __attribute__((noinline))
#else
#define NOINLINE __attribute__((noinline, noclone))
#endif

#define VALUES 64u
#define TURNS  20000u

static volatile unsigned long steps;

static NOINLINE void spin(void)
{
	for (unsigned i = 0; i < TURNS; i++)
		steps++;
}

static NOINLINE int by_bits(const void *a, const void *b)
{
	const unsigned left = *(const unsigned *)a, right = *(const unsigned *)b;

	spin();
	return left < right ? -1 : left > right;
}

static NOINLINE void sort_all(unsigned *values)
{
	for (unsigned i = 0; i < VALUES; i++)
		values[i] = (i * 2654435761u) >> 7;
	qsort(values, VALUES, sizeof(*values), by_bits);
	steps++;
}

static NOINLINE void rounds(void)
{
	unsigned values[VALUES];

	for (;;) {
		sort_all(values);
		steps += values[0];
	}
}

int main(void)
{
	puts("sorts");
	fflush(stdout);
	rounds();
	return 0;
}
