/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef UNIPROF_ANALYSIS_INTERVAL_H
#define UNIPROF_ANALYSIS_INTERVAL_H

/* Confidence interval of a share that was counted in samples. */

#include <stdbool.h>
#include <stddef.h>

struct interval {
	double low, high; /* shares, 0 to 1 */
};

/*
 * Wilson's 95 % interval of a share that was seen in `draws` random draws
 * (profile_draws; 0: nothing is known). Good for few draws and for shares
 * near 0 and 1, too: a function that was never seen in 100 draws may still
 * have up to 3.7 %.
 */
struct interval interval_of_share(double share, double draws);

/*
 * Two shares that were counted in samples, and whether they differ: a change
 * of the guest, or noise? Of functions, of nodes of a flame graph, of anything
 * that has a share in two profiles.
 */

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

/*
 * Rate of false discoveries: at most this share of the significant differences
 * is noise, on average.
 */
#define DIFFERENCE_FALSE_RATE 0.05

/*
 * Among many differences some look large by chance: marks those that are
 * significant at this rate of false discoveries (Benjamini and Hochberg,
 * 1995). All that one table or picture shows belong into one call. False: no
 * memory.
 */
bool differences_mark(struct difference *const *all, size_t n);

#endif
