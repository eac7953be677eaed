/* SPDX-License-Identifier: BSD-3-Clause */

/*
 * Callgrind's format, for callgrind_annotate and KCachegrind: what each
 * function used itself, by line, and what was used below its calls. How often
 * functions were called is not known: calls= is the number of samples. A
 * stack counts once for a call that it has several times, but a recursive
 * function's calls come on top of what it used itself, as this format knows
 * only pairs of functions.
 */

#include "format/format.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/intern.h"
#include "format/tables.h"

/* Cost of a function in one line, or of the calls in that line to another function. */
struct cost {
	uint32_t caller, callee; /* LOCATION_NONE: the function's own */
	uint32_t line;
	uint32_t open; /* calls of the path that it is counted for: one alone counts */
	uint64_t samples, weight;
};

/* A function of the path, and what was used below its call since the path has it. */
struct call {
	uint32_t place; /* of the table */
	uint32_t cost;	/* of the call; LOCATION_NONE: the outermost function has none */
	uint32_t node;	/* its place in the path */
	uint64_t samples, weight;
};

struct callgrind {
	const struct format_job *job;
	struct location_table *table;
	struct stack_path path;
	struct call *calls; /* of the path, outermost first, several where some were inlined */
	size_t n_calls, calls_room;
	struct cost *costs;
	uint32_t n_costs;
	size_t room;
	uint32_t *
		slots; /* numbers of costs + 1, by their keys; 0: free; at most three quarters full */
	uint32_t n_slots; /* a power of two */
	uint32_t *own; /* by place of the table: the cost of its function there + 1; 0: none yet */
	bool *named;   /* [functions]: its name has been written */
	struct ids *files; /* numbers of those whose name has been written */
	FILE *out;
};

static bool has_key(const struct cost *cost, const struct cost *key)
{
	return cost->caller == key->caller && cost->callee == key->callee &&
	       cost->line == key->line;
}

/* The slot that a cost's search begins with. */
static uint32_t first_slot(const struct callgrind *c, const struct cost *key)
{
	const uint64_t both = (uint64_t)key->caller << 32 | key->callee;
	const uint64_t hash =
		(both * UINT64_C(0xff51afd7ed558ccd) ^ key->line) * UINT64_C(0x9e3779b97f4a7c15);

	return (uint32_t)(hash >> 32) & (c->n_slots - 1);
}

/* The slot of a cost, or the free one where it is to be added. */
static uint32_t *slot_of(const struct callgrind *c, const struct cost *key)
{
	uint32_t slot = first_slot(c, key);

	while (c->slots[slot] && !has_key(&c->costs[c->slots[slot] - 1], key))
		slot = (slot + 1) & (c->n_slots - 1);
	return &c->slots[slot];
}

static struct error *grow_slots(struct callgrind *c)
{
	const uint32_t n = c->n_slots ? 2 * c->n_slots : 1024;
	uint32_t *slots = array_zeros(n, sizeof(*slots));

	if (!slots)
		return error_no_memory();
	free(c->slots);
	c->slots = slots;
	c->n_slots = n;
	for (uint32_t i = 0; i < c->n_costs; i++)
		*slot_of(c, &c->costs[i]) = i + 1;
	return NULL;
}

static struct error *find(struct callgrind *c, const struct cost *key, uint32_t *number)
{
	struct error *err = NULL;
	uint32_t *slot;

	if (c->n_costs >= c->n_slots / 4 * 3)
		err = grow_slots(c);
	if (err)
		return err;
	slot = slot_of(c, key);
	if (!*slot) {
		err = ARRAY_RESERVE(&c->costs, &c->room, c->n_costs + (size_t)1);
		if (err)
			return err;
		c->costs[c->n_costs] = *key;
		*slot = ++c->n_costs;
	}
	*number = *slot - 1;
	return NULL;
}

/* The cost of a function of its own. */
static struct error *find_own(struct callgrind *c, uint32_t place, uint32_t *number)
{
	const struct location_place *at = &c->table->places[place];
	const struct cost key = {.caller = at->function, .callee = LOCATION_NONE, .line = at->line};
	struct error *err = NULL;

	if (!c->own[place]) {
		err = find(c, &key, number);
		c->own[place] = err ? 0 : *number + 1;
	}
	if (!err)
		*number = c->own[place] - 1;
	return err;
}

static void add(uint64_t *to_samples, uint64_t *to_weight, uint64_t samples, uint64_t weight)
{
	*to_samples += samples;
	*to_weight = weight_sum(*to_weight, weight);
}

/* Counts the calls that the path no longer has, innermost first, each for its caller, too. */
static void close_calls(struct callgrind *c)
{
	while (c->n_calls && c->calls[c->n_calls - 1].node >= c->path.n) {
		const struct call *call = &c->calls[--c->n_calls];
		struct cost *cost = &c->costs[call->cost];

		if (!c->n_calls)
			return;
		if (!--cost->open)
			add(&cost->samples, &cost->weight, call->samples, call->weight);
		add(&c->calls[c->n_calls - 1].samples, &c->calls[c->n_calls - 1].weight,
		    call->samples, call->weight);
	}
}

/* The cost of a call of one place by another. */
static struct cost call_key(const struct callgrind *c, uint32_t caller, uint32_t callee)
{
	const struct location_place *places = c->table->places;

	return (struct cost){.caller = places[caller].function,
			     .callee = places[callee].function,
			     .line = places[caller].line};
}

/* So many nodes ahead memory is asked for: most costs, and their slots, are in no cache. */
#define AHEAD 24u

/*
 * Asks for the slot of the call of a node that comes later, or, when that has come, for its cost.
 * Nodes that no sample has may have an address that is in the table, and a caller that is not.
 */
static void ask_ahead(const struct callgrind *c, uint32_t node, bool cost)
{
	const struct stacks *stacks = c->job->profile->stacks;
	const struct location_answer *answer, *caller;
	const uint32_t *slot;
	struct cost key;
	uint32_t parent, entry, parent_entry;

	if (!c->n_slots || node >= stacks_count(stacks))
		return;
	parent = stacks_node(stacks, node)->parent;
	if (parent == STACK_ROOT)
		return;
	entry = location_entry_of(c->table, node);
	parent_entry = location_entry_of(c->table, parent);
	if (entry == LOCATION_NONE || parent_entry == LOCATION_NONE)
		return;
	answer = location_answer(c->table, entry);
	caller = location_answer(c->table, parent_entry);
	if (!answer->n || !caller->n)
		return;
	key = call_key(c, caller->places, answer->places + answer->n - 1);
	slot = &c->slots[first_slot(c, &key)];
	if (!cost)
		__builtin_prefetch(slot, 1);
	else if (*slot)
		__builtin_prefetch(&c->costs[*slot - 1], 1);
}

/* Adds a function to the path, which the innermost one calls. */
static struct error *open_call(struct callgrind *c, uint32_t place)
{
	struct call call = {.place = place, .cost = LOCATION_NONE, .node = (uint32_t)c->path.n - 1};
	struct error *err = ARRAY_RESERVE(&c->calls, &c->calls_room, c->n_calls + 1);

	if (!err && c->n_calls) {
		const struct cost key = call_key(c, c->calls[c->n_calls - 1].place, place);

		err = find(c, &key, &call.cost);
		if (!err)
			c->costs[call.cost].open++;
	}
	if (!err)
		c->calls[c->n_calls++] = call;
	return err;
}

static struct error *add_stack(struct callgrind *c, uint32_t stack)
{
	const struct profile_cell *cell = profile_cell(&c->job->profile->cells, stack);
	struct error *err = stack_path_follow(&c->path, stack);
	struct call *leaf;
	uint32_t own;

	if (err)
		return err;
	close_calls(c);
	while (c->path.n_fresh && !err) {
		const uint32_t node = c->path.fresh[c->path.n_fresh - 1];
		const struct location_answer *answer =
			location_answer(c->table, location_entry_of(c->table, node));

		err = stack_path_add(&c->path);
		for (uint32_t k = answer->n; k > 0 && !err; k--)
			err = open_call(c, answer->places + k - 1);
	}
	if (err || !c->n_calls)
		return err;
	leaf = &c->calls[c->n_calls - 1];
	add(&leaf->samples, &leaf->weight, cell->samples, cell->weight_ns);
	err = find_own(c, leaf->place, &own);
	if (!err)
		add(&c->costs[own].samples, &c->costs[own].weight, cell->samples, cell->weight_ns);
	return err;
}

/* The last path's calls are counted by a path of none. */
static struct error *add_stacks(struct callgrind *c)
{
	const struct profile *profile = c->job->profile;
	const uint32_t n = stacks_count(profile->stacks);
	struct error *err = NULL;

	for (uint32_t stack = 1; stack < n && !err; stack++) {
		ask_ahead(c, stack + 2 * AHEAD, false);
		ask_ahead(c, stack + AHEAD, true);
		if (profile_cell(&profile->cells, stack)->samples)
			err = add_stack(c, stack);
	}
	c->path.n = 0;
	if (!err)
		close_calls(c);
	return err;
}

/* Of one caller. */
static int by_callee(const void *left, const void *right, void *ctx)
{
	const struct callgrind *c = ctx;
	const struct cost *a = &c->costs[*(const uint32_t *)left],
			  *b = &c->costs[*(const uint32_t *)right];

	/* Its own costs first; those behind a calls= line belong to the call. */
	if (a->callee != b->callee)
		return a->callee == LOCATION_NONE   ? -1
		       : b->callee == LOCATION_NONE ? 1
		       : a->callee < b->callee	    ? -1
						    : 1;
	return (a->line > b->line) - (a->line < b->line);
}

/* The numbers of costs, by caller; ends[i] is where those of function i end. */
static void sort_costs(struct callgrind *c, uint32_t *order, uint32_t *ends)
{
	const uint32_t n = c->table->n_functions;
	uint32_t sum = 0;

	for (uint32_t i = 0; i < c->n_costs; i++)
		ends[c->costs[i].caller]++;
	for (uint32_t i = 0; i < n; i++) {
		const uint32_t count = ends[i];

		ends[i] = sum;
		sum += count;
	}
	for (uint32_t i = 0; i < c->n_costs; i++)
		order[ends[c->costs[i].caller]++] = i;
	for (uint32_t i = 0, first = 0; i < n; first = ends[i++])
		if (ends[i] - first > 1)
			qsort_r(order + first, ends[i] - first, sizeof(*order), by_callee, c);
}

static void put_number(const struct callgrind *c, const char *before, uint64_t number,
		       const char *behind)
{
	fputs_unlocked(before, c->out);
	format_number(number, c->out);
	fputs_unlocked(behind, c->out);
}

/* "(3) name" for the first time, then "(3)". */
static void put_name(struct callgrind *c, const char *key, uint32_t function)
{
	put_number(c, key, function + UINT64_C(1), c->named[function] ? ")" : ") ");
	if (!c->named[function])
		fputs_unlocked(c->table->functions[function].name, c->out);
	c->named[function] = true;
	putc_unlocked('\n', c->out);
}

/* Likewise: a file's own name could look like such a number. */
static struct error *put_file(struct callgrind *c, const char *key, uint32_t function)
{
	const char *file = c->table->functions[function].file;
	uint32_t id = 0;
	bool added;
	struct error *err = ids_get(c->files, (uintptr_t)file, 0, &id, &added);

	if (err)
		return err;
	put_number(c, key, id + UINT64_C(1), added ? ") " : ")");
	if (added)
		fputs_unlocked(file ? file : "???", c->out);
	putc_unlocked('\n', c->out);
	return NULL;
}

static struct error *put_cost(struct callgrind *c, const struct cost *cost)
{
	if (cost->callee != LOCATION_NONE) {
		struct error *err = put_file(c, "cfi=(", cost->callee);

		if (err)
			return err;
		put_name(c, "cfn=(", cost->callee);
		put_number(c, "calls=", cost->samples, " 0\n");
	}
	put_number(c, "", cost->line, " ");
	put_number(c, "", cost->weight, " ");
	put_number(c, "", cost->samples, "\n");
	return NULL;
}

static struct error *put_head(struct callgrind *c)
{
	const struct profile_cell *all = &c->job->profile->selected;
	const char *title, *unit;
	struct error *err = format_guest_title(c->job, &title);

	if (!err)
		err = format_unit(c->job, &unit);
	if (err)
		return err;
	fprintf(c->out,
		"# callgrind format\nversion: 1\ncreator: uniprof " UNIPROF_VERSION "\ncmd: %s\n"
		"positions: line\nevent: Weight : %s\nevent: Samples : samples\n"
		"events: Weight Samples\nsummary: %" PRIu64 " %" PRIu64 "\n",
		title, unit, all->weight_ns, all->samples);
	return NULL;
}

static struct error *put_functions(struct callgrind *c, const uint32_t *order, const uint32_t *ends)
{
	struct error *err = NULL;

	for (uint32_t function = 0, i = 0; function < c->table->n_functions && !err; function++) {
		if (i == ends[function])
			continue;
		putc_unlocked('\n', c->out);
		err = put_file(c, "fl=(", function);
		put_name(c, "fn=(", function);
		for (; i < ends[function] && !err; i++)
			err = put_cost(c, &c->costs[order[i]]);
	}
	return err;
}

static struct error *put_all(struct callgrind *c)
{
	uint32_t *order = malloc((c->n_costs + (size_t)1) * sizeof(*order));
	uint32_t *ends = calloc(c->table->n_functions + (size_t)1, sizeof(*ends));
	struct error *err = order && ends ? put_head(c) : error_no_memory();

	if (!err) {
		sort_costs(c, order, ends);
		err = put_functions(c, order, ends);
	}
	free(order);
	free(ends);
	return err;
}

static struct error *write_callgrind(const struct format_job *job, FILE *out)
{
	struct callgrind c = {.job = job, .path.stacks = job->profile->stacks, .out = out};
	struct error *err = location_table_new(job, &c.table);

	if (!err)
		err = ids_new(&c.files);
	if (!err) {
		c.named = calloc(c.table->n_functions + (size_t)1, sizeof(*c.named));
		c.own = array_zeros(c.table->n_places + (size_t)1, sizeof(*c.own));
		err = c.named && c.own ? add_stacks(&c) : error_no_memory();
	}
	if (!err)
		err = put_all(&c);
	location_table_free(c.table);
	ids_free(c.files);
	stack_path_free(&c.path);
	free(c.calls);
	free(c.costs);
	free(c.slots);
	free(c.own);
	free(c.named);
	return err;
}

const struct format format_callgrind = {.name = "callgrind",
					.ending = ".callgrind",
					.write = write_callgrind};
