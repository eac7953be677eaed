/* SPDX-License-Identifier: BSD-3-Clause */
#include "analysis/tree.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/owned.h"
#include "recording/stacks.h"

/* As many as a stack store can hold, so that only leaf-first trees can need more. */
#define MAX_NODES STACKS_MAX_NODES

struct error *tree_new(struct tree **out)
{
	struct tree *tree = calloc(1, sizeof(*tree));

	if (tree) {
		tree->room = 64;
		tree->nodes = calloc(tree->room, sizeof(*tree->nodes));
		tree->n_slots = 128;
		tree->slots = calloc(tree->n_slots, sizeof(*tree->slots));
	}
	if (!tree || !tree->nodes || !tree->slots) {
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
	free(tree->slots);
	free(tree->nodes);
	free(tree->rest);
	free(tree);
}

static uint32_t first_slot(const struct tree *tree, uint32_t parent, const char *name)
{
	uint64_t hash = ((uint64_t)(uintptr_t)name ^ ((uint64_t)parent << 32 | parent)) *
			UINT64_C(0x9e3779b97f4a7c15);

	return (uint32_t)(hash >> 32) & (tree->n_slots - 1);
}

static uint32_t *find_slot(const struct tree *tree, uint32_t parent, const char *name)
{
	uint32_t slot = first_slot(tree, parent, name);

	for (;; slot = (slot + 1) & (tree->n_slots - 1)) {
		const struct tree_node *node = &tree->nodes[tree->slots[slot]];

		if (!tree->slots[slot] || (node->parent == parent && node->name == name))
			return &tree->slots[slot];
	}
}

static struct error *grow_slots(struct tree *tree)
{
	uint32_t *slots;

	TRY(ARRAY_NEW(&slots, (size_t)tree->n_slots * 2));
	free(tree->slots);
	tree->slots = slots;
	tree->n_slots *= 2;
	for (uint32_t i = 1; i < tree->n; i++)
		*find_slot(tree, tree->nodes[i].parent, tree->nodes[i].name) = i;
	return NULL;
}

struct error *tree_child(struct tree *tree, uint32_t parent, const char *name, uint32_t *child)
{
	uint32_t *slot = find_slot(tree, parent, name);
	struct tree_node *node;

	if (*slot) {
		*child = *slot;
		return NULL;
	}
	if (tree->n >= MAX_NODES)
		return error_new(ERR_INPUT,
				 "too many different stacks: their tree has more than %u frames",
				 MAX_NODES);
	TRY(ARRAY_RESERVE(&tree->nodes, &tree->room, tree->n + (size_t)1));
	if (tree->n >= tree->n_slots / 2) {
		TRY(grow_slots(tree));
		slot = find_slot(tree, parent, name);
	}

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
	const uint32_t mask = tree->n_slots - 1;
	uint32_t hole = (uint32_t)(slot - tree->slots), at = hole;

	for (;;) {
		const struct tree_node *node;
		uint32_t home;

		at = (at + 1) & mask;
		if (!tree->slots[at])
			break;
		node = &tree->nodes[tree->slots[at]];
		home = first_slot(tree, node->parent, node->name);
		if (((at - home) & mask) < ((at - hole) & mask))
			continue;
		tree->slots[hole] = tree->slots[at];
		hole = at;
	}
	tree->slots[hole] = 0;
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
	TRY(ARRAY_RESERVE_ZERO(&tree->rest, &tree->rest_room, node + (size_t)1));
	*out = &tree->rest[node];
	return NULL;
}

struct tree_rest tree_rest(const struct tree *tree, uint32_t node)
{
	return node < tree->rest_room ? tree->rest[node] : (struct tree_rest){0};
}

static void sum_totals(struct tree *tree)
{
	for (uint32_t i = 0; i < tree->n; i++)
		tree->nodes[i].total = tree->nodes[i].self;
	for (uint32_t i = 0; i < tree->n && i < tree->rest_room; i++)
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

	return strcmp(nodes[a].name, nodes[b].name) ?: COMPARE(a, b);
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
	FREED uint32_t *scratch = malloc(tree->n * sizeof(*scratch));

	if (!scratch)
		return error_no_memory();
	sum_totals(tree);
	sort_children(tree, scratch);
	tree->depth = find_depth(tree, scratch);
	return NULL;
}

double tree_min_weight(const struct profile_cell *all, double share)
{
	return share * (1 - 1e-9) * (double)(all->weight_ns ? all->weight_ns : all->samples);
}

struct error *tree_build(const struct profile *profile, struct symbolizer *symbolizer,
			 const struct tree_options *options, struct tree **out)
{
	ENDED_BY(tree_end) struct tree *tree = NULL;

	TRY(tree_new(&tree));
	TRY(tree_add(tree, profile, symbolizer, NULL, options));
	TRY(tree_sum(tree));
	*out = tree;
	tree = NULL;
	return NULL;
}

/* A frame of the stacks that were added. */
struct picked {
	uint32_t id, parent; /* of the store; and a smaller index */
	uint32_t first_child, next_sibling;
	uint64_t self, total;
};

/* A function of such a frame, as one of those that the path has reached or may go to. */
struct step {
	const char *name;
	const struct location *functions; /* of the frame, innermost first */
	uint32_t at;			  /* the frame */
	uint32_t left;			  /* of the functions, behind this one */
};

struct steps {
	struct step *step;
	size_t n, room;
};

struct tree_picker {
	const struct profile *profile;
	struct symbolizer *symbolizer;
	uint32_t max_levels;
	uint32_t *index;   /* [stacks_count]: in `at`; 0: not there */
	struct picked *at; /* the first is the root; parents before children */
	size_t n, room;
	struct steps here, next;
};

struct error *tree_picker_new(const struct profile *profile, struct symbolizer *symbolizer,
			      uint32_t max_levels, struct tree_picker **out)
{
	struct tree_picker *picker = *out = calloc(1, sizeof(*picker));

	if (!picker)
		return error_no_memory();
	picker->index = array_zeros(stacks_count(profile->stacks), sizeof(*picker->index));
	if (!picker->index)
		return error_no_memory();
	TRY(ARRAY_RESERVE(&picker->at, &picker->room, 1));
	picker->profile = profile;
	picker->symbolizer = symbolizer;
	picker->max_levels = max_levels;
	picker->at[picker->n++] = (struct picked){.id = STACK_ROOT};
	return NULL;
}

void tree_picker_free(struct tree_picker *picker)
{
	if (!picker)
		return;
	free(picker->index);
	free(picker->at);
	free(picker->here.step);
	free(picker->next.step);
	free(picker);
}

struct error *tree_picker_add(struct tree_picker *picker, uint32_t stack, uint64_t weight)
{
	const struct stacks *stacks = picker->profile->stacks;
	uint32_t n = 0, i;

	for (uint32_t id = stack; id != STACK_ROOT && !picker->index[id];
	     id = stacks_node(stacks, id)->parent)
		n++;
	TRY(ARRAY_RESERVE(&picker->at, &picker->room, picker->n + n));
	i = (uint32_t)picker->n + n;
	for (uint32_t id = stack; i > picker->n; id = stacks_node(stacks, id)->parent) {
		picker->index[id] = --i;
		picker->at[i] = (struct picked){.id = id, .parent = i - 1};
	}
	if (n)
		picker->at[i].parent = picker->index[stacks_node(stacks, picker->at[i].id)->parent];
	picker->n += n;
	i = picker->index[stack];
	picker->at[i].self = weight_sum(picker->at[i].self, weight);
	return NULL;
}

static void sum_picked(struct tree_picker *picker)
{
	for (size_t i = picker->n - 1; i > 0; i--) {
		struct picked *at = &picker->at[i], *up = &picker->at[at->parent];

		at->total = weight_sum(at->total, at->self);
		up->total = weight_sum(up->total, at->total);
		at->next_sibling = up->first_child;
		up->first_child = (uint32_t)i;
	}
}

static struct error *add_step(struct steps *steps, const struct location *functions, uint32_t at,
			      uint32_t left)
{
	TRY(ARRAY_RESERVE(&steps->step, &steps->room, steps->n + 1));
	steps->step[steps->n++] = (struct step){functions[left].function, functions, at, left};
	return NULL;
}

/* Finds what may come behind the functions that were reached. */
static struct error *find_steps(struct tree_picker *picker)
{
	struct steps *next = &picker->next;

	next->n = 0;
	for (size_t i = 0; i < picker->here.n; i++) {
		const struct step step = picker->here.step[i];

		if (step.left)
			TRY(add_step(next, step.functions, step.at, step.left - 1));
		for (uint32_t child = step.left ? 0 : picker->at[step.at].first_child; child;
		     child = picker->at[child].next_sibling) {
			const struct location *functions;
			size_t n;

			TRY(symbolizer_locate_node(picker->symbolizer, picker->profile->stacks,
						   picker->at[child].id, &functions, &n));
			TRY(add_step(next, functions, child, (uint32_t)n - 1));
		}
	}
	return NULL;
}

static int by_function(const void *left, const void *right, void *ctx)
{
	const struct step *a = left, *b = right;
	const struct picked *at = ctx;

	return COMPARE((uintptr_t)a->name, (uintptr_t)b->name)
		       ?: COMPARE(at[a->at].id, at[b->at].id);
}

/* Leaves the steps of the heaviest function; returns its weight. */
static uint64_t keep_heaviest(struct tree_picker *picker)
{
	struct steps *next = &picker->next;
	size_t best = 0, n_best = 0, n;
	uint64_t most = 0;

	if (next->n)
		qsort_r(next->step, next->n, sizeof(*next->step), by_function, picker->at);
	for (size_t i = 0; i < next->n; i += n) {
		const struct step *step = &next->step[i];
		uint64_t weight = 0;

		for (n = 0; i + n < next->n && step[n].name == step->name; n++)
			weight = weight_sum(weight, picker->at[step[n].at].total);
		if (n_best && (weight < most ||
			       (weight == most &&
				picker->at[step->at].id > picker->at[next->step[best].at].id)))
			continue;
		most = weight;
		best = i;
		n_best = n;
	}
	if (n_best)
		memmove(next->step, next->step + best, n_best * sizeof(*next->step));
	next->n = n_best;
	return most;
}

/* Weight of what ends in the functions that were reached. */
static uint64_t weight_here(const struct tree_picker *picker)
{
	uint64_t weight = 0;

	for (size_t i = 0; i < picker->here.n; i++)
		if (!picker->here.step[i].left)
			weight = weight_sum(weight, picker->at[picker->here.step[i].at].self);
	return weight;
}

static struct error *go_on(struct tree_picker *picker, struct tree *tree, uint32_t *node)
{
	const uint32_t before = tree->n;
	const struct location *function = &picker->next.step->functions[picker->next.step->left];
	const struct steps here = picker->here;
	struct tree_node *now;

	TRY(tree_child(tree, *node, function->function, node));
	now = &tree->nodes[*node];
	now->unresolved = !function->resolved;
	now->inlined = function->inlined && (*node >= before || now->inlined);
	picker->here = picker->next;
	picker->next = here;
	return NULL;
}

struct error *tree_picker_take(struct tree_picker *picker, struct tree *tree, uint32_t *node)
{
	static const struct location root;
	struct error *err;

	sum_picked(picker);
	picker->here.n = 0;
	err = add_step(&picker->here, &root, 0, 0);
	for (uint32_t level = 0; level < picker->max_levels && !err; level++) {
		uint64_t most;

		err = find_steps(picker);
		if (err)
			break;
		most = keep_heaviest(picker);
		if (!picker->next.n || (*node && most < weight_here(picker)))
			break;
		err = go_on(picker, tree, node);
	}
	for (size_t i = 1; i < picker->n; i++)
		picker->index[picker->at[i].id] = 0;
	picker->n = 1;
	picker->at[0] = (struct picked){.id = STACK_ROOT};
	return err;
}
