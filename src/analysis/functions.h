/* SPDX-License-Identifier: BSD-3-Clause */
#pragma once

/*
 * The time of functions: the flat profile has each function once, with its own
 * time and with the time of all that it called; callers and callees are two
 * trees around one of them.
 */

#include "analysis/tree.h"
#include "base/owned.h"
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
	/* Private: */
	size_t rows_room, open_room;
	struct ids *ids; /* numbers of rows by names: equal names are the same pointer */
	uint32_t *open;	 /* by row: how often its function is on the path */
};

/*
 * Rows of the selected samples, without a tree; `options` as for tree_add, of which cells and
 * naming count. Rows point to names as nodes would. Profiles can be added to one another;
 * flat_sort is due afterwards, and flat_free also after an error.
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
OWNED_POINTER(flat)

/* Sorts by total time instead. */
void flat_sort_by_total(struct flat *flat);

/*
 * Without a tree: chooses functions with at least this share of the selected weight, callees
 * included (0 to 1): `room` at most, those with most weight of their own first;
 * *n is how many.
 */
struct error *flat_choose(const struct profile *profile, struct symbolizer *symbolizer,
			  double least, const char **names, size_t room, size_t *n);

/*
 * The callers and the callees of one function, out of a tree of stacks. A stack
 * counts once, at its outermost frame of the function: the frames above it are
 * callees, the function itself among them if it calls itself.
 */

struct callers_callees {
	const char *name;
	struct profile_cell self;  /* stacks that end in the function */
	struct profile_cell total; /* stacks that hold it */
	/* Both have the function as their root, are summed, and have names of the tree: */
	struct tree *callers; /* leaf first */
	struct tree *callees;
};

/*
 * `name` is a pointer that the tree's nodes have. The tree is summed and not
 * reversed. After an error *out is to be freed, too.
 */
struct error *callers_callees_build(const struct tree *tree, const char *name,
				    struct callers_callees *out);
void callers_callees_free(struct callers_callees *result);

/*
 * The function that `text` means: the one of that name, or else the only one
 * that has the text in its name, or matches it as a regular expression (regex(7)).
 * ERR_USAGE names some if there are several.
 */
struct error *callers_callees_find(const struct tree *tree, const char *text, const char **name);
