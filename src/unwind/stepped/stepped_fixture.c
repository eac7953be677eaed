/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A program for ../singlestep_test.c to walk through: each function here is a way
 * in which compilers lay out stack frames. Built many times, with and without
 * frame pointers. With STEPPED_ALONE it has no C library below it.
 */
#include <stddef.h>

#ifdef STEPPED_ARM
#include "alone_arm_fixture.h"
#elif defined(STEPPED_ARM64)
#include "alone_arm64_fixture.h"
#elif defined(STEPPED_RISCV64)
#include "alone_riscv64_fixture.h"
#elif defined(STEPPED_ALONE)
#include "alone_fixture.h"
#else
#include "libc_fixture.h"
#endif

#define APART __attribute__((noinline))

volatile int sink;
volatile int rounds = 1;

APART static int leaf(int a)
{
	return a * 3 + 1;
}

APART static int leaf_with_red_zone(int n)
{
	volatile int a[8];

	for (int i = 0; i < 8; i++)
		a[i] = i * n;
	return a[n & 7];
}

APART static int leaf_with_loops(int a, int b, int c, int d, int e, int f)
{
	int r = 0;

	for (int i = 0; i < a; i++) {
		r += (b * c) ^ d;
		b += e * f + i;
		c ^= b * r;
		d += c * e;
		e ^= d;
		f += e * a;
	}
	return r + b + c + d + e + f;
}

APART static int calls_leaves(int a)
{
	int r = leaf(a) + leaf_with_red_zone(a);

	return r + leaf_with_loops(a & 3, r, a, 3, 4, r);
}

APART static int returns_early(int a)
{
	int sum = 0;

	if (a < 3)
		return a;
	for (int i = 0; i < a; i++)
		sum += calls_leaves(i) * a;
	return sum;
}

APART static int saves_registers(int a, int b, int c)
{
	int d = leaf(a), e = leaf(b), f = leaf(c), g = leaf(d), h = leaf(e), i = leaf(f);

	return d + leaf(g) * e + leaf(h) * f + leaf(i) * g + h * i + a * b * c;
}

APART static int many_arguments(int a, int b, int c, int d, int e, int f, int g, int h, int i)
{
	return leaf(a + b + c) + d + e + f + g + leaf(h) + i;
}

APART static int passes_many(int a)
{
	return many_arguments(a, 2, 3, a, 5, 6, a, 8, 9) +
	       many_arguments(1, a, 3, 4, a, 6, 7, a, 9);
}

APART static int in_tail(int a)
{
	return returns_early(a + 1);
}

APART static int recursive(int n)
{
	return n == 0 ? leaf(n) : recursive(n - 1) + leaf(n);
}

APART static int variable_length(int n)
{
	int a[n];

	for (int i = 0; i < n; i++)
		a[i] = leaf(i);
	return a[n - 1] + leaf_with_red_zone(a[0]);
}

APART static int touch(volatile char *bytes)
{
	bytes[0] = 1;
	return leaf(bytes[0]);
}

APART static int large_frame(void)
{
	volatile char bytes[20000];

	return touch(bytes);
}

APART static int aligned_frame(void)
{
	volatile char bytes[256] __attribute__((aligned(128)));

	return touch(bytes);
}

APART static int aligned_variable_length(int n)
{
	volatile char bytes[256] __attribute__((aligned(64)));
	volatile char more[n];

	return touch(bytes) + touch(more);
}

APART static int by_table(int what, int a)
{
	switch (what) {
	case 0:
		return leaf(a) + 1;
	case 1:
		return saves_registers(a, 2, 3) * 2;
	case 2:
		sink = a;
		return leaf_with_red_zone(a) + 7;
	case 3:
		return passes_many(a) ^ a;
	case 4:
		return recursive(3) - leaf(a);
	case 5:
		a += leaf(2);
		break;
	case 6:
		a -= leaf(5);
		break;
	default:
		a = leaf(a) * leaf(a + 1);
	}
	return a + leaf(a);
}

typedef int (*function)(int);

static function volatile functions[] = {leaf,		leaf_with_red_zone, calls_leaves,
					returns_early,	passes_many,	    in_tail,
					variable_length};

APART static int by_pointer(int a)
{
	int sum = 0;

	for (size_t i = 0; i < sizeof(functions) / sizeof(functions[0]); i++)
		sum += functions[i](a + 3);
	return sum;
}

APART static int by_pointer_in_tail(int a)
{
	return functions[a](a + 2);
}

struct large {
	long words[9];
};

APART static struct large returns_struct(int a)
{
	struct large large = {{a, leaf(a), 3}};

	return large;
}

APART static long takes_struct(struct large large)
{
	return large.words[0] + leaf((int)large.words[1]);
}

APART static double floating(double x, int n)
{
	double y = x;

	for (int i = 0; i < n; i++)
		y = y * x + leaf(i);
	return y;
}

APART __attribute__((cold)) static int unlikely(int a)
{
	return leaf(a) + leaf(a + 1);
}

APART static int has_cold_part(int a)
{
	if (__builtin_expect(a > 1, 0)) {
		sink = unlikely(a);
		return sink + unlikely(a + 1);
	}
	return leaf(a);
}

APART __attribute__((noreturn)) static void never_returns(int status)
{
	sink = leaf(status);
	leave_program(0);
}

/* The call is the last instruction. */
APART static void last_words(int a)
{
	sink = leaf(a);
	never_returns(a);
}

APART static void all(int n)
{
	sink += calls_leaves(n) + returns_early(n) + returns_early(1) + saves_registers(n, 2, 3);
	sink += passes_many(n) + in_tail(n) + recursive(12) + variable_length(n + 1);
	sink += large_frame() + aligned_frame() + aligned_variable_length(n + 20);
	for (int i = 0; i < 9; i++)
		sink += by_table(i, n);
	sink += by_pointer(n) + by_pointer_in_tail(3) + by_pointer_in_tail(1);
	sink += (int)takes_struct(returns_struct(n)) + (int)floating(1.5, n);
	sink += has_cold_part(n) + has_cold_part(0);
}

int stepped_main(void)
{
	for (int i = 0; i < rounds; i++)
		all(i + 2);
	with_library(leaf);
	last_words(1);
	return 0;
}
