/* SPDX-License-Identifier: BSD-3-Clause */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "analysis/functions.h"
#include "analysis/tree.h"
#include "base/owned.h"

/* Confidence interval of a share that was counted in samples. */

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

/*
 * Two flat profiles side by side, function by function, matched by name. Shares
 * are of the time that each profile selected, so that recordings of different
 * length and rate can be compared.
 */

struct diff_row {
	const char *name;		       /* belongs to one of the namers */
	struct profile_cell self[2], total[2]; /* before, after */
	struct difference self_change, total_change;
	bool unresolved; /* the name is an address */
};

struct diff {
	struct diff_row *rows; /* significant changes first, then noise; the largest first */
	size_t n;
	size_t significant; /* rows whose own share or whole share has changed */
	double draws[2];
};

enum diff_order { DIFF_BY_SELF, DIFF_BY_TOTAL };

struct diff_side {
	const struct flat *flat;
	const struct profile *profile;
	const char *warning; /* a caveat for the reader; may be NULL */
};

/*
 * Everything in `before` and `after` must outlive the result. All changes, of
 * self and total, are judged together (differences_mark). diff_free is due, also after an error.
 */

struct error *diff_new(const struct diff_side *before, const struct diff_side *after,
		       enum diff_order order, struct diff **out);
void diff_free(struct diff *diff);
OWNED_POINTER(diff)

/* Is any of its two changes significant? */
bool diff_row_changed(const struct diff_row *row);

/*
 * Two profiles in one tree, to see how they differ. They are normalised: each
 * counts as much as the other, however many samples it has.
 */

/* The two profiles: [0] before, [1] after. */
struct tree_sides {
	const struct profile *profile[2];
	struct symbolizer *symbolizer[2]; /* names of nodes belong to the first */
};

/* A whole profile is this much in the tree's weights, and its samples as many as it has. */
#define TREE_PAIR_WHOLE (UINT64_C(1) << 50)

/*
 * Nodes for which both profiles together have fewer draws than this are not
 * tested: most nodes are tiny, so few draws show nothing, and each further test
 * makes the others less significant.
 */
#define TREE_PAIR_MIN_DRAWS 10

struct tree_change {
	double before, after; /* shares with all children, 0 to 1 */
	bool significant;     /* as of struct difference, among all nodes that are tested */
};

struct tree_pair {
	/*
	 * Summed. A node's weight is the sum of its shares in both profiles,
	 * in units of TREE_PAIR_WHOLE, so that nothing that is in one of them
	 * has no width; its samples are those of both.
	 */
	struct tree *tree;
	struct tree_change *nodes; /* [tree->n] */
	double draws[2];
};

/* After an error *pair is to be freed, too. */
struct error *tree_pair_build(const struct tree_sides *sides, const struct tree_options *options,
			      struct tree_pair *pair);
void tree_pair_free(struct tree_pair *pair);
