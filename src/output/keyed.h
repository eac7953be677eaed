/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef UNIPROF_OUTPUT_KEYED_H
#define UNIPROF_OUTPUT_KEYED_H

/*
 * Trees (output/tree.h) of the selected samples of a profile, whose nodes are
 * not only named by functions: a node's name has a column for each key, with
 * tabs between them, which no name has in it.
 *
 * Where the columns tell less than functions and lines, frames that follow one
 * another with the same name are one node.
 */

#include <regex.h>

#include "output/keys.h"
#include "analysis/tree.h"
#include "base/pool.h"

struct keyed_options {
	struct keys keys;
	bool reverse;	     /* leaf first */
	const regex_t *only; /* stacks that hold a function whose name matches; NULL: all */
};

struct keyed {
	struct tree *tree; /* summed */
	struct pool *pool; /* the names */
};

/*
 * Keys of whole samples need a profile that was loaded with filter.divide.
 * `images` may be NULL.
 */
struct error *keyed_build(const struct profile *profile, struct namer *namer,
			  const struct images *images, const struct keyed_options *options,
			  struct keyed *out);
void keyed_free(struct keyed *keyed);

/* Column i of a node's name, to the tab or the end; *len are its bytes. */
const char *keyed_column(const char *name, size_t i, size_t *len);

#endif
