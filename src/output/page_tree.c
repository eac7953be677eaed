/* SPDX-License-Identifier: BSD-3-Clause */
#include "output/page_tree.h"

#include <stdlib.h>
#include <string.h>

#include "recording/stacks.h"

/* Without recursion: stacks can be thousands of frames deep. */
static void number_nodes(struct page_tree *tree)
{
	const struct tree_node *nodes = tree->tree->nodes;
	uint32_t at = 0, n = 0;

	for (;;) {
		tree->place[at] = n;
		tree->order[n++] = at;
		if (nodes[at].first_child) {
			at = nodes[at].first_child;
			continue;
		}
		while (at && !nodes[at].next_sibling)
			at = nodes[at].parent;
		if (!at)
			return;
		at = nodes[at].next_sibling;
	}
}

static int by_name(const void *left, const void *right, void *ctx)
{
	const struct tree_node *nodes = ctx;

	return strcmp(nodes[*(const uint32_t *)left].name, nodes[*(const uint32_t *)right].name);
}

static void add_name(struct page_tree *tree, const struct tree_node *node)
{
	uint32_t n = tree->n_names;

	if (n == 0 || tree->names[n - 1] != node->name) {
		tree->names[n] = node->name;
		tree->unresolved[n] = node->unresolved;
		tree->n_names++;
	}
}

/* Equal names are the same pointer. */
static struct error *number_names(struct page_tree *tree)
{
	const struct tree_node *nodes = tree->tree->nodes;
	uint32_t n = tree->tree->n, *sorted = malloc(n * sizeof(*sorted));

	if (!sorted)
		return error_no_memory();
	for (uint32_t i = 0; i < n; i++)
		sorted[i] = i;
	qsort_r(sorted, n, sizeof(*sorted), by_name, (void *)nodes);
	for (uint32_t i = 0; i < n; i++) {
		add_name(tree, &nodes[sorted[i]]);
		tree->name[sorted[i]] = tree->n_names - 1;
	}
	free(sorted);
	return NULL;
}

static struct error *add_sides(const struct page_side *sides, unsigned n, struct page_tree *tree)
{
	struct error *err = tree_new(&tree->tree);

	for (unsigned i = 0; i < n && !err; i++)
		err = tree_add(tree->tree, sides[i].profile, sides[i].namer, sides[0].namer, NULL,
			       &tree->place_of[i]);
	return err ? err : tree_sum(tree->tree);
}

struct error *page_tree_build(const struct page_side *sides, unsigned n, struct page_tree *out)
{
	struct error *err;

	memset(out, 0, sizeof(*out));
	err = add_sides(sides, n, out);
	if (!err) {
		size_t nodes = out->tree->n;

		out->order = calloc(nodes, sizeof(*out->order));
		out->place = calloc(nodes, sizeof(*out->place));
		out->name = calloc(nodes, sizeof(*out->name));
		out->names = calloc(nodes, sizeof(*out->names));
		out->unresolved = calloc(nodes, sizeof(*out->unresolved));
		if (!out->order || !out->place || !out->name || !out->names || !out->unresolved)
			err = error_no_memory();
	}
	if (!err)
		err = number_names(out);
	if (err) {
		page_tree_free(out);
		return err;
	}
	number_nodes(out);
	for (unsigned i = 0; i < n; i++)
		for (uint32_t id = 0; id < stacks_count(sides[i].profile->stacks); id++)
			out->place_of[i][id] = out->place[out->place_of[i][id]];
	return NULL;
}

void page_tree_free(struct page_tree *tree)
{
	tree_free(tree->tree);
	free(tree->order);
	free(tree->place);
	free(tree->name);
	free(tree->names);
	free(tree->unresolved);
	free(tree->place_of[0]);
	free(tree->place_of[1]);
	memset(tree, 0, sizeof(*tree));
}
