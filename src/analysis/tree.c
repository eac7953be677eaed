/* SPDX-License-Identifier: BSD-3-Clause */
#include "analysis/tree.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "recording/stacks.h"

/* As many as a stack store can hold, so that only leaf-first trees can need more. */
#define MAX_NODES STACKS_MAX_NODES

/* Open addressing; a slot holds a node, 0 is free (the root is nobody's child). */
struct tree_index {
	uint32_t *slots;
	uint32_t n_slots; /* a power of two */
	uint32_t room;	  /* allocated nodes */
	size_t rest_room; /* ... and of tree->rest */
};

struct error *tree_new(struct tree **out)
{
	struct tree *tree = calloc(1, sizeof(*tree));
	struct tree_index *index = calloc(1, sizeof(*index));

	if (tree && index) {
		index->room = 64;
		index->n_slots = 128;
		index->slots = calloc(index->n_slots, sizeof(*index->slots));
		tree->nodes = calloc(index->room, sizeof(*tree->nodes));
		tree->index = index;
		index = NULL;
	}
	if (!tree || !tree->index || !tree->nodes || !tree->index->slots) {
		free(index);
		tree_free(tree);
		return error_no_memory();
	}
	tree->nodes[0].name = "all";
	tree->n = 1;
	*out = tree;
	return NULL;
}

void tree_free(struct tree *tree)
{
	if (!tree)
		return;
	if (tree->index)
		free(tree->index->slots);
	free(tree->index);
	free(tree->nodes);
	free(tree->rest);
	free(tree);
}

static uint32_t first_slot(const struct tree *tree, uint32_t parent, const char *name)
{
	uint64_t hash = ((uint64_t)(uintptr_t)name ^ ((uint64_t)parent << 32 | parent)) *
			UINT64_C(0x9e3779b97f4a7c15);

	return (uint32_t)(hash >> 32) & (tree->index->n_slots - 1);
}

static uint32_t *find_slot(const struct tree *tree, uint32_t parent, const char *name)
{
	const struct tree_index *index = tree->index;
	uint32_t slot = first_slot(tree, parent, name);

	for (;; slot = (slot + 1) & (index->n_slots - 1)) {
		const struct tree_node *node = &tree->nodes[index->slots[slot]];

		if (!index->slots[slot] || (node->parent == parent && node->name == name))
			return &index->slots[slot];
	}
}

static struct error *grow_nodes(struct tree *tree)
{
	uint32_t room = tree->index->room * 2;
	struct tree_node *nodes = realloc(tree->nodes, room * sizeof(*nodes));

	if (!nodes)
		return error_no_memory();
	tree->nodes = nodes;
	tree->index->room = room;
	return NULL;
}

static struct error *grow_slots(struct tree *tree)
{
	struct tree_index *index = tree->index;
	uint32_t *slots = calloc((size_t)index->n_slots * 2, sizeof(*slots));

	if (!slots)
		return error_no_memory();
	free(index->slots);
	index->slots = slots;
	index->n_slots *= 2;
	for (uint32_t i = 1; i < tree->n; i++)
		*find_slot(tree, tree->nodes[i].parent, tree->nodes[i].name) = i;
	return NULL;
}

struct error *tree_child(struct tree *tree, uint32_t parent, const char *name, uint32_t *child)
{
	uint32_t *slot = find_slot(tree, parent, name);
	struct error *err = NULL;
	struct tree_node *node;

	if (*slot) {
		*child = *slot;
		return NULL;
	}
	if (tree->n >= MAX_NODES)
		return error_new(ERR_INPUT,
				 "too many different stacks: their tree has more than %u frames",
				 MAX_NODES);
	if (tree->n == tree->index->room)
		err = grow_nodes(tree);
	if (!err && tree->n >= tree->index->n_slots / 2) {
		err = grow_slots(tree);
		slot = find_slot(tree, parent, name);
	}
	if (err)
		return err;

	*slot = *child = tree->n++;
	node = &tree->nodes[*child];
	*node = (struct tree_node){.name = name, .parent = parent};
	node->next_sibling = tree->nodes[parent].first_child;
	tree->nodes[parent].first_child = *child;
	return NULL;
}

/* Frees a slot, and moves up those behind it that were displaced by it. */
static void erase(struct tree *tree, uint32_t *slot)
{
	const struct tree_index *index = tree->index;
	const uint32_t mask = index->n_slots - 1;
	uint32_t hole = (uint32_t)(slot - index->slots), at = hole;

	for (;;) {
		const struct tree_node *node;
		uint32_t home;

		at = (at + 1) & mask;
		if (!index->slots[at])
			break;
		node = &tree->nodes[index->slots[at]];
		home = first_slot(tree, node->parent, node->name);
		if (((at - home) & mask) < ((at - hole) & mask))
			continue;
		index->slots[hole] = index->slots[at];
		hole = at;
	}
	index->slots[hole] = 0;
}

/* A parent's newest children are first in its list. */
static void forget_children(struct tree *tree, uint32_t first)
{
	for (uint32_t i = first; i < tree->n; i++) {
		struct tree_node *parent = &tree->nodes[tree->nodes[i].parent];

		while (parent->first_child >= first)
			parent->first_child = tree->nodes[parent->first_child].next_sibling;
	}
}

void tree_retain(struct tree *tree, uint32_t first, uint32_t *now)
{
	const uint32_t n = tree->n;

	forget_children(tree, first);
	tree->n = first;
	for (uint32_t i = first; i < n; i++) {
		struct tree_node node = tree->nodes[i];
		uint32_t *slot = find_slot(tree, node.parent, node.name);

		assert(node.parent < first && !node.first_child);
		if (!now[i - first]) {
			erase(tree, slot);
			continue;
		}
		now[i - first] = *slot = tree->n++;
		node.next_sibling = tree->nodes[node.parent].first_child;
		tree->nodes[node.parent].first_child = *slot;
		tree->nodes[*slot] = node;
	}
}

struct error *tree_rest_of(struct tree *tree, uint32_t node, struct tree_rest **out)
{
	const size_t before = tree->index->rest_room;
	struct error *err = ARRAY_RESERVE(&tree->rest, &tree->index->rest_room, node + (size_t)1);

	if (err)
		return err;
	memset(tree->rest + before, 0, (tree->index->rest_room - before) * sizeof(*tree->rest));
	*out = &tree->rest[node];
	return NULL;
}

struct tree_rest tree_rest(const struct tree *tree, uint32_t node)
{
	return node < tree->index->rest_room ? tree->rest[node] : (struct tree_rest){0};
}

static void sum_totals(struct tree *tree)
{
	for (uint32_t i = 0; i < tree->n; i++)
		tree->nodes[i].total = tree->nodes[i].self;
	for (uint32_t i = 0; i < tree->n && i < tree->index->rest_room; i++)
		profile_cell_add(&tree->nodes[i].total, &tree->rest[i].cell);
	for (uint32_t i = tree->n - 1; i > 0; i--) {
		const struct profile_cell *total = &tree->nodes[i].total;
		struct profile_cell *up = &tree->nodes[tree->nodes[i].parent].total;

		up->samples = weight_sum(up->samples, total->samples);
		up->weight_ns = weight_sum(up->weight_ns, total->weight_ns);
		up->squares += total->squares;
	}
}

static int by_name(const void *left, const void *right, void *ctx)
{
	const struct tree_node *nodes = ctx;
	uint32_t a = *(const uint32_t *)left, b = *(const uint32_t *)right;
	int order = strcmp(nodes[a].name, nodes[b].name);

	return order ? order : (a > b) - (a < b);
}

/* `scratch` has room for all nodes. */
static void sort_children(struct tree *tree, uint32_t *scratch)
{
	struct tree_node *nodes = tree->nodes;

	for (uint32_t i = 0; i < tree->n; i++) {
		size_t n = 0;

		for (uint32_t c = nodes[i].first_child; c; c = nodes[c].next_sibling)
			scratch[n++] = c;
		if (n < 2)
			continue;
		qsort_r(scratch, n, sizeof(*scratch), by_name, nodes);
		nodes[i].first_child = 0;
		while (n > 0) {
			nodes[scratch[--n]].next_sibling = nodes[i].first_child;
			nodes[i].first_child = scratch[n];
		}
	}
}

static uint32_t find_depth(const struct tree *tree, uint32_t *level)
{
	uint32_t depth = 0;

	level[0] = 0;
	for (uint32_t i = 1; i < tree->n; i++) {
		level[i] = level[tree->nodes[i].parent] + 1;
		if (level[i] > depth)
			depth = level[i];
	}
	return depth;
}

struct error *tree_sum(struct tree *tree)
{
	uint32_t *scratch = malloc(tree->n * sizeof(*scratch));

	if (!scratch)
		return error_no_memory();
	sum_totals(tree);
	sort_children(tree, scratch);
	tree->depth = find_depth(tree, scratch);
	free(scratch);
	return NULL;
}

double tree_min_weight(const struct profile_cell *all, double share)
{
	return share * (1 - 1e-9) * (double)(all->weight_ns ? all->weight_ns : all->samples);
}

struct error *tree_build(const struct profile *profile, struct symbolizer *symbolizer,
			 const struct tree_options *options, struct tree **out)
{
	struct tree *tree;
	struct error *err = tree_new(&tree);

	if (err)
		return err;
	err = tree_add(tree, profile, symbolizer, NULL, options, NULL);
	if (!err)
		err = tree_sum(tree);
	if (err) {
		tree_free(tree);
		return err;
	}
	*out = tree;
	return NULL;
}
