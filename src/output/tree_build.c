/* SPDX-License-Identifier: BSD-3-Clause */
#include "output/tree.h"

#include <stdlib.h>

#include "profile/stacks.h"

/*
 * Frames to visit for a leaf-first tree, where a frame counts once for each
 * stack through it: some seconds. 50,000 stacks of 128 frames are 6.4 million.
 */
#define MAX_VISITS (1u << 30)

/* Adds the child that is called what the frame of stack node `id` is called. */
static struct error *add_frame(struct tree *tree, uint32_t parent, const struct profile *profile,
			       uint32_t id, struct namer *namer, uint32_t *child)
{
	const struct stack_node *frame = stacks_node(profile->stacks, id);
	struct named named;
	struct error *err = namer_name(namer, frame->addr, frame->kind, &named);

	if (!err)
		err = tree_child(tree, parent, named.name, child);
	if (!err)
		tree->nodes[*child].unresolved = !named.resolved;
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
static struct error *build_forward(const struct profile *profile, struct namer *namer,
				   struct tree *tree)
{
	uint32_t n = stacks_count(profile->stacks);
	uint32_t *node = calloc(n, sizeof(*node)); /* of the tree, by id of the stack */
	bool *used = calloc(n, sizeof(*used));
	struct error *err = node && used ? NULL : error_no_memory();

	if (!err) {
		mark_used(profile, n, used);
		add_self(tree, 0, &profile->cells[STACK_ROOT]);
	}
	for (uint32_t id = STACK_ROOT + 1; !err && id < n; id++) {
		uint32_t parent = stacks_node(profile->stacks, id)->parent;

		if (!used[id])
			continue;
		err = add_frame(tree, node[parent], profile, id, namer, &node[id]);
		if (!err)
			add_self(tree, node[id], &profile->cells[id]);
	}
	free(node);
	free(used);
	return err;
}

/* Leaf first: every stack that was sampled is followed to its outermost frame. */
static struct error *build_reverse(const struct profile *profile, struct namer *namer,
				   struct tree *tree)
{
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
			err = add_frame(tree, node, profile, id, namer, &node);
		}
		if (!err)
			add_self(tree, node, &profile->cells[leaf]);
	}
	return err;
}

struct error *tree_build(const struct profile *profile, struct namer *namer,
			 const struct tree_options *options, struct tree **out)
{
	struct tree *tree;
	struct error *err = tree_new(&tree);

	if (err)
		return err;
	err = options && options->reverse ? build_reverse(profile, namer, tree)
					  : build_forward(profile, namer, tree);
	if (!err)
		err = tree_sum(tree);
	if (err) {
		tree_free(tree);
		return err;
	}
	*out = tree;
	return NULL;
}
