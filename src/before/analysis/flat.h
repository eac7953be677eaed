/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef UNIPROF_OUTPUT_FLAT_H
#define UNIPROF_OUTPUT_FLAT_H

/* The flat profile: each function once, with what it used itself and with all that it called. */

#include "analysis/tree.h"

struct flat_row {
	const char *name;
	struct profile_cell self;
	struct profile_cell total; /* stacks that hold it; one that holds it twice counts once */
	bool unresolved;
};

struct flat {
	struct flat_row *rows; /* by self time, then total, then name */
	size_t n;
};

/* The tree must be summed and not reversed. Rows point to the names of its nodes. */
struct error *flat_new(const struct tree *tree, struct flat **out);
void flat_free(struct flat *flat);

/* Sorts by total time instead. */
void flat_sort_by_total(struct flat *flat);

#endif
