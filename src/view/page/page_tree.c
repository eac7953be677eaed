/* SPDX-License-Identifier: BSD-3-Clause */

/*
 * The tree of all stacks by name, written as it is walked: nodes in preorder,
 * children by name, so that a node's children follow it and a subtree is one
 * stretch. No node is kept: what is in memory are the stacks, the children of each of their
 * frames, and a step for each way that goes on from the path.
 */

#include "view/page/page.h"

#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/intern.h"
#include "base/owned.h"
#include "recording/stacks.h"

/* As many as a stack store can hold: positions have 32 bits. */
#define MAX_NODES STACKS_MAX_NODES

/* In place of a frame's first child: no stack of those that are written goes through it. */
#define NOT_HERE UINT32_MAX

struct tree_name {
	const char *text; /* equal names are the same pointer */
	bool unresolved;  /* it is an address */
};

/* A function at an address. */
struct tree_function {
	uint32_t name;
	bool inlined; /* into the next one */
};

/* All functions at an address, innermost first. */
struct tree_answer {
	uint32_t first; /* of tree->functions */
	uint32_t n;	/* 0: not looked up yet */
};

struct tree_side {
	const struct page_side *from;
	const struct frame_numbers *frames;
	struct tree_answer *answers; /* by the symbolizer's numbers */
	/* [stacks_count]: first child, which gives way to the node's position; and next sibling, 0: none. */
	uint32_t *child, *sibling;
};

/* A function of a frame that comes next on a way from the path. */
struct step {
	uint32_t rank;	 /* of its name */
	uint32_t node;	 /* of the stack store */
	uint32_t k : 31; /* of the frame's functions, from the innermost on */
	uint32_t side : 1;
};

struct page_tree {
	struct tree_side sides[2];
	unsigned n_sides;
	struct tree_name *names;
	struct ids *ids;	/* of names' pointers */
	uint32_t *order, *rank; /* names in bytewise order; and by name */
	struct tree_function *functions;
	size_t names_room, functions_room;
	uint32_t n_functions;
	struct step *steps; /* those of the deepest level last, the next one at the end */
	size_t *levels;	    /* first step of each */
	size_t n_steps, steps_room, n_levels, levels_room;
	uint32_t *of_pair; /* positions by pair of stack and thread; NULL: by stack */
	uint32_t n_nodes;  /* with the root */
	uint32_t depth;	   /* levels below the root of the node that was written last */
	struct bytes written;
};

static struct error *number_name(struct page_tree *tree, const char *text, bool unresolved,
				 uint32_t *number)
{
	bool added;

	TRY(ids_get(tree->ids, (uintptr_t)text, 0, number, &added));
	if (!added)
		return NULL;
	TRY(ARRAY_RESERVE(&tree->names, &tree->names_room, *number + (size_t)1));
	tree->names[*number] = (struct tree_name){text, unresolved};
	return NULL;
}

/* Names of all sides belong to the first one's symbolizer. */
static struct error *add_function(struct page_tree *tree, const struct tree_side *side,
				  const struct location *at)
{
	const char *text = at->function;
	uint32_t name;

	if (side != tree->sides)
		TRY(symbolizer_intern(tree->sides[0].from->symbolizer, text, &text));
	TRY(number_name(tree, text, !at->resolved, &name));
	TRY(ARRAY_RESERVE(&tree->functions, &tree->functions_room, tree->n_functions + (size_t)1));
	tree->functions[tree->n_functions++] = (struct tree_function){name, at->inlined};
	return NULL;
}

static struct tree_answer *answer_of(const struct tree_side *side, uint32_t node)
{
	return &side->answers[symbolizer_answer(side->from->symbolizer,
						side->frames->of_node[node])];
}

static struct error *resolve_node(struct page_tree *tree, const struct tree_side *side,
				  uint32_t node)
{
	struct tree_answer *answer = answer_of(side, node);
	const struct location *at;
	size_t n;

	if (answer->n)
		return NULL;
	TRY(symbolizer_locate_node(side->from->symbolizer, side->from->profile->stacks, node, &at,
				   &n));
	answer->first = tree->n_functions;
	for (size_t i = 0; i < n; i++)
		TRY(add_function(tree, side, &at[i]));
	answer->n = (uint32_t)n;
	return NULL;
}

/* Links a stack and its callers, up to the first that is there. */
static struct error *link_stack(struct page_tree *tree, struct tree_side *side, uint32_t node)
{
	for (uint32_t child = STACK_ROOT;;
	     child = node, node = stacks_node(side->from->profile->stacks, node)->parent) {
		const bool fresh = side->child[node] == NOT_HERE;

		if (fresh)
			side->child[node] = 0;
		if (child != STACK_ROOT) {
			side->sibling[child] = side->child[node];
			side->child[node] = child;
		}
		if (!fresh || node == STACK_ROOT)
			return NULL;
		TRY(resolve_node(tree, side, node));
	}
}

static void unlink_stack(struct tree_side *side, uint32_t node)
{
	for (; side->child[node] != NOT_HERE;
	     node = stacks_node(side->from->profile->stacks, node)->parent)
		side->child[node] = NOT_HERE;
}

static struct error *link_all(struct page_tree *tree, struct tree_side *side)
{
	struct page_sample_reader reader = page_samples_start(side->from->samples);

	while (page_samples_next(&reader))
		TRY(link_stack(tree, side,
			       page_samples_stack(side->from->samples, reader.sample.key)));
	return NULL;
}

static int by_name(const void *left, const void *right, void *ctx)
{
	const struct tree_name *names = ctx;

	return strcmp(names[*(const uint32_t *)left].text, names[*(const uint32_t *)right].text);
}

static struct error *rank_names(struct page_tree *tree)
{
	const uint32_t n = ids_count(tree->ids);

	tree->order = calloc(n + (size_t)1, sizeof(*tree->order));
	tree->rank = calloc(n + (size_t)1, sizeof(*tree->rank));
	if (!tree->order || !tree->rank)
		return error_no_memory();
	for (uint32_t i = 0; i < n; i++)
		tree->order[i] = i;
	if (n)
		qsort_r(tree->order, n, sizeof(*tree->order), by_name, tree->names);
	for (uint32_t i = 0; i < n; i++)
		tree->rank[tree->order[i]] = i;
	return NULL;
}

static const struct tree_function *function_at(const struct page_tree *tree,
					       const struct step *step)
{
	return &tree->functions[answer_of(&tree->sides[step->side], step->node)->first + step->k];
}

static struct error *push(struct page_tree *tree, struct step step)
{
	TRY(ARRAY_RESERVE(&tree->steps, &tree->steps_room, tree->n_steps + 1));
	step.rank = tree->rank[function_at(tree, &step)->name];
	tree->steps[tree->n_steps++] = step;
	return NULL;
}

/* All functions of the frame are written: its children come next. */
static struct error *push_children(struct page_tree *tree, unsigned side, uint32_t node)
{
	struct tree_side *s = &tree->sides[side];

	for (uint32_t id = s->child[node]; id; id = s->sibling[id])
		TRY(push(tree, (struct step){.node = id,
					     .k = answer_of(s, id)->n - 1,
					     .side = side & 1}));
	s->child[node] = tree->n_nodes - 1;
	return NULL;
}

/* Descending: the last step is taken first. */
static int by_rank(const void *left, const void *right)
{
	const struct step *a = left, *b = right;

	return COMPARE(b->rank, a->rank);
}

/* Makes what was pushed from `first` on a level. */
static struct error *begin_level(struct page_tree *tree, size_t first)
{
	TRY(ARRAY_RESERVE(&tree->levels, &tree->levels_room, tree->n_levels + 1));
	if (tree->n_steps - first > 1)
		qsort(tree->steps + first, tree->n_steps - first, sizeof(*tree->steps), by_rank);
	tree->levels[tree->n_levels++] = first;
	return NULL;
}

/* Writes a node, so many levels below the root. */
static struct error *write_node(struct page_tree *tree, uint32_t depth, uint32_t rank, bool inlined)
{
	TRY(bytes_reserve(&tree->written, (size_t)2 * VARINT_MAX));
	if (tree->n_nodes == MAX_NODES)
		return error_new(ERR_INPUT,
				 "too many different stacks: their tree has more than %u frames",
				 MAX_NODES);
	put_varint(&tree->written, (uint64_t)(tree->depth + 1 - depth) << 1 | inlined);
	put_varint(&tree->written, rank);
	tree->depth = depth;
	tree->n_nodes++;
	return NULL;
}

/* Writes the node of all steps with the rank of the last one; the level below takes their place. */
static struct error *take_step(struct page_tree *tree, size_t level_first, uint32_t depth)
{
	const uint32_t rank = tree->steps[tree->n_steps - 1].rank;
	const size_t last = tree->n_steps;
	size_t first = last;
	bool inlined = true;

	while (first > level_first && tree->steps[first - 1].rank == rank)
		inlined &= function_at(tree, &tree->steps[--first])->inlined;
	TRY(write_node(tree, depth, rank, inlined));
	for (size_t i = first; i < last; i++) {
		struct step step = tree->steps[i];

		if (step.k) {
			step.k--;
			TRY(push(tree, step));
		} else {
			TRY(push_children(tree, step.side, step.node));
		}
	}
	memmove(tree->steps + first, tree->steps + last,
		(tree->n_steps - last) * sizeof(*tree->steps));
	tree->n_steps -= last - first;
	return begin_level(tree, first);
}

/* Writes all that was linked below the node that was written last. */
static struct error *write_below(struct page_tree *tree)
{
	const uint32_t depth = tree->depth;

	for (unsigned i = 0; i < tree->n_sides; i++)
		if (tree->sides[i].child[STACK_ROOT] != NOT_HERE)
			TRY(push_children(tree, i, STACK_ROOT));
	TRY(begin_level(tree, 0));
	while (tree->n_levels) {
		const size_t first = tree->levels[tree->n_levels - 1];

		if (tree->n_steps == first)
			tree->n_levels--;
		else
			TRY(take_step(tree, first, depth + (uint32_t)tree->n_levels));
	}
	return NULL;
}

/* A stack of a thread, below the name of that. */
struct outer_stack {
	uint32_t rank, pair;
};

static int by_outer(const void *left, const void *right)
{
	const struct outer_stack *a = left, *b = right;

	return COMPARE(a->rank, b->rank);
}

/* The stacks of all threads of one name. */
static struct error *write_outer(struct page_tree *tree, const struct outer_stack *stacks, size_t n)
{
	struct tree_side *side = tree->sides;
	const struct page_pair *pairs = side->from->samples->pairs;

	TRY(write_node(tree, 1, stacks->rank, false));
	for (size_t i = 0; i < n; i++)
		TRY(link_stack(tree, side, pairs[stacks[i].pair].stack));
	TRY(write_below(tree));
	for (size_t i = 0; i < n; i++)
		tree->of_pair[stacks[i].pair] = side->child[pairs[stacks[i].pair].stack];
	for (size_t i = 0; i < n; i++)
		unlink_stack(side, pairs[stacks[i].pair].stack);
	return NULL;
}

/* The names of threads, which stand around their functions. */
static struct error *name_outer(struct page_tree *tree, struct outer_stack *stacks)
{
	const struct page_side *from = tree->sides[0].from;

	for (uint32_t i = 0; i < from->samples->n_pairs; i++) {
		const char *name;

		TRY(from->outer->name(from->outer->ctx, from->samples->pairs[i].thread, &name));
		stacks[i].pair = i;
		TRY(number_name(tree, name, false, &stacks[i].rank));
	}
	TRY(rank_names(tree));
	for (uint32_t i = 0; i < from->samples->n_pairs; i++)
		stacks[i].rank = tree->rank[stacks[i].rank];
	return NULL;
}

static struct error *write_by_thread(struct page_tree *tree)
{
	struct tree_side *side = tree->sides;
	const uint32_t n = side->from->samples->n_pairs;
	FREED struct outer_stack *stacks = calloc(n + (size_t)1, sizeof(*stacks));
	size_t end;

	tree->of_pair = calloc(n + (size_t)1, sizeof(*tree->of_pair));
	if (!stacks || !tree->of_pair)
		return error_no_memory();
	TRY(name_outer(tree, stacks));
	for (uint32_t i = 0; i < n; i++)
		unlink_stack(side, side->from->samples->pairs[i].stack);
	if (n)
		qsort(stacks, n, sizeof(*stacks), by_outer);
	for (size_t i = 0; i < n; i = end) {
		for (end = i + 1; end < n && stacks[end].rank == stacks[i].rank;)
			end++;
		TRY(write_outer(tree, stacks + i, end - i));
	}
	return NULL;
}

static struct error *begin_side(const struct page_side *from, struct tree_side *side)
{
	const uint32_t n = stacks_count(from->profile->stacks);
	uint32_t answers = 0;

	TRY(symbolizer_prepare_stacks(from->symbolizer, from->profile->stacks));
	side->from = from;
	side->frames = symbolizer_frames(from->symbolizer);
	for (uint32_t i = 0; i < side->frames->n; i++) {
		const uint32_t answer = symbolizer_answer(from->symbolizer, i);

		answers = answer > answers ? answer : answers;
	}
	side->answers = calloc(answers + (size_t)1, sizeof(*side->answers));
	side->child = malloc(n * sizeof(*side->child));
	side->sibling = malloc(n * sizeof(*side->sibling));
	if (!side->answers || !side->child || !side->sibling)
		return error_no_memory();
	memset(side->child, 0xff, n * sizeof(*side->child));
	return NULL;
}

static struct error *write_all(struct page_tree *tree)
{
	TRY(ids_new(&tree->ids));
	for (unsigned i = 0; i < tree->n_sides; i++)
		TRY(link_all(tree, &tree->sides[i]));
	if (tree->sides[0].from->outer)
		return write_by_thread(tree);
	TRY(rank_names(tree));
	return write_below(tree);
}

struct error *page_tree_new(const struct page_side *sides, unsigned n, struct page_tree **out)
{
	struct page_tree *tree;
	struct error *err = NULL;

	TRY(ARRAY_NEW(&tree, 1));
	tree->n_sides = n;
	tree->n_nodes = 1;
	for (unsigned i = 0; i < n && !err; i++)
		err = begin_side(&sides[i], &tree->sides[i]);
	if (!err)
		err = write_all(tree);
	for (unsigned i = 0; i < n; i++) {
		free(tree->sides[i].sibling);
		tree->sides[i].sibling = NULL;
	}
	if (err)
		page_tree_free(tree);
	else
		*out = tree;
	return err;
}

void page_tree_free(struct page_tree *tree)
{
	if (!tree)
		return;
	for (unsigned i = 0; i < tree->n_sides; i++) {
		free(tree->sides[i].answers);
		free(tree->sides[i].child);
		free(tree->sides[i].sibling);
	}
	ids_free(tree->ids);
	free(tree->names);
	free(tree->order);
	free(tree->rank);
	free(tree->functions);
	free(tree->steps);
	free(tree->levels);
	free(tree->of_pair);
	bytes_free(&tree->written);
	free(tree);
}

struct page_places page_tree_places(const struct page_tree *tree, unsigned side)
{
	const struct tree_side *s = &tree->sides[side];

	if (tree->of_pair)
		return (struct page_places){tree->of_pair, s->from->samples->n_pairs, NULL};
	return (struct page_places){s->child, stacks_count(s->from->profile->stacks),
				    s->from->samples->pairs};
}

uint32_t page_tree_nodes(const struct page_tree *tree, const struct bytes **written)
{
	*written = &tree->written;
	return tree->n_nodes - 1;
}

uint32_t page_tree_names(const struct page_tree *tree)
{
	return ids_count(tree->ids);
}

const char *page_tree_name(const struct page_tree *tree, uint32_t number, bool *unresolved)
{
	const struct tree_name *name = &tree->names[tree->order[number]];

	*unresolved = name->unresolved;
	return name->text;
}
