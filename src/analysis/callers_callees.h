/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef UNIPROF_ANALYSIS_CALLERS_CALLEES_H
#define UNIPROF_ANALYSIS_CALLERS_CALLEES_H

/*
 * The callers and the callees of one function, out of a tree of stacks. A stack
 * counts once, at its outermost frame of the function: the frames above it are
 * callees, the function itself among them if it calls itself.
 */

#include "analysis/tree.h"

struct callers_callees {
	const char *name;
	struct profile_cell self;  /* stacks that end in the function */
	struct profile_cell total; /* stacks that hold it */
	/* Both have the function as their root, are summed, and have names of the tree: */
	struct tree *callers; /* leaf first */
	struct tree *callees;
};

/* `name` is a pointer that the tree's nodes have. The tree is summed and not reversed. */
struct error *callers_callees_build(const struct tree *tree, const char *name,
				    struct callers_callees *out);
void callers_callees_free(struct callers_callees *result);

/*
 * The function that `text` means: the one of that name, or else the only one
 * that has the text in its name, or matches it as a regular expression (regex(7)).
 * ERR_USAGE names some if there are several.
 */
struct error *callers_callees_find(const struct tree *tree, const char *text, const char **name);

#endif
