/* SPDX-License-Identifier: BSD-3-Clause */
#include "base/histogram.h"

#include <float.h>
#include <math.h>

/* Buckets below which every value has its own, and buckets for each power of two above. */
#define EXACT	  32u
#define PER_POWER 16u

static unsigned bucket_of(uint64_t value)
{
	unsigned power;

	if (value < EXACT)
		return (unsigned)value;
	power = 63 - (unsigned)__builtin_clzll(value);
	return EXACT + (power - 5) * PER_POWER + (unsigned)(value >> (power - 4) & (PER_POWER - 1));
}

/* The largest value that falls into a bucket. */
static uint64_t bucket_end(unsigned bucket)
{
	unsigned power, part;

	if (bucket < EXACT)
		return bucket;
	power = (bucket - EXACT) / PER_POWER + 5;
	part = (bucket - EXACT) % PER_POWER;
	return ((uint64_t)(PER_POWER + part + 1) << (power - 4)) - 1;
}

void histogram_add(struct histogram *h, uint64_t value)
{
	h->count[bucket_of(value)]++;
	h->n++;
	if (value > h->max)
		h->max = value;
}

uint64_t histogram_quantile(const struct histogram *h, double q)
{
	double rank = (double)h->n * q;
	uint64_t seen = 0;

	/* 0.07 of 100 values are 7 of them, although 100 * 0.07 is a little more than 7. */
	rank = ceil(rank * (1 - 4 * DBL_EPSILON));
	for (unsigned i = 0; i < HISTOGRAM_BUCKETS; i++) {
		seen += h->count[i];
		if (seen > 0 && (double)seen >= rank)
			return bucket_end(i) < h->max ? bucket_end(i) : h->max;
	}
	return h->max;
}
