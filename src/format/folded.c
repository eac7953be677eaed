/* SPDX-License-Identifier: BSD-3-Clause */

/*
 * Folded stacks: "root;caller;leaf 12", one line for each chain of names, in
 * bytewise order of what stands before the count. A ';' in a name becomes ':';
 * the rest of what could break the format the symbolizer has cleaned already.
 * Samples of an empty stack are "[no stack]".
 *
 * Counts are whole numbers: the samples, shared out by weight. What rounding
 * leaves over goes to the next line, so that whatever stands together, such as
 * all that one function calls, is at most one sample off.
 */

#include "format/tables.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/owned.h"

/* Of a node that no line of the part that is written goes through. */
#define NOT_HERE UINT32_MAX

/*
 * A step of the walk: a line that ends at one of a node's functions, or all that is below
 * it. These are two steps because other names can sort between them: "f", then
 * "f.cold", then "f;g". Steps with the same key are one: their names are the same.
 */
struct step {
	uint32_t key; /* rank of the name, or of the name and a ';' */
	uint32_t node;
	uint32_t k; /* of the node's functions, from the innermost on */
};

/* Steps of one path. */
struct level {
	size_t first; /* of the steps */
	size_t path;  /* length of the path in front of their names */
};

struct folded {
	const struct format_job *job;
	struct location_table *table;
	/* Names: of the table's functions, of samples without a stack, and of those around functions. */
	const char **names;
	size_t n_names, names_room;
	uint32_t *ranks; /* [2 * n_names]: of a name, and of the name and a ';' */
	uint32_t *first_child,
		*next_sibling; /* [stacks_count]; children of what is written: 0: none */
	const struct profile_cells *cells; /* of the part that is written */
	struct step *steps;		   /* the next one last */
	struct level *levels;
	size_t n_steps, steps_room, n_levels, levels_room;
	struct bytes path;	     /* "root;caller;" */
	struct profile_cell written; /* of the lines so far */
	uint64_t counted;	     /* ... and the sum of their counts */
	FILE *out;
};

static struct error *replace_semicolons(struct symbolizer *symbolizer, const char **name)
{
	FREED char *copy = strdup(*name);

	if (!copy)
		return error_no_memory();
	for (char *at = copy; (at = strchr(at, ';'));)
		*at = ':';
	return symbolizer_intern(symbolizer, copy, name);
}

static struct error *add_name(struct folded *f, const char *name)
{
	TRY(ARRAY_RESERVE(&f->names, &f->names_room, f->n_names + 1));
	if (strchr(name, ';'))
		TRY(replace_semicolons(f->job->symbolizer, &name));
	f->names[f->n_names++] = name;
	return NULL;
}

/* Bytewise; an odd rank is that of a name with a ';' behind it. */
static int compare_names(const void *left, const void *right, void *ctx)
{
	const struct folded *f = ctx;
	const uint32_t a = *(const uint32_t *)left, b = *(const uint32_t *)right;
	const char *x = f->names[a / 2], *y = f->names[b / 2];

	while (*x && *x == *y) {
		x++;
		y++;
	}
	return (*x ? (unsigned char)*x : (int)(a % 2) * ';') -
	       (*y ? (unsigned char)*y : (int)(b % 2) * ';');
}

static struct error *rank_names(struct folded *f)
{
	const size_t n = 2 * f->n_names;
	FREED uint32_t *order = calloc(n + 1, sizeof(*order));

	f->ranks = calloc(n + 1, sizeof(*f->ranks));
	if (!order || !f->ranks || n > UINT32_MAX)
		return error_no_memory();
	for (size_t i = 0; i < n; i++)
		order[i] = (uint32_t)i;
	qsort_r(order, n, sizeof(*order), compare_names, f);
	for (size_t i = 1; i < n; i++)
		f->ranks[order[i]] =
			f->ranks[order[i - 1]] + (compare_names(&order[i - 1], &order[i], f) != 0);
	return NULL;
}

static uint32_t no_stack(const struct folded *f)
{
	return f->table->n_functions;
}

static struct error *add_names(struct folded *f)
{
	for (uint32_t i = 0; i < f->table->n_functions; i++)
		TRY(add_name(f, f->table->functions[i].name));
	return add_name(f, RAW_NO_STACK);
}

static struct error *push(struct folded *f, uint32_t key, uint32_t node, uint32_t k)
{
	TRY(ARRAY_RESERVE(&f->steps, &f->steps_room, f->n_steps + 1));
	f->steps[f->n_steps++] = (struct step){key, node, k};
	return NULL;
}

static uint32_t function_of(const struct folded *f, const struct step *step)
{
	if (step->node == STACK_ROOT)
		return no_stack(f);
	return location_place(f->table, location_entry_of(f->table, step->node), step->k)->function;
}

/* The steps of function k of a node. */
static struct error *push_function(struct folded *f, uint32_t node, uint32_t k)
{
	const struct step step = {.node = node, .k = k};
	const uint32_t *ranks = &f->ranks[2 * (size_t)function_of(f, &step)];

	if (!k && profile_cell(f->cells, node)->samples)
		TRY(push(f, ranks[0], node, k));
	return k || f->first_child[node] ? push(f, ranks[1], node, k) : NULL;
}

static struct error *push_children(struct folded *f, uint32_t node)
{
	for (uint32_t id = f->first_child[node]; id; id = f->next_sibling[id]) {
		const uint32_t entry = location_entry_of(f->table, id);

		TRY(push_function(f, id, location_answer(f->table, entry)->n - 1));
	}
	f->first_child[node] = NOT_HERE;
	return NULL;
}

/* Descending, since the last step is taken first. */
static int compare_steps(const void *left, const void *right)
{
	const struct step *a = left, *b = right;

	return COMPARE(b->key, a->key);
}

/* Makes what was pushed from `first` on a level. */
static struct error *begin_level(struct folded *f, size_t first)
{
	TRY(ARRAY_RESERVE(&f->levels, &f->levels_room, f->n_levels + 1));
	if (f->n_steps - first > 1)
		qsort(f->steps + first, f->n_steps - first, sizeof(*f->steps), compare_steps);
	f->levels[f->n_levels++] = (struct level){first, f->path.len};
	return NULL;
}

/* Puts "name;" behind the path. */
static struct error *extend_path(struct folded *f, const char *name)
{
	const size_t len = strlen(name);

	TRY(bytes_reserve(&f->path, len + 1));
	put_bytes(&f->path, name, len);
	f->path.data[f->path.len++] = ';';
	return NULL;
}

/* The count of the next line; 0: it weighs too little. */
static uint64_t take_count(struct folded *f, const struct profile_cell *self)
{
	const struct profile_cell *all = &f->job->profile->selected;
	uint64_t before = f->counted;

	profile_cell_add(&f->written, self);
	if (all->weight_ns)
		f->counted = (uint64_t)llround((double)f->written.weight_ns /
					       (double)all->weight_ns * (double)all->samples);
	else
		f->counted = f->written.samples;
	return f->counted - before;
}

static struct error *write_line(struct folded *f, const char *name, const struct profile_cell *self)
{
	const uint64_t count = take_count(f, self);
	const size_t path = f->path.len, len = strlen(name);

	if (!count)
		return NULL;
	TRY(bytes_reserve(&f->path, len + DECIMAL_MAX + 2));
	put_bytes(&f->path, name, len);
	f->path.data[f->path.len++] = ' ';
	put_decimal(&f->path, count);
	f->path.data[f->path.len++] = '\n';
	fwrite_unlocked(f->path.data, 1, f->path.len, f->out);
	f->path.len = path;
	return NULL;
}

/* The line of the steps from `first` on. */
static struct error *end_here(struct folded *f, size_t first, const char *name)
{
	struct profile_cell self = {0};

	for (size_t i = first; i < f->n_steps; i++) {
		const uint32_t node = f->steps[i].node;

		profile_cell_add(&self, profile_cell(f->cells, node));
		if (node && !f->first_child[node])
			f->first_child[node] = NOT_HERE;
	}
	f->n_steps = first;
	return write_line(f, name, &self);
}

/* The level below the steps from `first` on, whose place it takes. */
static struct error *go_below(struct folded *f, size_t first, const char *name)
{
	const size_t last = f->n_steps;

	TRY(extend_path(f, name));
	for (size_t i = first; i < last; i++) {
		const struct step step = f->steps[i];

		TRY(step.k ? push_function(f, step.node, step.k - 1) : push_children(f, step.node));
	}
	memmove(f->steps + first, f->steps + last, (f->n_steps - last) * sizeof(*f->steps));
	f->n_steps -= last - first;
	return begin_level(f, first);
}

/* Takes all steps with the key of the last one. */
static struct error *take_step(struct folded *f, size_t level_first)
{
	const struct step step = f->steps[f->n_steps - 1];
	const uint32_t function = function_of(f, &step);
	size_t first = f->n_steps - 1;

	while (first > level_first && f->steps[first - 1].key == step.key)
		first--;
	return step.key == f->ranks[2 * (size_t)function] ? end_here(f, first, f->names[function])
							  : go_below(f, first, f->names[function]);
}

/* Writes all that is below the root, in which what is to be written was linked. */
static struct error *write_lines(struct folded *f)
{
	if (profile_cell(f->cells, STACK_ROOT)->samples)
		TRY(push(f, f->ranks[2 * (size_t)no_stack(f)], STACK_ROOT, 0));
	TRY(push_children(f, STACK_ROOT));
	TRY(begin_level(f, 0));
	while (f->n_levels) {
		const struct level level = f->levels[f->n_levels - 1];

		f->path.len = level.path;
		if (f->n_steps == level.first)
			f->n_levels--;
		else
			TRY(take_step(f, level.first));
	}
	return NULL;
}

/* Links a stack and its callers, up to the first that is there. */
static void link_stack(struct folded *f, uint32_t node)
{
	for (uint32_t child = STACK_ROOT;;
	     child = node, node = stacks_node(f->job->profile->stacks, node)->parent) {
		const bool fresh = f->first_child[node] == NOT_HERE;

		if (fresh)
			f->first_child[node] = 0;
		if (child != STACK_ROOT) {
			f->next_sibling[child] = f->first_child[node];
			f->first_child[node] = child;
		}
		if (!fresh || node == STACK_ROOT)
			return;
	}
}

static struct error *write_all(struct folded *f)
{
	const uint32_t n = stacks_count(f->job->profile->stacks);

	TRY(rank_names(f));
	f->cells = &f->job->profile->cells;
	link_stack(f, STACK_ROOT);
	for (uint32_t id = STACK_ROOT + 1; id < n; id++)
		if (profile_cell(f->cells, id)->samples)
			link_stack(f, id);
	return write_lines(f);
}

/* An entry of the breakdown, by what stands around its functions. */
struct part {
	uint32_t key; /* as of a step */
	uint32_t name;
	const struct breakdown_entry *entry;
};

static int compare_parts(const void *left, const void *right)
{
	const struct part *a = left, *b = right;

	return COMPARE(a->key, b->key);
}

/* Finds the names around functions, and sorts all entries by them. */
static struct error *find_parts(struct folded *f, struct part *parts, size_t n)
{
	const struct tree_outer *outer = f->job->outer;
	const char *last = NULL;

	for (size_t i = 0; i < n; i++) {
		const struct breakdown_entry *entry = breakdown_at(f->job->profile->breakdown, i);
		const char *name;

		TRY(outer->name(outer->ctx, entry->thread, &name));
		if (name != last)
			TRY(add_name(f, name));
		last = name;
		parts[i] = (struct part){.name = (uint32_t)f->n_names - 1, .entry = entry};
	}
	TRY(rank_names(f));
	for (size_t i = 0; i < n; i++)
		parts[i].key =
			f->ranks[2 * (size_t)parts[i].name + (parts[i].entry->stack != STACK_ROOT)];
	if (n)
		qsort(parts, n, sizeof(*parts), compare_parts);
	return NULL;
}

/* Writes entries of one key; cells: [n + 1] and [stacks_count], of nothing. */
static struct error *write_part(struct folded *f, const struct part *parts, size_t n,
				struct profile_cells *cells)
{
	const char *name = f->names[parts[0].name];

	link_stack(f, STACK_ROOT);
	for (size_t i = 0; i < n; i++) {
		const struct breakdown_entry *entry = parts[i].entry;

		if (!cells->of[entry->stack]) {
			cells->of[entry->stack] = (uint32_t)i + 1;
			cells->at[i + 1] = (struct profile_cell){0};
		}
		profile_cell_add(&cells->at[cells->of[entry->stack]], &entry->cell);
		link_stack(f, entry->stack);
	}
	f->path.len = 0;
	if (parts[0].entry->stack == STACK_ROOT) {
		TRY(write_line(f, name, profile_cell(cells, STACK_ROOT)));
	} else {
		TRY(extend_path(f, name));
		TRY(write_lines(f));
	}
	for (size_t i = 0; i < n; i++)
		cells->of[parts[i].entry->stack] = 0;
	return NULL;
}

static struct error *write_parts(struct folded *f)
{
	const size_t n = breakdown_count(f->job->profile->breakdown);
	FREED struct part *parts = calloc(n + 1, sizeof(*parts));
	FREED struct profile_cell *at = array_zeros(n + 1, sizeof(*at));
	FREED uint32_t *of = calloc(stacks_count(f->job->profile->stacks), sizeof(*of));
	struct profile_cells cells = {.at = at, .of = of};

	if (!parts || !at || !of)
		return error_no_memory();
	TRY(find_parts(f, parts, n));
	f->cells = &cells;
	for (size_t i = 0, end; i < n; i = end) {
		for (end = i + 1; end < n && parts[end].key == parts[i].key;)
			end++;
		TRY(write_part(f, parts + i, end - i, &cells));
	}
	return NULL;
}

static struct error *write_folded(const struct format_job *job, FILE *out)
{
	const size_t n = stacks_count(job->profile->stacks);
	struct folded f = {.job = job,
			   .first_child = array_resize(NULL, n, sizeof(*f.first_child)),
			   .next_sibling = array_resize(NULL, n, sizeof(*f.next_sibling)),
			   .out = out};
	struct error *err = f.first_child && f.next_sibling ? location_table_new(job, &f.table)
							    : error_no_memory();

	if (!err) {
		memset(f.first_child, 0xff, n * sizeof(*f.first_child));
		err = add_names(&f);
	}
	if (!err)
		err = job->outer ? write_parts(&f) : write_all(&f);
	location_table_free(f.table);
	free(f.names);
	free(f.ranks);
	free(f.first_child);
	free(f.next_sibling);
	free(f.steps);
	free(f.levels);
	bytes_free(&f.path);
	return err;
}

const struct format format_folded = {.name = "folded",
				     .ending = ".folded",
				     .counts = true,
				     .write = write_folded};
