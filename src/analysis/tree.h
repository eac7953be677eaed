/* SPDX-License-Identifier: BSD-3-Clause */
#pragma once

/*
 * Stacks merged by function name, for folded stacks and flame graphs. Node 0 is
 * the root ("all"); a parent's index is smaller than its children's.
 */

#include "base/owned.h"
#include "profile/profile.h"
#include "symbol/names/symbolizer.h"

struct tree_node {
	const char *name; /* belongs to the symbolizer, or to the code that added it */
	uint32_t parent;
	uint32_t first_child, next_sibling; /* 0: none */
	uint32_t unresolved : 1;	    /* the name is an address */
	uint32_t inlined : 1;		    /* wherever it is, its code is part of its parent's */
	struct profile_cell self;	    /* stacks that end here */
	struct profile_cell total;	    /* with all children; set by tree_sum */
};

/* Children of a node that were too light to be added, with all that is below them. */
struct tree_rest {
	struct profile_cell cell;
	uint32_t n; /* of the children */
};

struct tree {
	struct tree_node *nodes;
	uint32_t n;
	uint32_t depth; /* levels below the root; set by tree_sum */
	/* Private: */
	size_t room; /* of the nodes */
	struct tree_rest *rest;
	size_t rest_room;
	/* Finds children by (parent, name): open addressing; 0 is free, for the root is nobody's child. */
	uint32_t *slots;
	uint32_t n_slots; /* a power of two */
};

struct error *tree_new(struct tree **out);
void tree_free(struct tree *tree);
OWNED_POINTER(tree)

/* Finds or adds the child; names are compared as pointers. */
struct error *tree_child(struct tree *tree, uint32_t parent, const char *name, uint32_t *child);

/*
 * Drops the nodes from `first` on for which now[i - first] is 0, and says there
 * what the others have become. They have no children.
 */
void tree_retain(struct tree *tree, uint32_t first, uint32_t *now);

/* What was left out below a node, to be added to; valid until the next call. */
struct error *tree_rest_of(struct tree *tree, uint32_t node, struct tree_rest **out);

/* ... to be read. */
struct tree_rest tree_rest(const struct tree *tree, uint32_t node);

/* Computes totals and depth and sorts all children by name; call once, after the last tree_child. */
struct error *tree_sum(struct tree *tree);

/* Names nodes by something else than by functions. */
struct tree_naming {
	/* The name of the node of one of the functions that a frame stands for. */
	struct error *(*name)(void *ctx, const struct stack_node *frame,
			      const struct location *function, const char **name);
	void *ctx;
	bool merges; /* frames that follow one another with the same name are one node */
};

/* Nodes outside of the outermost functions: of the threads that ran, or of their processes. */
struct tree_outer {
	/* The name for a thread's number. Equal names are the same pointer. */
	struct error *(*name)(void *ctx, uint32_t thread, const char **name);
	void *ctx;
};

struct tree_options {
	bool reverse;			   /* leaf first: shows the callers of hot functions */
	const struct profile_cells *cells; /* add these; NULL: the profile's */
	const struct tree_naming *naming;  /* NULL: by function */
	/* NULL: none. Else the profile was loaded with filter.divide, and `cells` is NULL. */
	const struct tree_outer *outer;
	/*
	 * Nodes with a smaller share of all selected samples are left out, with all that is
	 * below them: their weight counts in their parents' totals alone. 0: none are. Without
	 * meaning where there is an `outer`, or naming merges.
	 */
	double min_share;
};

/*
 * The least weight of nodes for a share of `all`, in samples if nothing has a weight. It is a
 * little less: a share that is computed elsewhere as exactly that much stays.
 */
double tree_min_weight(const struct profile_cell *all, double share);

/*
 * Adds the selected samples of a profile. Names of nodes belong to `names`,
 * so that profiles with namers of their own can be added to one tree; NULL:
 * to the profile's symbolizer. Inlined functions are nodes as others are.
 */
struct error *tree_add(struct tree *tree, const struct profile *profile,
		       struct symbolizer *symbolizer, struct symbolizer *names,
		       const struct tree_options *options);

/* From the selected samples of a profile; summed. */
struct error *tree_build(const struct profile *profile, struct symbolizer *symbolizer,
			 const struct tree_options *options, struct tree **out);

/*
 * Follows some stacks to what took most of their time, without a tree of all functions: only
 * those that are met on the way, and their siblings, are looked at.
 */
struct tree_picker;

/*
 * Paths end behind so many functions. All of the profile's frames should have been named.
 * tree_picker_free is due, also after an error.
 */
struct error *tree_picker_new(const struct profile *profile, struct symbolizer *symbolizer,
			      uint32_t max_levels, struct tree_picker **out);
void tree_picker_free(struct tree_picker *picker);
OWNED_POINTER(tree_picker)

/* `stack` is one of the profile's. */
struct error *tree_picker_add(struct tree_picker *picker, uint32_t stack, uint64_t weight);

/*
 * Adds to the tree, below *node, the heaviest of the outermost functions, of those that this one
 * called the heaviest again, and so on, until a function itself was heavier than any that
 * it called; moves *node to the last. Of equals it is the one that the recording has first.
 * Forgets the stacks.
 */
struct error *tree_picker_take(struct tree_picker *picker, struct tree *tree, uint32_t *node);
