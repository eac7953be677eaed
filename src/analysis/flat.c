/* SPDX-License-Identifier: BSD-3-Clause */
#include "analysis/flat.h"

#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/intern.h"
#include "recording/stacks.h"

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

/* Finds rows by their names: equal names are the same pointer. */
struct flat_index {
	struct ids *ids;
	size_t rows_room;
	uint32_t *open; /* by row: how often its function is on the path */
	size_t open_room;
};

struct error *flat_begin(struct flat **out)
{
	struct flat *flat = calloc(1, sizeof(*flat));
	struct error *err;

	if (!flat)
		return error_no_memory();
	flat->index = calloc(1, sizeof(*flat->index));
	err = flat->index ? ids_new(&flat->index->ids) : error_no_memory();
	if (err)
		flat_free(flat);
	else
		*out = flat;
	return err;
}

static struct error *row_of(struct flat *flat, const char *name, bool unresolved, uint32_t *row)
{
	struct flat_index *index = flat->index;
	bool added;
	struct error *err = ids_get(index->ids, (uintptr_t)name, 0, row, &added);

	if (err || !added)
		return err;
	err = ARRAY_RESERVE(&flat->rows, &index->rows_room, flat->n + 1);
	if (!err)
		err = ARRAY_RESERVE(&index->open, &index->open_room, flat->n + 1);
	if (err)
		return err;
	index->open[flat->n] = 0;
	flat->rows[flat->n++] = (struct flat_row){.name = name, .unresolved = unresolved};
	return NULL;
}

struct error *flat_add_cell(struct flat *flat, const char *name, const struct profile_cell *cell)
{
	uint32_t row;
	struct error *err = row_of(flat, name, false, &row);

	if (err)
		return err;
	profile_cell_add(&flat->rows[row].self, cell);
	profile_cell_add(&flat->rows[row].total, cell);
	return NULL;
}

/* A walk through all stacks, without recursion, for they can be thousands of frames deep. */
struct stack_walk {
	struct flat *flat;
	const struct profile *profile;
	struct symbolizer *symbolizer;
	const struct profile_cells *cells;
	const struct tree_naming *naming;
	uint32_t *first_child, *next_sibling; /* by node of the store; STACK_ROOT: none */
	struct on_path *path;
	size_t depth, path_room;
	uint32_t *rows; /* of the functions on the path */
	size_t n_rows, rows_room;
};

struct on_path {
	uint32_t id;
	struct profile_cell total; /* of what was walked so far */
	size_t first_row;
};

static struct error *link_children(struct stack_walk *walk)
{
	const struct stacks *stacks = walk->profile->stacks;
	const uint32_t n = stacks_count(stacks);

	walk->first_child = array_zeros(n, sizeof(*walk->first_child));
	walk->next_sibling = array_zeros(n, sizeof(*walk->next_sibling));
	if (!walk->first_child || !walk->next_sibling)
		return error_no_memory();
	for (uint32_t id = n - 1; id > STACK_ROOT; id--) {
		uint32_t *first = &walk->first_child[stacks_node(stacks, id)->parent];

		walk->next_sibling[id] = *first;
		*first = id;
	}
	return NULL;
}

/* The row of one function of a frame goes onto the path. */
static struct error *open_row(struct stack_walk *walk, uint32_t id, const struct location *function)
{
	const char *name = function->function;
	struct error *err = NULL;
	uint32_t row;

	if (walk->naming)
		err = walk->naming->name(walk->naming->ctx, stacks_node(walk->profile->stacks, id),
					 function, &name);
	if (!err)
		err = row_of(walk->flat, name, !function->resolved, &row);
	if (!err)
		err = ARRAY_RESERVE(&walk->rows, &walk->rows_room, walk->n_rows + 1);
	if (err)
		return err;
	walk->rows[walk->n_rows++] = row;
	walk->flat->index->open[row]++;
	return NULL;
}

static struct error *enter(struct stack_walk *walk, uint32_t id)
{
	const struct profile_cell *cell = profile_cell(walk->cells, id);
	const struct location *functions;
	size_t n;
	struct error *err =
		symbolizer_locate_node(walk->symbolizer, walk->profile->stacks, id, &functions, &n);

	if (!err)
		err = ARRAY_RESERVE(&walk->path, &walk->path_room, walk->depth + 1);
	if (err)
		return err;
	walk->path[walk->depth++] = (struct on_path){id, *cell, walk->n_rows};
	while (n > 0 && !err)
		err = open_row(walk, id, &functions[--n]);
	if (!err && cell->samples)
		profile_cell_add(&walk->flat->rows[walk->rows[walk->n_rows - 1]].self, cell);
	return err;
}

/* Goes back up, to the next child of the caller; STACK_ROOT: there is none. */
static uint32_t leave(struct stack_walk *walk)
{
	const struct on_path *left = &walk->path[--walk->depth];

	while (walk->n_rows > left->first_row) {
		const uint32_t row = walk->rows[--walk->n_rows];

		if (!--walk->flat->index->open[row])
			profile_cell_add(&walk->flat->rows[row].total, &left->total);
	}
	if (walk->depth)
		profile_cell_add(&walk->path[walk->depth - 1].total, &left->total);
	return walk->next_sibling[left->id];
}

static struct error *walk_all(struct stack_walk *walk)
{
	uint32_t id = walk->first_child[STACK_ROOT];
	struct error *err = NULL;

	while (!err && (id != STACK_ROOT || walk->depth)) {
		if (id == STACK_ROOT) {
			id = leave(walk);
			continue;
		}
		err = enter(walk, id);
		id = walk->first_child[id];
	}
	return err;
}

struct error *flat_add(struct flat *flat, const struct profile *profile,
		       struct symbolizer *symbolizer, const struct tree_options *options)
{
	struct stack_walk walk = {.flat = flat,
				  .profile = profile,
				  .symbolizer = symbolizer,
				  .cells = options && options->cells ? options->cells
								     : &profile->cells,
				  .naming = options ? options->naming : NULL};
	struct error *err = link_children(&walk);

	if (!err)
		err = walk_all(&walk);
	free(walk.first_child);
	free(walk.next_sibling);
	free(walk.path);
	free(walk.rows);
	return err;
}

static struct error *collect_names(const struct tree *tree, struct flat *flat, uint32_t *rows)
{
	struct error *err = NULL;

	for (uint32_t i = 1; i < tree->n && !err; i++)
		err = row_of(flat, tree->nodes[i].name, tree->nodes[i].unresolved, &rows[i]);
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
	uint32_t *rows = calloc(tree->n, sizeof(*rows));
	struct flat *flat = NULL;
	struct error *err = rows ? flat_begin(&flat) : error_no_memory();

	if (!err)
		err = collect_names(tree, flat, rows);
	if (!err)
		sum(tree, flat, rows, flat->index->open);
	free(rows);
	if (err) {
		flat_free(flat);
		return err;
	}
	if (flat->n)
		qsort_r(flat->rows, flat->n, sizeof(*flat->rows), by_cells_of, NULL);
	*out = flat;
	return NULL;
}

void flat_sort(struct flat *flat)
{
	size_t n = 0;

	for (size_t i = 0; i < flat->n; i++)
		if (flat->rows[i].total.samples)
			flat->rows[n++] = flat->rows[i];
	flat->n = n;
	if (n)
		qsort_r(flat->rows, n, sizeof(*flat->rows), by_cells_of, NULL);
}

void flat_free(struct flat *flat)
{
	if (!flat)
		return;
	if (flat->index) {
		ids_free(flat->index->ids);
		free(flat->index->open);
	}
	free(flat->index);
	free(flat->rows);
	free(flat);
}

void flat_sort_by_total(struct flat *flat)
{
	if (flat->n)
		qsort_r(flat->rows, flat->n, sizeof(*flat->rows), by_cells_of, flat);
}

struct error *flat_choose(const struct profile *profile, struct symbolizer *symbolizer,
			  double least, const char **names, size_t room, size_t *n)
{
	const double least_weight = least * (double)profile->selected.weight_ns;
	struct flat *flat = NULL;
	struct error *err = flat_begin(&flat);

	*n = 0;
	if (!err)
		err = flat_add(flat, profile, symbolizer, NULL);
	if (!err)
		flat_sort(flat);
	for (size_t i = 0; !err && i < flat->n && *n < room; i++) {
		const struct flat_row *row = &flat->rows[i];

		if (row->total.weight_ns && (double)row->total.weight_ns >= least_weight)
			names[(*n)++] = row->name;
	}
	flat_free(flat);
	return err;
}
