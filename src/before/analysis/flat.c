/* SPDX-License-Identifier: BSD-3-Clause */
#include "analysis/flat.h"

#include <stdlib.h>
#include <string.h>

static int by_name_pointer(const void *a, const void *b)
{
	const struct flat_row *x = a, *y = b;

	return (x->name > y->name) - (x->name < y->name);
}

static int by_cells(const struct profile_cell *a, const struct profile_cell *b)
{
	if (a->weight_ns != b->weight_ns)
		return a->weight_ns < b->weight_ns ? 1 : -1;
	return (a->samples < b->samples) - (a->samples > b->samples);
}

static int by_self(const void *a, const void *b)
{
	const struct flat_row *x = a, *y = b;
	int order = by_cells(&x->self, &y->self);

	if (!order)
		order = by_cells(&x->total, &y->total);
	return order ? order : strcmp(x->name, y->name);
}

static int by_total(const void *a, const void *b)
{
	const struct flat_row *x = a, *y = b;
	int order = by_cells(&x->total, &y->total);

	if (!order)
		order = by_cells(&x->self, &y->self);
	return order ? order : strcmp(x->name, y->name);
}

/* One row a name, sorted by pointer: equal names are the same pointer. */
static void collect_names(const struct tree *tree, struct flat *flat)
{
	size_t kept = 0;

	for (uint32_t i = 1; i < tree->n; i++) {
		flat->rows[flat->n].name = tree->nodes[i].name;
		flat->rows[flat->n++].unresolved = tree->nodes[i].unresolved;
	}
	qsort(flat->rows, flat->n, sizeof(*flat->rows), by_name_pointer);
	for (size_t i = 0; i < flat->n; i++)
		if (!kept || flat->rows[kept - 1].name != flat->rows[i].name)
			flat->rows[kept++] = flat->rows[i];
	flat->n = kept;
}

static struct flat_row *row_of(const struct flat *flat, const char *name)
{
	const struct flat_row key = {.name = name};

	return bsearch(&key, flat->rows, flat->n, sizeof(key), by_name_pointer);
}

static void add(struct profile_cell *to, const struct profile_cell *from)
{
	to->samples += from->samples;
	to->weight_ns += from->weight_ns;
}

/*
 * Walks the tree without recursion, for it can be thousands of levels deep;
 * `open` counts how often each row's function is on the path.
 */
static void sum(const struct tree *tree, struct flat *flat, uint32_t *open)
{
	uint32_t at = tree->nodes[0].first_child;

	while (at) {
		const struct tree_node *node = &tree->nodes[at];
		struct flat_row *row = row_of(flat, node->name);

		add(&row->self, &node->self);
		if (!open[row - flat->rows]++)
			add(&row->total, &node->total);
		if (node->first_child) {
			at = node->first_child;
			continue;
		}
		while (at) {
			node = &tree->nodes[at];
			open[row_of(flat, node->name) - flat->rows]--;
			if (node->next_sibling)
				break;
			at = node->parent;
		}
		at = at ? node->next_sibling : 0;
	}
}

struct error *flat_new(const struct tree *tree, struct flat **out)
{
	struct flat *flat = calloc(1, sizeof(*flat));
	uint32_t *open = calloc(tree->n, sizeof(*open));

	if (flat)
		flat->rows = calloc(tree->n, sizeof(*flat->rows));
	if (!flat || !flat->rows || !open) {
		free(open);
		flat_free(flat);
		return error_no_memory();
	}
	collect_names(tree, flat);
	sum(tree, flat, open);
	free(open);
	qsort(flat->rows, flat->n, sizeof(*flat->rows), by_self);
	*out = flat;
	return NULL;
}

void flat_free(struct flat *flat)
{
	if (!flat)
		return;
	free(flat->rows);
	free(flat);
}

void flat_sort_by_total(struct flat *flat)
{
	qsort(flat->rows, flat->n, sizeof(*flat->rows), by_total);
}
