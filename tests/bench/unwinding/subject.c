/* SPDX-License-Identifier: BSD-3-Clause */
/* Functions of different frames that call each other, some ten to forty deep. */
#include <alloca.h>
#include <string.h>

#include "recorded.h"

static volatile unsigned sink;

#define NOINLINE __attribute__((noinline))

static unsigned descend(unsigned depth, unsigned path);

static NOINLINE unsigned spin(unsigned path)
{
	unsigned sum = path;

	for (int i = 0; i < 400; i++)
		sum = sum * 1664525 + 1013904223;
	sink = sum;
	return sum;
}

static NOINLINE unsigned plain(unsigned depth, unsigned path)
{
	return descend(depth, path) + 1;
}

static NOINLINE unsigned with_array(unsigned depth, unsigned path)
{
	unsigned array[24];

	for (unsigned i = 0; i < 24; i++)
		array[i] = path + i;
	return descend(depth, path) + array[path % 24];
}

static NOINLINE unsigned with_registers(unsigned depth, unsigned path)
{
	unsigned a = path * 3, b = path ^ 0x55, c = path >> 1, d = sink;
	unsigned below = descend(depth, path);

	return below + a + b * c + d;
}

static NOINLINE unsigned with_alloca(unsigned depth, unsigned path)
{
	char *bytes = alloca(16 + path % 200);

	memset(bytes, (int)path, 16 + path % 200);
	return descend(depth, path) + (unsigned char)bytes[path % 16];
}

static unsigned (*const kinds[])(unsigned, unsigned) = {plain, with_array, with_registers,
							with_alloca};

static NOINLINE unsigned descend(unsigned depth, unsigned path)
{
	if (!depth)
		return spin(path);
	return kinds[path % 4](depth - 1, path / 4 * 5 + depth * 7919) + depth;
}

void subject(void)
{
	for (unsigned i = 0;; i++)
		sink = descend(4 + i % 16, i * 2654435761u);
}
