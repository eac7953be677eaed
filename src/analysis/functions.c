/* SPDX-License-Identifier: BSD-3-Clause */
#include "analysis/functions.h"

#include <regex.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/intern.h"
#include "base/owned.h"
#include "recording/stacks.h"
#include "symbol/names/display_name.h"

static int by_cells(const struct profile_cell *a, const struct profile_cell *b)
{
	return COMPARE(b->weight_ns, a->weight_ns) ?: COMPARE(b->samples, a->samples);
}

/* By self time, or by total time if `total` is not NULL; then by the other, then by name. */
static int by_cells_of(const void *a, const void *b, void *total)
{
	const struct flat_row *x = a, *y = b;
	const int self = by_cells(&x->self, &y->self), all = by_cells(&x->total, &y->total);
	const int first = total ? all : self, second = total ? self : all;

	return first ?: second ?: strcmp(x->name, y->name);
}

static void sort_rows(struct flat *flat, void *total)
{
	if (flat->n)
		qsort_r(flat->rows, flat->n, sizeof(*flat->rows), by_cells_of, total);
}

struct error *flat_begin(struct flat **out)
{
	*out = calloc(1, sizeof(**out));
	return *out ? ids_new(&(*out)->ids) : error_no_memory();
}

static struct error *row_of(struct flat *flat, const char *name, bool unresolved, uint32_t *row)
{
	bool added;

	TRY(ids_get(flat->ids, (uintptr_t)name, 0, row, &added));
	if (!added)
		return NULL;
	TRY(ARRAY_RESERVE(&flat->rows, &flat->rows_room, flat->n + 1));
	TRY(ARRAY_RESERVE_ZERO(&flat->open, &flat->open_room, flat->n + 1));
	flat->rows[flat->n++] = (struct flat_row){.name = name, .unresolved = unresolved};
	return NULL;
}

struct error *flat_add_cell(struct flat *flat, const char *name, const struct profile_cell *cell)
{
	uint32_t row;

	TRY(row_of(flat, name, false, &row));
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

/* Links nodes with samples, and their callers: one of a thousand processes has few of all stacks. */
static struct error *link_children(struct stack_walk *walk)
{
	const struct stacks *stacks = walk->profile->stacks;
	const uint32_t n = stacks_count(stacks);
	FREED bool *used = array_zeros(n, sizeof(*used));

	walk->first_child = array_zeros(n, sizeof(*walk->first_child));
	walk->next_sibling = array_zeros(n, sizeof(*walk->next_sibling));
	if (!used || !walk->first_child || !walk->next_sibling)
		return error_no_memory();
	profile_mark_used(walk->profile, walk->cells, used);
	for (uint32_t id = n - 1; id > STACK_ROOT; id--) {
		uint32_t *first = &walk->first_child[stacks_node(stacks, id)->parent];

		if (!used[id])
			continue;
		walk->next_sibling[id] = *first;
		*first = id;
	}
	return NULL;
}

/* The row of one function of a frame goes onto the path. */
static struct error *open_row(struct stack_walk *walk, uint32_t id, const struct location *function)
{
	const char *name = function->function;
	uint32_t row;

	if (walk->naming)
		TRY(walk->naming->name(walk->naming->ctx, stacks_node(walk->profile->stacks, id),
				       function, &name));
	TRY(row_of(walk->flat, name, !function->resolved, &row));
	TRY(ARRAY_RESERVE(&walk->rows, &walk->rows_room, walk->n_rows + 1));
	walk->rows[walk->n_rows++] = row;
	walk->flat->open[row]++;
	return NULL;
}

static struct error *enter(struct stack_walk *walk, uint32_t id)
{
	const struct profile_cell *cell = profile_cell(walk->cells, id);
	const struct location *functions;
	size_t n;

	TRY(symbolizer_locate_node(walk->symbolizer, walk->profile->stacks, id, &functions, &n));
	TRY(ARRAY_RESERVE(&walk->path, &walk->path_room, walk->depth + 1));
	walk->path[walk->depth++] = (struct on_path){id, *cell, walk->n_rows};
	while (n > 0)
		TRY(open_row(walk, id, &functions[--n]));
	if (cell->samples)
		profile_cell_add(&walk->flat->rows[walk->rows[walk->n_rows - 1]].self, cell);
	return NULL;
}

/* Goes back up, to the next child of the caller; STACK_ROOT: there is none. */
static uint32_t leave(struct stack_walk *walk)
{
	const struct on_path *left = &walk->path[--walk->depth];

	while (walk->n_rows > left->first_row) {
		const uint32_t row = walk->rows[--walk->n_rows];

		if (!--walk->flat->open[row])
			profile_cell_add(&walk->flat->rows[row].total, &left->total);
	}
	if (walk->depth)
		profile_cell_add(&walk->path[walk->depth - 1].total, &left->total);
	return walk->next_sibling[left->id];
}

static struct error *walk_all(struct stack_walk *walk)
{
	uint32_t id;

	TRY(link_children(walk));
	id = walk->first_child[STACK_ROOT];
	while (id != STACK_ROOT || walk->depth) {
		if (id == STACK_ROOT) {
			id = leave(walk);
			continue;
		}
		TRY(enter(walk, id));
		id = walk->first_child[id];
	}
	return NULL;
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
	struct error *err = walk_all(&walk);

	free(walk.first_child);
	free(walk.next_sibling);
	free(walk.path);
	free(walk.rows);
	return err;
}

/* Walks the tree without recursion, for it can be thousands of levels deep. */
static void sum(const struct tree *tree, struct flat *flat, const uint32_t *row_of)
{
	uint32_t at = tree->nodes[0].first_child;

	while (at) {
		const struct tree_node *node = &tree->nodes[at];
		struct flat_row *row = &flat->rows[row_of[at]];

		profile_cell_add(&row->self, &node->self);
		if (!flat->open[row_of[at]]++)
			profile_cell_add(&row->total, &node->total);
		if (node->first_child) {
			at = node->first_child;
			continue;
		}
		while (at) {
			node = &tree->nodes[at];
			flat->open[row_of[at]]--;
			if (node->next_sibling)
				break;
			at = node->parent;
		}
		at = at ? node->next_sibling : 0;
	}
}

struct error *flat_new(const struct tree *tree, struct flat **out)
{
	FREED uint32_t *rows = NULL;
	ENDED_BY(flat_end) struct flat *flat = NULL;

	TRY(ARRAY_NEW(&rows, tree->n));
	TRY(flat_begin(&flat));
	for (uint32_t i = 1; i < tree->n; i++)
		TRY(row_of(flat, tree->nodes[i].name, tree->nodes[i].unresolved, &rows[i]));
	sum(tree, flat, rows);
	sort_rows(flat, NULL);
	*out = flat;
	flat = NULL;
	return NULL;
}

void flat_sort(struct flat *flat)
{
	size_t n = 0;

	for (size_t i = 0; i < flat->n; i++)
		if (flat->rows[i].total.samples)
			flat->rows[n++] = flat->rows[i];
	flat->n = n;
	sort_rows(flat, NULL);
}

void flat_free(struct flat *flat)
{
	if (!flat)
		return;
	ids_free(flat->ids);
	free(flat->open);
	free(flat->rows);
	free(flat);
}

void flat_sort_by_total(struct flat *flat)
{
	sort_rows(flat, flat);
}

struct error *flat_choose(const struct profile *profile, struct symbolizer *symbolizer,
			  double least, const char **names, size_t room, size_t *n)
{
	const double least_weight = least * (double)profile->selected.weight_ns;
	ENDED_BY(flat_end) struct flat *flat = NULL;

	*n = 0;
	TRY(flat_begin(&flat));
	TRY(flat_add(flat, profile, symbolizer, NULL));
	flat_sort(flat);
	for (size_t i = 0; i < flat->n && *n < room; i++) {
		const struct flat_row *row = &flat->rows[i];

		if (row->total.weight_ns && (double)row->total.weight_ns >= least_weight)
			names[(*n)++] = row->name;
	}
	return NULL;
}

/* Callers to visit, where one counts for each call of the function: some seconds. */
#define MAX_VISITS (1u << 30)

/* Names that an error lists at most. */
#define NAMES_TOLD 5

struct builder {
	const struct tree *tree;
	struct callers_callees *result;
	uint32_t *node; /* [tree->n]: the callees' nodes, for frames that the function has called */
	bool *inside;	/* [tree->n]: below the function */
	uint64_t visits;
};

/* Adds or finds the child that is as a node of another tree. */
static struct error *add_like(struct tree *tree, uint32_t parent, const struct tree_node *from,
			      uint32_t *child)
{
	TRY(tree_child(tree, parent, from->name, child));
	tree->nodes[*child].unresolved = from->unresolved;
	tree->nodes[*child].inlined = from->inlined;
	return NULL;
}

/* All stacks through the outermost frame `at` came this way. */
static struct error *add_callers(struct builder *b, uint32_t at)
{
	struct tree *callers = b->result->callers;
	uint32_t node = 0;

	for (uint32_t up = b->tree->nodes[at].parent; up; up = b->tree->nodes[up].parent) {
		if (++b->visits > MAX_VISITS)
			return error_new(ERR_INPUT, "too many deep stacks to look for callers");
		TRY(add_like(callers, node, &b->tree->nodes[up], &node));
	}
	profile_cell_add(&callers->nodes[node].self, &b->tree->nodes[at].total);
	return NULL;
}

static struct error *add_callee(struct builder *b, uint32_t at)
{
	const struct tree_node *from = &b->tree->nodes[at];
	struct tree *callees = b->result->callees;

	TRY(add_like(callees, b->node[from->parent], from, &b->node[at]));
	profile_cell_add(&callees->nodes[b->node[at]].self, &from->self);
	return NULL;
}

/* Parents come before their children. */
static struct error *visit(struct builder *b, uint32_t at)
{
	const struct tree_node *node = &b->tree->nodes[at];
	const bool is = node->name == b->result->name;

	if (is)
		profile_cell_add(&b->result->self, &node->self);
	b->inside[at] = is || b->inside[node->parent];
	if (b->inside[node->parent])
		return add_callee(b, at);
	if (!is)
		return NULL;
	profile_cell_add(&b->result->total, &node->total);
	profile_cell_add(&b->result->callees->nodes[0].self, &node->self);
	b->node[at] = 0;
	return add_callers(b, at);
}

struct error *callers_callees_build(const struct tree *tree, const char *name,
				    struct callers_callees *out)
{
	FREED uint32_t *node = calloc(tree->n, sizeof(*node));
	FREED bool *inside = calloc(tree->n, sizeof(*inside));
	struct builder b = {.tree = tree, .result = out, .node = node, .inside = inside};

	*out = (struct callers_callees){.name = name};
	if (!node || !inside)
		return error_no_memory();
	TRY(tree_new(&out->callers));
	TRY(tree_new(&out->callees));
	for (uint32_t i = 1; i < tree->n; i++)
		TRY(visit(&b, i));
	out->callers->nodes[0].name = out->callees->nodes[0].name = name;
	TRY(tree_sum(out->callers));
	return tree_sum(out->callees);
}

void callers_callees_free(struct callers_callees *result)
{
	tree_free(result->callers);
	tree_free(result->callees);
	result->callers = result->callees = NULL;
}

/* Names of the tree, each once: an error lists those that match. */
struct matches {
	const char *text;
	regex_t regex;
	bool is_regex;	  /* names need only match the expression */
	struct ids *seen; /* names by pointer */
	struct short_names *shorts;
	const char *name[NAMES_TOLD + 1];
	size_t n;
};

static bool has(const struct matches *matches, const char *name)
{
	return matches->is_regex ? !regexec(&matches->regex, name, 0, NULL, 0)
				 : strstr(name, matches->text) != NULL;
}

/* True if the name is the text, or its short form is. */
static bool is_match(struct matches *matches, const char *name)
{
	FREED char *text = name_shorten(name, false);
	const bool same = !strcmp(name, matches->text) || (text && !strcmp(text, matches->text));
	const bool part = has(matches, name) || (text && has(matches, text));

	if (part && matches->n <= NAMES_TOLD)
		matches->name[matches->n++] = name;
	return same;
}

/* Two names that differ in what short forms leave out are told whole. */
static struct error *ambiguous(struct matches *matches)
{
	char names[2048] = "";
	size_t len = 0;

	for (size_t i = 0; i < matches->n; i++)
		TRY(short_names_add(matches->shorts, matches->name[i], strlen(matches->name[i])));
	for (size_t i = 0; i < matches->n && i < NAMES_TOLD && len < sizeof(names); i++) {
		size_t bytes = strlen(matches->name[i]);
		const char *name = short_names_get(matches->shorts, matches->name[i], &bytes);

		len += (size_t)snprintf(names + len, sizeof(names) - len, "%s%.300s", i ? ", " : "",
					name);
	}
	return error_new(ERR_USAGE, "\"%s\" could be %s%s: say which", matches->text, names,
			 matches->n > NAMES_TOLD ? ", and others" : "");
}

/* *name is NULL if there is none. */
static struct error *find(const struct tree *tree, struct matches *matches, const char **name)
{
	const char *same = NULL;
	size_t n_same = 0;

	*name = NULL;
	for (uint32_t i = 1; i < tree->n; i++) {
		const char *one = tree->nodes[i].name;
		uint32_t id;
		bool added;

		TRY(ids_get(matches->seen, (uintptr_t)one, 0, &id, &added));
		if (added && !strcmp(one, matches->text)) {
			*name = one;
			return NULL;
		}
		if (added && is_match(matches, one)) {
			same = one;
			n_same++;
		}
	}
	*name = n_same == 1 ? same : matches->name[0];
	return n_same == 1 || matches->n <= 1 ? NULL : ambiguous(matches);
}

static struct error *find_by(const struct tree *tree, struct matches *matches, const char **name)
{
	struct error *err = ids_new(&matches->seen);

	if (!err)
		err = short_names_new(&matches->shorts);
	if (!err)
		err = find(tree, matches, name);
	ids_free(matches->seen);
	short_names_free(matches->shorts);
	return err;
}

struct error *callers_callees_find(const struct tree *tree, const char *text, const char **name)
{
	struct matches matches = {.text = text};
	struct error *err = find_by(tree, &matches, name);

	/* Names have characters in them that an expression understands otherwise. */
	if (!err && !*name && !regcomp(&matches.regex, text, REG_EXTENDED | REG_NOSUB)) {
		matches.is_regex = true;
		err = find_by(tree, &matches, name);
		regfree(&matches.regex);
	}
	if (err || *name)
		return err;
	return error_new(ERR_USAGE, "no function in the samples is called \"%s\"", text);
}
