/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef UNIPROF_OUTPUT_PAGE_TREE_H
#define UNIPROF_OUTPUT_PAGE_TREE_H

/*
 * The tree of all stacks as a page has it: nodes in preorder, children by
 * name, so that a node's children follow it and a subtree is one stretch.
 */

#include "view/page/page.h"

struct page_tree {
	struct tree *tree;
	uint32_t *order;    /* [tree->n]: the tree's node at each place of the preorder */
	uint32_t *place;    /* the other way round */
	uint32_t *name;	    /* [tree->n]: number of the name of each of the tree's nodes */
	const char **names; /* [n_names]: sorted */
	bool *unresolved;   /* [n_names]: the name is an address */
	uint32_t n_names;
	uint32_t *place_of[2]; /* [stacks]: by stack of each side, its place */
};

struct error *page_tree_build(const struct page_side *sides, unsigned n, struct page_tree *out);
void page_tree_free(struct page_tree *tree);

#endif
