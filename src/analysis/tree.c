/* SPDX-License-Identifier: BSD-3-Clause */
#include "analysis/tree.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/intern.h"
#include "recording/stacks.h"

/* As many as a stack store can hold, so that only leaf-first trees can need more. */
#define MAX_NODES STACKS_MAX_NODES

/* Open addressing; a slot holds a node, 0 is free (the root is nobody's child). */
struct tree_index {
	uint32_t *slots;
	uint32_t n_slots; /* a power of two */
	uint32_t room;	  /* allocated nodes */
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
	free(tree);
}

static uint32_t *find_slot(const struct tree *tree, uint32_t parent, const char *name)
{
	const struct tree_index *index = tree->index;
	uint64_t hash = ((uint64_t)(uintptr_t)name ^ ((uint64_t)parent << 32 | parent)) *
			UINT64_C(0x9e3779b97f4a7c15);
	uint32_t slot = (uint32_t)(hash >> 32) & (index->n_slots - 1);

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

static uint64_t add_capped(uint64_t a, uint64_t b)
{
	return a + b < a ? UINT64_MAX : a + b;
}

static void sum_totals(struct tree *tree)
{
	for (uint32_t i = 0; i < tree->n; i++)
		tree->nodes[i].total = tree->nodes[i].self;
	for (uint32_t i = tree->n - 1; i > 0; i--) {
		const struct profile_cell *total = &tree->nodes[i].total;
		struct profile_cell *up = &tree->nodes[tree->nodes[i].parent].total;

		up->samples = add_capped(up->samples, total->samples);
		up->weight_ns = add_capped(up->weight_ns, total->weight_ns);
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

/*
 * Frames to visit for a leaf-first tree, where a frame counts once for each
 * stack through it: some seconds. 50,000 stacks of 128 frames are 6.4 million.
 */
#define MAX_VISITS (1u << 30)

/* Destination and sources of the nodes that are added. */
struct adding {
	struct tree *tree;
	const struct profile *profile;
	struct symbolizer *symbolizer, *names; /* names: whose the nodes' names are, if others' */
	const struct profile_cell *cells;
	const struct tree_naming *naming;
	const struct tree_outer *outer;
	struct node_map *map; /* where stacks end; NULL: not asked for */
	uint32_t visits;      /* frames of stacks that were followed one by one */
	bool reverse;
};

static struct error *name_of(const struct adding *adding, const struct stack_node *frame,
			     const struct location *function, const char **name)
{
	*name = function->function;
	if (adding->naming)
		return adding->naming->name(adding->naming->ctx, frame, function, name);
	return adding->names ? symbolizer_intern(adding->names, *name, name) : NULL;
}

/* Moves *at to its child of this name, which is new if there was none. */
static struct error *add_child(const struct adding *adding, const char *name, uint32_t *at)
{
	const bool merges = adding->naming && adding->naming->merges;

	if (merges && *at && adding->tree->nodes[*at].name == name)
		return NULL;
	return tree_child(adding->tree, *at, name, at);
}

/* Adds or finds the node of one function, and goes there. */
static struct error *add_function(const struct adding *adding, const struct stack_node *frame,
				  const struct location *function, uint32_t *at)
{
	const uint32_t before = adding->tree->n;
	struct tree_node *node;
	const char *name;
	struct error *err = name_of(adding, frame, function, &name);

	if (!err)
		err = add_child(adding, name, at);
	if (err)
		return err;
	node = &adding->tree->nodes[*at];
	node->unresolved = !function->resolved;
	node->inlined = function->inlined && (*at >= before || node->inlined);
	return NULL;
}

/*
 * Adds the functions at the frame of stack node `id` below *at, outermost
 * first or, in reverse, innermost first, and moves *at to the last of them.
 */
static struct error *add_frame(const struct adding *adding, uint32_t id, uint32_t *at)
{
	const struct stack_node *frame = stacks_node(adding->profile->stacks, id);
	const struct location *functions;
	size_t n = 0;
	struct error *err = symbolizer_locate_node(adding->symbolizer, adding->profile->stacks, id,
						   &functions, &n);

	for (size_t i = 0; i < n && !err; i++)
		err = add_function(adding, frame, &functions[adding->reverse ? i : n - 1 - i], at);
	return err;
}

static void add_self(struct tree *tree, uint32_t node, const struct profile_cell *cell)
{
	profile_cell_add(&tree->nodes[node].self, cell);
}

/* Root first: one pass over the store, which has the same shape as the tree. */
static struct error *add_forward(const struct adding *adding, uint32_t *node, bool *used)
{
	const struct profile *profile = adding->profile;
	uint32_t n = stacks_count(profile->stacks);
	struct error *err = NULL;

	profile_mark_used(profile, adding->cells, used);
	add_self(adding->tree, 0, &adding->cells[STACK_ROOT]);
	for (uint32_t id = STACK_ROOT + 1; !err && id < n; id++) {
		if (!used[id])
			continue;
		node[id] = node[stacks_node(profile->stacks, id)->parent];
		err = add_frame(adding, id, &node[id]);
		if (!err)
			add_self(adding->tree, node[id], &adding->cells[id]);
	}
	return err;
}

/* Follows one stack from the leaf to its outermost frame, and moves *at to that. */
static struct error *add_from_leaf(struct adding *adding, uint32_t id, uint32_t *at)
{
	struct error *err = NULL;

	for (; !err && id != STACK_ROOT; id = stacks_node(adding->profile->stacks, id)->parent) {
		if (++adding->visits > MAX_VISITS)
			return error_new(ERR_INPUT,
					 "too many deep stacks to show leaf first, or by "
					 "processes or threads");
		err = add_frame(adding, id, at);
	}
	return err;
}

/* Leaf first: every stack that was sampled is followed. */
static struct error *add_reverse(struct adding *adding)
{
	uint32_t n = stacks_count(adding->profile->stacks);
	struct error *err = NULL;

	for (uint32_t leaf = STACK_ROOT; !err && leaf < n; leaf++) {
		uint32_t node = 0;

		if (!adding->cells[leaf].samples)
			continue;
		err = add_from_leaf(adding, leaf, &node);
		if (!err)
			add_self(adding->tree, node, &adding->cells[leaf]);
	}
	return err;
}

/* Follows one stack from its outermost frame to the leaf; `path` has room for it. */
static struct error *add_from_root(struct adding *adding, uint32_t id, uint32_t *path, uint32_t *at)
{
	struct error *err = NULL;
	size_t n = 0;

	for (; id != STACK_ROOT; id = stacks_node(adding->profile->stacks, id)->parent)
		path[n++] = id;
	adding->visits =
		n > MAX_VISITS - adding->visits ? MAX_VISITS : adding->visits + (uint32_t)n;
	if (adding->visits == MAX_VISITS)
		return error_new(ERR_INPUT,
				 "too many deep stacks to show them by processes or threads");
	while (n > 0 && !err)
		err = add_frame(adding, path[--n], at);
	return err;
}

/* Notes where the stack of a thread ends. */
static struct error *note_place(const struct adding *adding, const struct breakdown_entry *entry,
				size_t *room, uint32_t at)
{
	struct node_map *map = adding->map;
	uint32_t id;
	bool added;
	struct error *err = ids_get(map->pairs, entry->stack, entry->thread, &id, &added);

	if (!err)
		err = ARRAY_RESERVE(&map->node, room, id + (size_t)1);
	if (err)
		return err;
	map->node[id] = at;
	map->n = ids_count(map->pairs);
	return NULL;
}

/* A node for each thread, or for what is called like it, is the outermost one of its stacks. */
static struct error *add_by_thread(struct adding *adding)
{
	const struct breakdown *breakdown = adding->profile->breakdown;
	uint32_t *path = malloc(stacks_count(adding->profile->stacks) * sizeof(*path));
	struct error *err = path ? NULL : error_no_memory();
	size_t room = 0;

	if (!err && adding->map)
		err = ids_new(&adding->map->pairs);
	for (size_t i = 0; !err && i < breakdown_count(breakdown); i++) {
		const struct breakdown_entry *entry = breakdown_at(breakdown, i);
		const char *name;
		uint32_t at = 0;

		err = adding->outer->name(adding->outer->ctx, entry->thread, &name);
		if (!err && adding->reverse)
			err = add_from_leaf(adding, entry->stack, &at);
		if (!err)
			err = tree_child(adding->tree, at, name, &at);
		if (!err && !adding->reverse)
			err = add_from_root(adding, entry->stack, path, &at);
		if (!err && adding->map)
			err = note_place(adding, entry, &room, at);
		if (!err)
			add_self(adding->tree, at, &entry->cell);
	}
	free(path);
	return err;
}

struct error *tree_add(struct tree *tree, const struct profile *profile,
		       struct symbolizer *symbolizer, struct symbolizer *names,
		       const struct tree_options *options, struct node_map *node_of)
{
	struct adding adding = {
		.tree = tree,
		.profile = profile,
		.symbolizer = symbolizer,
		.names = names == symbolizer ? NULL : names,
		.cells = options && options->cells ? options->cells : profile->cells,
		.naming = options ? options->naming : NULL,
		.outer = options ? options->outer : NULL,
		.map = node_of,
		.reverse = options && options->reverse,
	};
	uint32_t n = stacks_count(profile->stacks), *node;
	struct error *err;
	bool *used;

	assert(!node_of || !adding.reverse);
	if (node_of)
		*node_of = (struct node_map){0};
	if (adding.outer)
		return add_by_thread(&adding);
	if (adding.reverse)
		return add_reverse(&adding);
	node = calloc(n, sizeof(*node)); /* of the tree, by id of the stack */
	used = calloc(n, sizeof(*used));
	err = node && used ? add_forward(&adding, node, used) : error_no_memory();
	free(used);
	if (!err && node_of)
		*node_of = (struct node_map){.node = node, .n = n};
	else
		free(node);
	return err;
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
