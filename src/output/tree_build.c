/* SPDX-License-Identifier: BSD-3-Clause */
#include "analysis/tree.h"

#include <stdlib.h>

#include "recording/stacks.h"

/*
 * Frames to visit for a leaf-first tree, where a frame counts once for each
 * stack through it: some seconds. 50,000 stacks of 128 frames are 6.4 million.
 */
#define MAX_VISITS (1u << 30)

/* What is added to which tree. */
struct adding {
	struct tree *tree;
	const struct profile *profile;
	struct namer *namer, *names; /* names: whose the nodes' names are, if others' */
};

/* Adds or finds the node of one function, and goes there. */
static struct error *add_function(const struct adding *adding, const struct location *one,
				  uint32_t *at)
{
	struct tree *tree = adding->tree;
	const char *name = one->function;
	uint32_t before = tree->n;
	struct error *err = NULL;

	if (adding->names)
		err = namer_intern(adding->names, name, &name);
	if (!err)
		err = tree_child(tree, *at, name, at);
	if (err)
		return err;
	tree->nodes[*at].unresolved = !one->resolved;
	tree->nodes[*at].inlined = one->inlined && (*at >= before || tree->nodes[*at].inlined);
	return NULL;
}

/*
 * Adds children for the frame of stack node `id`, one for each function that
 * is there: outermost first, or innermost first if `reverse`. *child is the
 * last of them.
 */
static struct error *add_frame(const struct adding *adding, uint32_t parent, uint32_t id,
			       bool reverse, uint32_t *child)
{
	const struct stack_node *frame = stacks_node(adding->profile->stacks, id);
	const struct location *at;
	size_t n = 0;
	struct error *err = namer_locate(adding->namer, frame->addr, frame->kind, &at, &n);

	for (size_t i = 0; i < n && !err; i++)
		err = add_function(adding, &at[reverse ? i : n - 1 - i], &parent);
	*child = parent;
	return err;
}

static void add_self(struct tree *tree, uint32_t node, const struct profile_cell *cell)
{
	tree->nodes[node].self.samples += cell->samples;
	tree->nodes[node].self.weight_ns += cell->weight_ns;
}

/* Marks each stack that was selected and all that it stands on; a parent's id is smaller. */
static void mark_used(const struct profile *profile, uint32_t n, bool *used)
{
	used[STACK_ROOT] = true;
	for (uint32_t id = n - 1; id > STACK_ROOT; id--) {
		used[id] |= profile->cells[id].samples > 0;
		if (used[id])
			used[stacks_node(profile->stacks, id)->parent] = true;
	}
}

/* Root first: one pass over the store, which has the same shape as the tree. */
static struct error *add_forward(const struct adding *adding, uint32_t *node, bool *used)
{
	const struct profile *profile = adding->profile;
	uint32_t n = stacks_count(profile->stacks);
	struct error *err = NULL;

	mark_used(profile, n, used);
	add_self(adding->tree, 0, &profile->cells[STACK_ROOT]);
	for (uint32_t id = STACK_ROOT + 1; !err && id < n; id++) {
		uint32_t parent = stacks_node(profile->stacks, id)->parent;

		if (!used[id])
			continue;
		err = add_frame(adding, node[parent], id, false, &node[id]);
		if (!err)
			add_self(adding->tree, node[id], &profile->cells[id]);
	}
	return err;
}

/* Leaf first: every stack that was sampled is followed to its outermost frame. */
static struct error *add_reverse(const struct adding *adding)
{
	const struct profile *profile = adding->profile;
	uint32_t n = stacks_count(profile->stacks), visits = 0;
	struct error *err = NULL;

	for (uint32_t leaf = STACK_ROOT; !err && leaf < n; leaf++) {
		uint32_t id = leaf, node = 0;

		if (!profile->cells[leaf].samples)
			continue;
		for (; !err && id != STACK_ROOT; id = stacks_node(profile->stacks, id)->parent) {
			if (++visits > MAX_VISITS)
				return error_new(ERR_INPUT,
						 "too many deep stacks to draw leaf first");
			err = add_frame(adding, node, id, true, &node);
		}
		if (!err)
			add_self(adding->tree, node, &profile->cells[leaf]);
	}
	return err;
}

struct error *tree_add(struct tree *tree, const struct profile *profile, struct namer *namer,
		       struct namer *names, const struct tree_options *options, uint32_t **node_of)
{
	const struct adding adding = {tree, profile, namer, names == namer ? NULL : names};
	uint32_t n = stacks_count(profile->stacks), *node;
	struct error *err;
	bool *used;

	if (options && options->reverse)
		return add_reverse(&adding);
	node = calloc(n, sizeof(*node)); /* of the tree, by id of the stack */
	used = calloc(n, sizeof(*used));
	err = node && used ? add_forward(&adding, node, used) : error_no_memory();
	free(used);
	if (!err && node_of)
		*node_of = node;
	else
		free(node);
	return err;
}

struct error *tree_build(const struct profile *profile, struct namer *namer,
			 const struct tree_options *options, struct tree **out)
{
	struct tree *tree;
	struct error *err = tree_new(&tree);

	if (err)
		return err;
	err = tree_add(tree, profile, namer, NULL, options, NULL);
	if (!err)
		err = tree_sum(tree);
	if (err) {
		tree_free(tree);
		return err;
	}
	*out = tree;
	return NULL;
}
