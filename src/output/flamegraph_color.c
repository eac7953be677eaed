/* SPDX-License-Identifier: BSD-3-Clause */
#include "output/flamegraph_color.h"

struct rgb {
	int r, g, b;
};

/* FNV-1a with 64 bits, and the end of MurmurHash3 to spread names that differ in a digit only. */
static uint64_t hash(const char *name)
{
	uint64_t h = UINT64_C(0xcbf29ce484222325);

	for (; *name; name++)
		h = (h ^ (unsigned char)*name) * UINT64_C(0x100000001b3);
	h = (h ^ h >> 33) * UINT64_C(0xff51afd7ed558ccd);
	return h ^ h >> 33;
}

static int mix(int from, int to, int t)
{
	return from + (to - from) * t / 256;
}

uint32_t flamegraph_color(const char *name, bool unresolved)
{
	static const struct rgb stops[] = {{243, 118, 96}, {249, 156, 70}, {252, 222, 112}};
	uint64_t h = hash(name);
	int where = (int)(h & 511), light = (int)(h >> 16 & 31) - 16;
	const struct rgb *a = &stops[where >> 8], *b = a + 1;
	struct rgb c;

	if (unresolved)
		c = (struct rgb){190, 190, 194};
	else
		c = (struct rgb){mix(a->r, b->r, where & 255), mix(a->g, b->g, where & 255),
				 mix(a->b, b->b, where & 255)};
	c = (struct rgb){c.r + light / 4, c.g + light / 2, c.b + light * 5 / 4};
	return (uint32_t)(c.r << 16 | c.g << 8 | c.b);
}
