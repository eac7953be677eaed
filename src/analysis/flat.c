/* SPDX-License-Identifier: BSD-3-Clause */
#include "analysis/flat.h"

#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/intern.h"

static int by_cells(const struct profile_cell *a, const struct profile_cell *b)
{
	if (a->weight_ns != b->weight_ns)
		return a->weight_ns < b->weight_ns ? 1 : -1;
	return (a->samples < b->samples) - (a->samples > b->samples);
}

/* By self time, or by total time if `total` is not NULL; then by the other, then by name. */
static int by_cells_of(const void *a, const void *b, void *total)
{
	const struct flat_row *x = a, *y = b;
	const int self = by_cells(&x->self, &y->self), all = by_cells(&x->total, &y->total);
	const int first = total ? all : self, second = total ? self : all;

	return first ? first : second ? second : strcmp(x->name, y->name);
}

/* A row for each name: equal names are the same pointer. row_of: of each node. */
static struct error *collect_names(const struct tree *tree, struct flat *flat, uint32_t *row_of)
{
	struct ids *rows = NULL;
	struct error *err = ids_new(&rows);
	size_t room = 0;
	bool added;

	for (uint32_t i = 1; i < tree->n && !err; i++) {
		const struct tree_node *node = &tree->nodes[i];

		err = ids_get(rows, (uintptr_t)node->name, 0, &row_of[i], &added);
		if (!err && added)
			err = ARRAY_RESERVE(&flat->rows, &room, flat->n + 1);
		if (!err && added)
			flat->rows[flat->n++] = (struct flat_row){.name = node->name,
								  .unresolved = node->unresolved};
	}
	ids_free(rows);
	return err;
}

/*
 * Walks the tree without recursion, for it can be thousands of levels deep;
 * `open` counts how often each row's function is on the path.
 */
static void sum(const struct tree *tree, struct flat *flat, const uint32_t *row_of, uint32_t *open)
{
	uint32_t at = tree->nodes[0].first_child;

	while (at) {
		const struct tree_node *node = &tree->nodes[at];
		struct flat_row *row = &flat->rows[row_of[at]];

		profile_cell_add(&row->self, &node->self);
		if (!open[row_of[at]]++)
			profile_cell_add(&row->total, &node->total);
		if (node->first_child) {
			at = node->first_child;
			continue;
		}
		while (at) {
			node = &tree->nodes[at];
			open[row_of[at]]--;
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
	uint32_t *row_of = calloc(tree->n, sizeof(*row_of)), *open = NULL;
	struct error *err = flat && row_of ? NULL : error_no_memory();

	if (!err)
		err = collect_names(tree, flat, row_of);
	if (!err) {
		open = calloc(flat->n + 1, sizeof(*open));
		err = open ? NULL : error_no_memory();
	}
	if (!err)
		sum(tree, flat, row_of, open);
	free(open);
	free(row_of);
	if (err) {
		flat_free(flat);
		return err;
	}
	if (flat->n)
		qsort_r(flat->rows, flat->n, sizeof(*flat->rows), by_cells_of, NULL);
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
	if (flat->n)
		qsort_r(flat->rows, flat->n, sizeof(*flat->rows), by_cells_of, flat);
}
