/* SPDX-License-Identifier: BSD-3-Clause */
#pragma once

/*
 * Counts of 64-bit values in log-linear buckets: exact below 32, then 16
 * buckets for each power of two, so that a quantile is at most 6.25 % off.
 * Constant size, adding never fails.
 */

#include <float.h>
#include <math.h>
#include <stdint.h>

#define HISTOGRAM_BUCKETS 976

struct histogram {
	uint64_t count[HISTOGRAM_BUCKETS];
	uint64_t n;
	uint64_t max;
};

/* Buckets below which every value has its own, and buckets for each power of two above. */
#define HISTOGRAM_EXACT	    32u
#define HISTOGRAM_PER_POWER 16u

static inline unsigned histogram_bucket(uint64_t value)
{
	unsigned power;

	if (value < HISTOGRAM_EXACT)
		return (unsigned)value;
	power = 63 - (unsigned)__builtin_clzll(value);
	return HISTOGRAM_EXACT + (power - 5) * HISTOGRAM_PER_POWER +
	       (unsigned)(value >> (power - 4) & (HISTOGRAM_PER_POWER - 1));
}

/* The largest value that falls into a bucket. */
static inline uint64_t histogram_bucket_end(unsigned bucket)
{
	unsigned power, step;

	if (bucket < HISTOGRAM_EXACT)
		return bucket;
	power = (bucket - HISTOGRAM_EXACT) / HISTOGRAM_PER_POWER + 5;
	step = (bucket - HISTOGRAM_EXACT) % HISTOGRAM_PER_POWER;
	return ((uint64_t)(HISTOGRAM_PER_POWER + step + 1) << (power - 4)) - 1;
}

static inline void histogram_add(struct histogram *h, uint64_t value)
{
	h->count[histogram_bucket(value)]++;
	h->n++;
	if (value > h->max)
		h->max = value;
}

/*
 * The smallest value that at least `q` (0 to 1) of all values do not exceed,
 * as the upper end of its bucket and never more than the maximum; 0 when empty.
 */
static inline uint64_t histogram_quantile(const struct histogram *h, double q)
{
	double rank = (double)h->n * q;
	uint64_t seen = 0;

	/* 0.07 of 100 values are 7 of them, although 100 * 0.07 is a little more than 7. */
	rank = ceil(rank * (1 - 4 * DBL_EPSILON));
	for (unsigned i = 0; i < HISTOGRAM_BUCKETS; i++) {
		seen += h->count[i];
		if (seen > 0 && (double)seen >= rank)
			return histogram_bucket_end(i) < h->max ? histogram_bucket_end(i) : h->max;
	}
	return h->max;
}
