/* SPDX-License-Identifier: BSD-3-Clause */
#include "output/tree_pair.h"

#include <stdlib.h>
#include <string.h>

#include "analysis/interval.h"

/* Weight in units of TREE_PAIR_WHOLE; a profile without weights counts samples. */
static uint64_t normalised(const struct profile_cell *cell, const struct profile *profile)
{
	const struct profile_cell *all = &profile->selected;
	double part = (double)(all->weight_ns ? cell->weight_ns : cell->samples);
	double whole = (double)(all->weight_ns ? all->weight_ns : all->samples);

	return whole > 0 ? (uint64_t)(part / whole * (double)TREE_PAIR_WHOLE + 0.5) : 0;
}

/* Adds one side; what it adds to each node's weight becomes normalised and goes to `weights`. */
static struct error *add_side(const struct tree_sides *sides, int side,
			      const struct tree_options *options, struct tree *tree,
			      uint64_t **weights)
{
	struct profile_cell *before = malloc(tree->n * sizeof(*before));
	uint32_t n = tree->n;
	struct error *err;

	if (!before)
		return error_no_memory();
	for (uint32_t i = 0; i < n; i++) {
		before[i] = tree->nodes[i].self;
		tree->nodes[i].self = (struct profile_cell){0};
	}
	err = tree_add(tree, sides->profile[side], sides->namer[side], sides->namer[0], options,
		       NULL);
	*weights = err ? NULL : calloc(tree->n, sizeof(**weights));
	if (!err && !*weights)
		err = error_no_memory();
	for (uint32_t i = 0; !err && i < tree->n; i++) {
		struct profile_cell *self = &tree->nodes[i].self;

		self->weight_ns = normalised(self, sides->profile[side]);
		(*weights)[i] = self->weight_ns;
		if (i < n) {
			self->weight_ns += before[i].weight_ns;
			self->samples += before[i].samples;
		}
	}
	free(before);
	return err;
}

/* Shares with children, of weights without; a parent's number is smaller than its children's. */
static void compare(const struct tree *tree, uint32_t n, uint64_t *before, uint64_t *after,
		    struct tree_change *nodes)
{
	const struct tree_node *node = tree->nodes;

	for (uint32_t i = tree->n - 1; i > 0; i--) {
		after[node[i].parent] += after[i];
		if (i < n)
			before[node[i].parent] += before[i];
	}
	for (uint32_t i = 0; i < tree->n; i++)
		nodes[i] = (struct tree_change){
			.before = i < n ? (double)before[i] / (double)TREE_PAIR_WHOLE : 0,
			.after = (double)after[i] / (double)TREE_PAIR_WHOLE};
}

static bool is_judged(const struct tree_pair *pair, const struct tree_change *node)
{
	return node->before * pair->draws[0] + node->after * pair->draws[1] >= TREE_PAIR_MIN_DRAWS;
}

static struct error *judge(struct tree_pair *pair)
{
	struct difference *all = calloc(pair->tree->n, sizeof(*all));
	struct difference **judged = calloc(pair->tree->n, sizeof(*judged));
	bool marked = all && judged;
	size_t n = 0;

	for (uint32_t i = 0; marked && i < pair->tree->n; i++) {
		const struct tree_change *node = &pair->nodes[i];

		if (!is_judged(pair, node))
			continue;
		all[i] = difference_of(node->before, pair->draws[0], node->after, pair->draws[1]);
		judged[n++] = &all[i];
	}
	marked = marked && differences_mark(judged, n);
	for (uint32_t i = 0; marked && i < pair->tree->n; i++)
		pair->nodes[i].significant = all[i].significant;
	free(all);
	free(judged);
	return marked ? NULL : error_no_memory();
}

static struct error *build(const struct tree_sides *sides, const struct tree_options *options,
			   struct tree_pair *pair, uint64_t *weights[2])
{
	struct error *err = tree_new(&pair->tree);
	uint32_t n = 0; /* nodes of the first */

	for (int side = 0; side < 2 && !err; side++) {
		err = add_side(sides, side, options, pair->tree, &weights[side]);
		n = side ? n : pair->tree->n;
		pair->draws[side] = profile_draws(sides->profile[side]);
	}
	if (!err)
		err = tree_sum(pair->tree);
	if (err)
		return err;
	pair->nodes = calloc(pair->tree->n, sizeof(*pair->nodes));
	if (!pair->nodes)
		return error_no_memory();
	compare(pair->tree, n, weights[0], weights[1], pair->nodes);
	return judge(pair);
}

struct error *tree_pair_build(const struct tree_sides *sides, const struct tree_options *options,
			      struct tree_pair *out)
{
	uint64_t *weights[2] = {NULL, NULL};
	struct error *err;

	memset(out, 0, sizeof(*out));
	err = build(sides, options, out, weights);
	free(weights[0]);
	free(weights[1]);
	if (err)
		tree_pair_free(out);
	return err;
}

void tree_pair_free(struct tree_pair *pair)
{
	tree_free(pair->tree);
	free(pair->nodes);
	memset(pair, 0, sizeof(*pair));
}
