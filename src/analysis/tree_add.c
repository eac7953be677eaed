/* SPDX-License-Identifier: BSD-3-Clause */
#include "analysis/tree.h"

#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/owned.h"
#include "recording/stacks.h"

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
	const struct tree_options *how;
	const struct profile_cells *cells;
	uint32_t visits; /* frames of stacks that were followed one by one */
};

static struct error *name_of(const struct adding *adding, const struct stack_node *frame,
			     const struct location *function, const char **name)
{
	*name = function->function;
	if (adding->how->naming)
		return adding->how->naming->name(adding->how->naming->ctx, frame, function, name);
	return adding->names ? symbolizer_intern(adding->names, *name, name) : NULL;
}

/* Moves *at to its child of this name, which is new if there was none. */
static struct error *add_child(const struct adding *adding, const char *name, uint32_t *at)
{
	const bool merges = adding->how->naming && adding->how->naming->merges;

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

	TRY(name_of(adding, frame, function, &name));
	TRY(add_child(adding, name, at));
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
	size_t n;

	TRY(symbolizer_locate_node(adding->symbolizer, adding->profile->stacks, id, &functions,
				   &n));
	for (size_t i = 0; i < n; i++)
		TRY(add_function(adding, frame, &functions[adding->how->reverse ? i : n - 1 - i],
				 at));
	return NULL;
}

static void add_self(struct tree *tree, uint32_t node, const struct profile_cell *cell)
{
	profile_cell_add(&tree->nodes[node].self, cell);
}

/* Root first: one pass over the store, which has the same shape as the tree. */
static struct error *add_forward(const struct adding *adding)
{
	const struct profile *profile = adding->profile;
	const uint32_t n = stacks_count(profile->stacks);
	FREED uint32_t *node = array_zeros(n, sizeof(*node)); /* of the tree, by id of the stack */
	FREED bool *used = calloc(n, sizeof(*used));

	if (!node || !used)
		return error_no_memory();
	profile_mark_used(profile, adding->cells, used);
	add_self(adding->tree, 0, profile_cell(adding->cells, STACK_ROOT));
	for (uint32_t id = STACK_ROOT + 1; id < n; id++) {
		if (!used[id])
			continue;
		node[id] = node[stacks_node(profile->stacks, id)->parent];
		TRY(add_frame(adding, id, &node[id]));
		add_self(adding->tree, node[id], profile_cell(adding->cells, id));
	}
	return NULL;
}

static struct error *too_deep(void)
{
	return error_new(ERR_INPUT, "too many deep stacks to show them like this");
}

/* Follows one stack from the leaf to its outermost frame, and moves *at to that. */
static struct error *add_from_leaf(struct adding *adding, uint32_t id, uint32_t *at)
{
	for (; id != STACK_ROOT; id = stacks_node(adding->profile->stacks, id)->parent) {
		if (++adding->visits > MAX_VISITS)
			return too_deep();
		TRY(add_frame(adding, id, at));
	}
	return NULL;
}

/* Leaf first: every stack that was sampled is followed. */
static struct error *add_reverse(struct adding *adding)
{
	const uint32_t n = stacks_count(adding->profile->stacks);

	for (uint32_t leaf = STACK_ROOT; leaf < n; leaf++) {
		uint32_t node = 0;

		if (!profile_cell(adding->cells, leaf)->samples)
			continue;
		TRY(add_from_leaf(adding, leaf, &node));
		add_self(adding->tree, node, profile_cell(adding->cells, leaf));
	}
	return NULL;
}

/* Follows one stack from its outermost frame to the leaf; `path` has room for it. */
static struct error *add_from_root(struct adding *adding, uint32_t id, uint32_t *path, uint32_t *at)
{
	size_t n = 0;

	for (; id != STACK_ROOT; id = stacks_node(adding->profile->stacks, id)->parent)
		path[n++] = id;
	adding->visits =
		n > MAX_VISITS - adding->visits ? MAX_VISITS : adding->visits + (uint32_t)n;
	if (adding->visits == MAX_VISITS)
		return too_deep();
	while (n > 0)
		TRY(add_frame(adding, path[--n], at));
	return NULL;
}

/* A node for each thread, or for what is called like it, is the outermost one of its stacks. */
static struct error *add_by_thread(struct adding *adding)
{
	const struct breakdown *breakdown = adding->profile->breakdown;
	FREED uint32_t *path = malloc(stacks_count(adding->profile->stacks) * sizeof(*path));

	if (!path)
		return error_no_memory();
	for (size_t i = 0; i < breakdown_count(breakdown); i++) {
		const struct breakdown_entry *entry = breakdown_at(breakdown, i);
		const char *name;
		uint32_t at = 0;

		TRY(adding->how->outer->name(adding->how->outer->ctx, entry->thread, &name));
		if (adding->how->reverse)
			TRY(add_from_leaf(adding, entry->stack, &at));
		TRY(tree_child(adding->tree, at, name, &at));
		if (!adding->how->reverse)
			TRY(add_from_root(adding, entry->stack, path, &at));
		add_self(adding->tree, at, &entry->cell);
	}
	return NULL;
}

/*
 * Adding without what is too light: all stacks together go down the tree level
 * by level. A level's nodes are complete when the next one begins, so that those
 * which are too light go at once, with all that is below them. A tree of
 * millions of frames never takes more memory than what is kept of it, and one level.
 */
struct level {
	struct adding *adding;
	double min_weight;
	uint32_t first;	  /* node of this level */
	uint64_t *weight; /* [tree->n - first]: of its nodes */
	size_t room;
	uint32_t *now; /* the same nodes after the light ones went; 0: left out */
	size_t now_room;
};

/* A stack, or a part that several have, on its way. */
struct walker {
	uint32_t frame; /* node of the store whose functions come next */
	uint32_t leaf;	/* leaf first: where the stack begins */
	uint32_t at;	/* node of the tree that was reached */
	uint32_t next;	/* of the frame's functions */
};

/* Flag of a node of the tree: the stack is left out below it. */
#define LEFT_OUT (1u << 31)

static uint64_t weight_of(const struct level *level, const struct profile_cell *cell)
{
	return level->adding->profile->selected.weight_ns ? cell->weight_ns : cell->samples;
}

/* Takes a walker to the node of its next function; *last: it was the frame's last one. */
static struct error *advance(struct level *level, struct walker *walker, uint64_t weight,
			     bool *last)
{
	struct adding *adding = level->adding;
	struct tree *tree = adding->tree;
	const struct stacks *stacks = adding->profile->stacks;
	const size_t had = tree->n - level->first;
	const struct location *functions;
	size_t n;

	TRY(symbolizer_locate_node(adding->symbolizer, stacks, walker->frame, &functions, &n));
	TRY(add_function(adding, stacks_node(stacks, walker->frame),
			 &functions[adding->how->reverse ? walker->next : n - 1 - walker->next],
			 &walker->at));
	TRY(ARRAY_RESERVE(&level->weight, &level->room, tree->n - level->first));
	if (tree->n - level->first > had)
		level->weight[had] = 0;
	level->weight[walker->at - level->first] =
		weight_sum(level->weight[walker->at - level->first], weight);
	*last = ++walker->next == n;
	return NULL;
}

/* Lets the light nodes go. */
static struct error *end_level(struct level *level)
{
	struct tree *tree = level->adding->tree;
	const uint32_t n = tree->n - level->first;

	TRY(ARRAY_RESERVE(&level->now, &level->now_room, n + (size_t)1));
	for (uint32_t i = 0; i < n; i++) {
		struct tree_rest *rest;

		level->now[i] = (double)level->weight[i] >= level->min_weight;
		if (level->now[i] || !level->weight[i])
			continue;
		TRY(tree_rest_of(tree, tree->nodes[level->first + i].parent, &rest));
		rest->n++;
	}
	tree_retain(tree, level->first, level->now);
	return NULL;
}

/* The node behind `at` after end_level, or the one that it was left out below. */
static uint32_t node_now(const struct level *level, uint32_t at, uint32_t parent)
{
	const uint32_t now = level->now[at - level->first];

	return now ? now : parent | LEFT_OUT;
}

/* Adds a cell at the node, or to what is left out there. */
static struct error *add_at(struct level *level, uint32_t at, const struct profile_cell *cell)
{
	struct tree *tree = level->adding->tree;
	struct tree_rest *rest;

	if (!cell->samples)
		return NULL;
	if (!(at & LEFT_OUT)) {
		add_self(tree, at, cell);
		return NULL;
	}
	TRY(tree_rest_of(tree, at & ~LEFT_OUT, &rest));
	profile_cell_add(&rest->cell, cell);
	return NULL;
}

#define NO_WALKER UINT32_MAX

/* Moves the walkers of a node to its children; `next`: their list. Those that end are left out of the next level. */
static struct error *climb_from(struct level *level, struct walker *walkers, uint32_t list,
				const uint32_t *next)
{
	struct adding *adding = level->adding;
	const uint32_t node = walkers[list].at;

	level->first = adding->tree->n;
	for (uint32_t i = list; i != NO_WALKER; i = next[i]) {
		struct walker *walker = &walkers[i];
		const uint64_t weight = weight_of(level, profile_cell(adding->cells, walker->leaf));
		bool last;

		if (++adding->visits > MAX_VISITS)
			return too_deep();
		TRY(advance(level, walker, weight, &last));
		if (!last)
			continue;
		walker->frame = stacks_node(adding->profile->stacks, walker->frame)->parent;
		walker->next = 0;
	}
	TRY(end_level(level));
	for (uint32_t i = list; i != NO_WALKER; i = next[i]) {
		struct walker *walker = &walkers[i];

		walker->at = node_now(level, walker->at, node);
		if (!(walker->at & LEFT_OUT) && walker->frame != STACK_ROOT)
			continue;
		TRY(add_at(level, walker->at, profile_cell(adding->cells, walker->leaf)));
		walker->at |= LEFT_OUT;
	}
	return NULL;
}

/*
 * Leaf first: a walker for each stack. They are [n], and fewer from level to level. Node by
 * node: light children, which are most, are there for one node at a time.
 */
static struct error *climb(struct level *level, struct walker *walkers, uint32_t n)
{
	FREED uint32_t *next = array_resize(NULL, n + (size_t)1, sizeof(*next));
	FREED uint32_t *list = NULL;
	uint32_t first = 0;
	size_t room = 0;

	if (!next)
		return error_no_memory();
	while (n) {
		const uint32_t end = level->adding->tree->n;
		uint32_t kept = 0;

		TRY(ARRAY_RESERVE(&list, &room, end - first));
		for (uint32_t i = first; i < end; i++)
			list[i - first] = NO_WALKER;
		for (uint32_t i = n; i-- > 0; list[walkers[i].at - first] = i)
			next[i] = list[walkers[i].at - first];
		for (uint32_t i = first; i < end; i++)
			if (list[i - first] != NO_WALKER)
				TRY(climb_from(level, walkers, list[i - first], next));
		for (uint32_t i = 0; i < n; i++)
			if (!(walkers[i].at & LEFT_OUT))
				walkers[kept++] = walkers[i];
		n = kept;
		first = end;
	}
	return NULL;
}

static struct error *add_heavy_reverse(struct level *level)
{
	const struct adding *adding = level->adding;
	const uint32_t n = stacks_count(adding->profile->stacks);
	FREED struct walker *walkers = NULL;
	uint32_t stacks = 0;

	for (uint32_t id = STACK_ROOT + 1; id < n; id++)
		stacks += profile_cell(adding->cells, id)->samples > 0;
	TRY(ARRAY_NEW(&walkers, stacks + (size_t)1));
	add_self(adding->tree, 0, profile_cell(adding->cells, STACK_ROOT));
	stacks = 0;
	for (uint32_t id = STACK_ROOT + 1; id < n; id++)
		if (profile_cell(adding->cells, id)->samples)
			walkers[stacks++] = (struct walker){.frame = id, .leaf = id};
	return climb(level, walkers, stacks);
}

/* Root first: each frame of the store is a walker, when the level of its caller is done. */
struct descent {
	uint64_t *total; /* [stacks_count]: weight with all that it called */
	uint32_t *at;	 /* [stacks_count]: its last function's node; before that, its last level */
	uint32_t *order; /* nodes of the store by the level of their first function */
	uint32_t *ends;	 /* [levels]: where that level ends in `order` */
	uint32_t levels;
	struct walker *walkers; /* those of this level; `leaf` is the caller's node */
	size_t room;
};

static struct error *sum_up(const struct level *level, struct descent *d)
{
	const struct adding *adding = level->adding;
	const struct stacks *stacks = adding->profile->stacks;
	const uint32_t n = stacks_count(stacks);

	d->total = array_zeros(n, sizeof(*d->total));
	d->at = array_zeros(n, sizeof(*d->at));
	d->order = array_zeros(n, sizeof(*d->order));
	if (!d->total || !d->at || !d->order)
		return error_no_memory();
	for (uint32_t id = n - 1; id > STACK_ROOT; id--) {
		uint64_t *up = &d->total[stacks_node(stacks, id)->parent];

		d->total[id] =
			weight_sum(d->total[id], weight_of(level, profile_cell(adding->cells, id)));
		*up = weight_sum(*up, d->total[id]);
	}
	return NULL;
}

/* The level of a frame's first function; d->at has the levels of the last ones. */
static uint32_t level_of(const struct descent *d, const struct stacks *stacks, uint32_t id)
{
	return d->at[stacks_node(stacks, id)->parent];
}

/* Sorts the store's nodes by level. */
static struct error *order_levels(const struct level *level, struct descent *d)
{
	const struct adding *adding = level->adding;
	const struct stacks *stacks = adding->profile->stacks;
	const uint32_t n = stacks_count(stacks);
	uint32_t sum = 0;

	for (uint32_t id = STACK_ROOT + 1; id < n; id++) {
		const struct location *functions;
		size_t count;

		TRY(symbolizer_locate_node(adding->symbolizer, stacks, id, &functions, &count));
		d->at[id] = level_of(d, stacks, id) + (uint32_t)count;
		if (d->at[id] > STACKS_MAX_NODES)
			return too_deep();
		if (d->at[id] > d->levels)
			d->levels = d->at[id];
	}
	TRY(ARRAY_NEW(&d->ends, d->levels + (size_t)1));
	for (uint32_t id = STACK_ROOT + 1; id < n; id++)
		d->ends[level_of(d, stacks, id)]++;
	for (uint32_t i = 0; i <= d->levels; i++) {
		const uint32_t begin = sum;

		sum += d->ends[i];
		d->ends[i] = begin;
	}
	for (uint32_t id = STACK_ROOT + 1; id < n; id++)
		d->order[d->ends[level_of(d, stacks, id)]++] = id;
	memset(d->at, 0, n * sizeof(*d->at));
	return NULL;
}

/* The frames that begin at this level join those whose functions are not all done. */
static struct error *join_level(struct level *level, struct descent *d, uint32_t depth,
				uint32_t *walking)
{
	const struct adding *adding = level->adding;

	for (uint32_t i = depth ? d->ends[depth - 1] : 0; i < d->ends[depth]; i++) {
		const uint32_t id = d->order[i];
		const uint32_t at = d->at[stacks_node(adding->profile->stacks, id)->parent];

		d->at[id] = at;
		if (at & LEFT_OUT || !d->total[id]) {
			d->at[id] |= LEFT_OUT;
			TRY(add_at(level, d->at[id], profile_cell(adding->cells, id)));
			continue;
		}
		TRY(ARRAY_RESERVE(&d->walkers, &d->room, *walking + (size_t)1));
		d->walkers[(*walking)++] = (struct walker){.frame = id, .at = at};
	}
	return NULL;
}

static struct error *walk_level(struct level *level, struct descent *d, uint32_t *walking)
{
	const struct adding *adding = level->adding;
	uint32_t kept = 0;

	level->first = adding->tree->n;
	for (uint32_t i = 0; i < *walking; i++) {
		struct walker *walker = &d->walkers[i];
		bool last;

		walker->leaf = walker->at;
		TRY(advance(level, walker, d->total[walker->frame], &last));
		if (last)
			walker->next = UINT32_MAX;
	}
	TRY(end_level(level));
	for (uint32_t i = 0; i < *walking; i++) {
		struct walker walker = d->walkers[i];

		walker.at = node_now(level, walker.at, walker.leaf);
		d->at[walker.frame] = walker.at;
		if (walker.at & LEFT_OUT || walker.next == UINT32_MAX)
			TRY(add_at(level, walker.at, profile_cell(adding->cells, walker.frame)));
		else
			d->walkers[kept++] = walker;
	}
	*walking = kept;
	return NULL;
}

static struct error *add_heavy_forward(struct level *level)
{
	struct descent d = {0};
	struct error *err = sum_up(level, &d);
	uint32_t walking = 0;

	if (!err)
		err = order_levels(level, &d);
	add_self(level->adding->tree, 0, profile_cell(level->adding->cells, STACK_ROOT));
	for (uint32_t depth = 0; depth <= d.levels && !err; depth++) {
		err = join_level(level, &d, depth, &walking);
		if (!err)
			err = walk_level(level, &d, &walking);
	}
	free(d.total);
	free(d.at);
	free(d.order);
	free(d.ends);
	free(d.walkers);
	return err;
}

static struct error *add_heavy(struct adding *adding, double min_weight)
{
	struct level level = {.adding = adding, .min_weight = min_weight};
	struct error *err =
		adding->how->reverse ? add_heavy_reverse(&level) : add_heavy_forward(&level);

	free(level.weight);
	free(level.now);
	return err;
}

struct error *tree_add(struct tree *tree, const struct profile *profile,
		       struct symbolizer *symbolizer, struct symbolizer *names,
		       const struct tree_options *options)
{
	static const struct tree_options usual;
	struct adding adding = {.tree = tree,
				.profile = profile,
				.symbolizer = symbolizer,
				.names = names == symbolizer ? NULL : names,
				.how = options ?: &usual,
				.cells = &profile->cells};
	const double min_weight = tree_min_weight(&profile->selected, adding.how->min_share);

	if (adding.how->cells)
		adding.cells = adding.how->cells;
	if (adding.how->outer)
		return add_by_thread(&adding);
	if (min_weight > 0)
		return add_heavy(&adding, min_weight);
	return adding.how->reverse ? add_reverse(&adding) : add_forward(&adding);
}
