/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef UNIPROF_BASE_HISTOGRAM_H
#define UNIPROF_BASE_HISTOGRAM_H

/*
 * Counts of 64-bit values in log-linear buckets: exact below 32, then 16
 * buckets for each power of two, so that a quantile is at most 6.25 % off.
 * Constant size, adding never fails.
 */

#include <stdint.h>

#define HISTOGRAM_BUCKETS 976

struct histogram {
	uint64_t count[HISTOGRAM_BUCKETS];
	uint64_t n;
	uint64_t max;
};

void histogram_add(struct histogram *h, uint64_t value);

/*
 * The smallest value that at least `q` (0 to 1) of all values do not exceed,
 * as the upper end of its bucket and never more than the maximum; 0 when empty.
 */
uint64_t histogram_quantile(const struct histogram *h, double q);

#endif
