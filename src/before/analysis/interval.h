/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef UNIPROF_OUTPUT_DIFFERENCE_H
#define UNIPROF_OUTPUT_DIFFERENCE_H

/*
 * Two shares that were counted in samples, and whether they differ: a change
 * of the guest, or noise? Of functions, of nodes of a flame graph, of anything
 * that has a share in two profiles.
 */

#include <stdbool.h>
#include <stddef.h>

struct difference {
	double before, after; /* shares, 0 to 1 */
	double draws_before, draws_after;
	double low, high; /* 95 % interval of after - before, -1 to 1 */
	double p;	  /* how likely chance alone leads to this, 0 to 1 */
	bool significant; /* set by differences_mark */
};

/*
 * Draws are those of profile_draws; 0: nothing is known. The interval is
 * Newcombe's (1998, his method 10: of two Wilson intervals). p is of the
 * two-sided "N - 1" chi-squared test, and of Fisher's exact test where fewer
 * than 5 draws are to be expected in a cell (Campbell, 2007, Cochran).
 */
struct difference difference_of(double before, double draws_before, double after,
				double draws_after);

/* Of the differences that are called significant no more than this share is noise, on average. */
#define DIFFERENCE_FALSE_RATE 0.05

/*
 * Among many differences some look large by chance: marks those that are
 * significant at this rate of false discoveries (Benjamini and Hochberg,
 * 1995). All that one table or picture shows belong into one call. False: no
 * memory.
 */
bool differences_mark(struct difference *const *all, size_t n);

#endif
