/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef UNIPROF_OUTPUT_TREE_PAIR_H
#define UNIPROF_OUTPUT_TREE_PAIR_H

/*
 * Two profiles in one tree, to see how they differ. They are normalised: each
 * counts as much as the other, however many samples it has.
 */

#include "analysis/tree.h"

/* What is compared: [0] before, [1] after. */
struct tree_sides {
	const struct profile *profile[2];
	struct namer *namer[2]; /* names of nodes belong to the first */
};

/* A whole profile is this much in the tree's weights, and its samples as many as it has. */
#define TREE_PAIR_WHOLE (UINT64_C(1) << 50)

/*
 * Nodes of which both profiles together have fewer draws than this are not
 * judged: most nodes are tiny, nothing can be shown by so few draws, and each
 * that is held against chance makes the others harder to tell from it.
 */
#define TREE_PAIR_MIN_DRAWS 10

struct tree_change {
	double before, after; /* shares with all children, 0 to 1 */
	bool significant;     /* as output/difference.h has it, of all nodes that are judged */
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

struct error *tree_pair_build(const struct tree_sides *sides, const struct tree_options *options,
			      struct tree_pair *out);
void tree_pair_free(struct tree_pair *pair);

#endif
