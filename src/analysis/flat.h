/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef UNIPROF_ANALYSIS_FLAT_H
#define UNIPROF_ANALYSIS_FLAT_H

/*
 * The flat profile: each function once, with its own time and with the time of
 * all that it called.
 */

#include "analysis/tree.h"
#include "symbol/names/symbolizer.h"

struct flat_row {
	const char *name;
	struct profile_cell self;
	struct profile_cell total; /* stacks that hold it; one that holds it twice counts once */
	bool unresolved;
};

struct flat {
	struct flat_row *rows; /* by self time, then total, then name */
	size_t n;
	struct flat_index *index; /* private */
};

/*
 * Rows of the selected samples, without a tree; `options` as for tree_add, of which cells and
 * naming count. Rows point to names as nodes would. Profiles can be added to one another;
 * flat_sort is due afterwards.
 */
struct error *flat_begin(struct flat **out);
struct error *flat_add(struct flat *flat, const struct profile *profile,
		       struct symbolizer *symbolizer, const struct tree_options *options);

/* Adds samples to the row of a name, as those that end there. */
struct error *flat_add_cell(struct flat *flat, const char *name, const struct profile_cell *cell);

/* Sorts by self time, and drops rows without samples. */
void flat_sort(struct flat *flat);

/* The tree must be summed and not reversed. Rows point to the names of its nodes. */
struct error *flat_new(const struct tree *tree, struct flat **out);
void flat_free(struct flat *flat);

/* Sorts by total time instead. */
void flat_sort_by_total(struct flat *flat);

/*
 * Without a tree: chooses functions with at least this share of the selected weight, callees
 * included (0 to 1): `room` at most, those with most weight of their own first;
 * *n is how many.
 */
struct error *flat_choose(const struct profile *profile, struct symbolizer *symbolizer,
			  double least, const char **names, size_t room, size_t *n);

#endif
