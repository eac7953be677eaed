/* SPDX-License-Identifier: BSD-3-Clause */

/*
 * Callgrind's format, for callgrind_annotate and KCachegrind: what each
 * function used itself, by line, and what was used below its calls. How often
 * functions were called is not known: calls= is the number of samples. A
 * stack counts once for a call that it has several times, but a recursive
 * function's calls come on top of what it used itself, as this format knows
 * only pairs of functions.
 */

#include "format/tables.h"

#include <assert.h>
#include <inttypes.h>
#include <stdlib.h>

#include "base/array.h"
#include "base/intern.h"
#include "base/owned.h"

/*
 * A call in a line of its caller, or a leaf there: of several that are alike one stays. They stand
 * by caller, so that it need not be told.
 */
struct use {
	uint32_t callee; /* + 1; 0: none, the function's own */
	uint32_t line;
	union {
		uint32_t number; /* among those of cost_of, until that is made */
		uint32_t open;	 /* calls of the path that are this one: one alone counts */
	};
};

/* Cost of all uses that are alike. */
struct cost {
	uint64_t samples, weight;
};

/* The last call by a place to a function, of those that have this entry of the table. */
struct seen {
	uint32_t caller, callee;
	uint32_t node; /* STACK_ROOT: none yet */
};

#define N_SEEN 65536u /* a power of two; some hundred kilobytes, which caches hold */

/* Of cost_of, before it is made: another node has the same call. */
#define AS_NODE 0x80000000u

/* A function of the path, and what was used below its call since the path has it. */
struct call {
	uint32_t place; /* of the table */
	uint32_t cost;	/* of the call; the outermost function has none */
	uint32_t node;	/* its place in the path */
	struct cost below;
};

struct callgrind {
	const struct format_job *job;
	struct location_table *table;
	uint32_t n_nodes;
	struct seen *seen; /* [N_SEEN] */
	struct use *uses;
	size_t *ends;	    /* [functions]: of the uses by it */
	struct cost *costs; /* of the uses */
	/*
	 * Numbers of uses: [n_nodes] the call of a node's outermost function by its parent's
	 * innermost; [n_places] the call of an inlined function there, of innermost ones the leaf.
	 */
	uint32_t *cost_of;
	struct stack_path path;
	struct call *calls; /* of the path, outermost first, several where some were inlined */
	size_t n_calls, calls_room;
	bool *named;	   /* [functions]: its name has been written */
	struct ids *files; /* numbers of those whose name has been written */
	FILE *out;
};

static uint32_t *cost_of_place(const struct callgrind *c, uint32_t place)
{
	return &c->cost_of[(size_t)c->n_nodes + place];
}

/* Counts or adds a use of a place, by a call there to a function or, if that is LOCATION_NONE, as a leaf. */
static void add_use(struct callgrind *c, uint32_t place, uint32_t callee, uint32_t *cost)
{
	const struct location_place *at = &c->table->places[place];
	const size_t i = c->ends[at->function]++;

	if (c->uses)
		c->uses[i] = (struct use){.callee = callee + 1, /* none becomes 0 */
					  .line = at->line,
					  .number = (uint32_t)(cost - c->cost_of)};
}

/* Does so the first time that it comes. */
static void add_use_once(struct callgrind *c, uint32_t place, uint32_t callee)
{
	uint32_t *cost = cost_of_place(c, place);
	const uint32_t seen = c->uses ? 2 : 1;

	if (*cost == seen)
		return;
	*cost = seen;
	add_use(c, place, callee, cost);
}

/* Notes that another node has the call of this one, as most siblings have; not all are remembered. */
static void note_seen(struct callgrind *c, uint32_t node, uint32_t caller, uint32_t callee)
{
	const uint64_t both = (uint64_t)caller << 32 | callee;
	struct seen *seen = &c->seen[both * UINT64_C(0x9fb21c651e98df25) >> 32 & (N_SEEN - 1)];

	if (seen->node != STACK_ROOT && seen->caller == caller && seen->callee == callee)
		c->cost_of[node] = AS_NODE | seen->node;
	else
		*seen = (struct seen){caller, callee, node};
}

static void add_uses_of(struct callgrind *c, uint32_t node)
{
	const struct location_place *places = c->table->places;
	const struct location_answer *answer =
		location_answer(c->table, location_entry_of(c->table, node));
	const uint32_t inner = answer->places, outer = inner + answer->n - 1;
	const uint32_t parent = stacks_node(c->job->profile->stacks, node)->parent;

	if (parent != STACK_ROOT) {
		const uint32_t caller =
			location_answer(c->table, location_entry_of(c->table, parent))->places;

		if (!c->uses)
			note_seen(c, node, caller, places[outer].function);
		if (!c->cost_of[node])
			add_use(c, caller, places[outer].function, &c->cost_of[node]);
	}
	for (uint32_t place = outer; place > inner; place--)
		add_use_once(c, place, places[place - 1].function);
	if (profile_cell(&c->job->profile->cells, node)->samples)
		add_use_once(c, inner, LOCATION_NONE);
}

static void add_uses(struct callgrind *c)
{
	for (uint32_t node = STACK_ROOT + 1; node < c->n_nodes; node++)
		if (c->table->used[node])
			add_uses_of(c, node);
}

/* Counts how many uses each function has, and then gives each its place: there are few functions for many uses. */
static struct error *list_uses(struct callgrind *c)
{
	const size_t n = (size_t)c->n_nodes + c->table->n_places;
	size_t sum = 0;

	assert(n < AS_NODE);
	c->cost_of = array_zeros(n, sizeof(*c->cost_of));
	c->ends = calloc(c->table->n_functions + (size_t)1, sizeof(*c->ends));
	c->named = calloc(c->table->n_functions + (size_t)1, sizeof(*c->named));
	c->seen = calloc(N_SEEN, sizeof(*c->seen));
	if (!c->cost_of || !c->ends || !c->named || !c->seen)
		return error_no_memory();
	add_uses(c);
	for (uint32_t i = 0; i < c->table->n_functions; i++) {
		const size_t count = c->ends[i];

		c->ends[i] = sum;
		sum += count;
	}
	c->uses = array_resize(NULL, sum + 1, sizeof(*c->uses));
	if (!c->uses)
		return error_no_memory();
	add_uses(c);
	return NULL;
}

/* Of one caller: its own first, for lines behind a calls= line belong to the call. */
static int by_callee(const void *left, const void *right)
{
	const struct use *a = left, *b = right;

	return COMPARE(a->callee, b->callee) ?: COMPARE(a->line, b->line);
}

/* Leaves one of all uses that are alike, and tells the others its number. Returns how many are left. */
static size_t join_uses(struct callgrind *c)
{
	size_t left = 0;

	for (size_t function = 0, i = 0; function < c->table->n_functions; function++) {
		const size_t first = left, end = c->ends[function];

		if (i < end)
			qsort(c->uses + i, end - i, sizeof(*c->uses), by_callee);
		for (; i < end; i++) {
			const struct use use = c->uses[i];

			if (left == first || by_callee(&use, &c->uses[left - 1]))
				c->uses[left++] = use;
			c->uses[left - 1].open = 0;
			c->cost_of[use.number] = (uint32_t)left - 1;
		}
		c->ends[function] = left;
	}
	return left;
}

static struct error *make_costs(struct callgrind *c)
{
	struct use *fewer;
	size_t n;

	TRY(list_uses(c));
	n = join_uses(c);
	fewer = array_resize(c->uses, n + 1, sizeof(*c->uses));
	if (fewer)
		c->uses = fewer;
	for (uint32_t node = 0; node < c->n_nodes; node++)
		if (c->cost_of[node] & AS_NODE)
			c->cost_of[node] = c->cost_of[c->cost_of[node] & ~AS_NODE];
	c->costs = array_zeros(n + 1, sizeof(*c->costs));
	return c->costs ? NULL : error_no_memory();
}

static void add(struct cost *to, uint64_t samples, uint64_t weight)
{
	to->samples += samples;
	to->weight = weight_sum(to->weight, weight);
}

/* Counts the calls that the path no longer has, innermost first, each for its caller, too. */
static void close_calls(struct callgrind *c)
{
	while (c->n_calls && c->calls[c->n_calls - 1].node >= c->path.n) {
		const struct call *call = &c->calls[--c->n_calls];

		if (!c->n_calls)
			return;
		if (!--c->uses[call->cost].open)
			add(&c->costs[call->cost], call->below.samples, call->below.weight);
		add(&c->calls[c->n_calls - 1].below, call->below.samples, call->below.weight);
	}
}

/* Adds a function to the path, which the innermost one calls. */
static struct error *open_call(struct callgrind *c, uint32_t place, uint32_t cost)
{
	TRY(ARRAY_RESERVE(&c->calls, &c->calls_room, c->n_calls + 1));
	if (c->n_calls)
		c->uses[cost].open++;
	c->calls[c->n_calls++] =
		(struct call){.place = place, .cost = cost, .node = (uint32_t)c->path.n - 1};
	return NULL;
}

/* Adds all functions of a fresh node to the path, outermost first. */
static struct error *open_calls(struct callgrind *c)
{
	const uint32_t node = c->path.fresh[c->path.n_fresh - 1];
	const struct location_answer *answer =
		location_answer(c->table, location_entry_of(c->table, node));
	uint32_t place = answer->places + answer->n - 1;

	TRY(stack_path_add(&c->path));
	TRY(open_call(c, place, c->cost_of[node]));
	for (; place > answer->places; place--)
		TRY(open_call(c, place - 1, *cost_of_place(c, place)));
	return NULL;
}

static struct error *add_stack(struct callgrind *c, uint32_t stack)
{
	const struct profile_cell *cell = profile_cell(&c->job->profile->cells, stack);
	struct call *leaf;

	TRY(stack_path_follow(&c->path, stack));
	close_calls(c);
	while (c->path.n_fresh)
		TRY(open_calls(c));
	if (!c->n_calls)
		return NULL;
	leaf = &c->calls[c->n_calls - 1];
	add(&leaf->below, cell->samples, cell->weight_ns);
	add(&c->costs[*cost_of_place(c, leaf->place)], cell->samples, cell->weight_ns);
	return NULL;
}

/* So many nodes ahead memory is asked for: most costs are in no cache. */
#define AHEAD 24u

/* The last path's calls are counted by a path of none. */
static struct error *add_stacks(struct callgrind *c)
{
	const struct profile *profile = c->job->profile;

	for (uint32_t stack = STACK_ROOT + 1; stack < c->n_nodes; stack++) {
		if (stack + AHEAD < c->n_nodes) {
			__builtin_prefetch(&c->costs[c->cost_of[stack + AHEAD]], 1);
			__builtin_prefetch(&c->uses[c->cost_of[stack + AHEAD]].open, 1);
		}
		if (profile_cell(&profile->cells, stack)->samples)
			TRY(add_stack(c, stack));
	}
	c->path.n = 0;
	close_calls(c);
	return NULL;
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

	TRY(ids_get(c->files, (uintptr_t)file, 0, &id, &added));
	put_number(c, key, id + UINT64_C(1), added ? ") " : ")");
	if (added)
		fputs_unlocked(file ? file : "???", c->out);
	putc_unlocked('\n', c->out);
	return NULL;
}

static struct error *put_cost(struct callgrind *c, const struct use *use, const struct cost *cost)
{
	if (use->callee) {
		TRY(put_file(c, "cfi=(", use->callee - 1));
		put_name(c, "cfn=(", use->callee - 1);
		put_number(c, "calls=", cost->samples, " 0\n");
	}
	put_number(c, "", use->line, " ");
	put_number(c, "", cost->weight, " ");
	put_number(c, "", cost->samples, "\n");
	return NULL;
}

static struct error *put_head(struct callgrind *c)
{
	const struct profile_cell *all = &c->job->profile->selected;
	const char *title, *unit;

	TRY(format_guest_title(c->job, &title));
	TRY(format_unit(c->job, &unit));
	fprintf(c->out,
		"# callgrind format\nversion: 1\ncreator: uniprof " UNIPROF_VERSION "\ncmd: %s\n"
		"positions: line\nevent: Weight : %s\nevent: Samples : samples\n"
		"events: Weight Samples\nsummary: %" PRIu64 " %" PRIu64 "\n",
		title, unit, all->weight_ns, all->samples);
	return NULL;
}

static struct error *put_functions(struct callgrind *c)
{
	for (uint32_t function = 0, i = 0; function < c->table->n_functions; function++) {
		if (i == c->ends[function])
			continue;
		putc_unlocked('\n', c->out);
		TRY(put_file(c, "fl=(", function));
		put_name(c, "fn=(", function);
		for (; i < c->ends[function]; i++)
			TRY(put_cost(c, &c->uses[i], &c->costs[i]));
	}
	return NULL;
}

static void callgrind_free(struct callgrind *c)
{
	location_table_free(c->table);
	ids_free(c->files);
	stack_path_free(&c->path);
	free(c->uses);
	free(c->ends);
	free(c->seen);
	free(c->costs);
	free(c->cost_of);
	free(c->calls);
	free(c->named);
}

static struct error *write_callgrind(const struct format_job *job, FILE *out)
{
	ENDED_BY(callgrind_free)
	struct callgrind c = {.job = job,
			      .path.stacks = job->profile->stacks,
			      .n_nodes = stacks_count(job->profile->stacks),
			      .out = out};

	TRY(location_table_new(job, &c.table));
	TRY(ids_new(&c.files));
	TRY(make_costs(&c));
	TRY(add_stacks(&c));
	TRY(put_head(&c));
	return put_functions(&c);
}

const struct format format_callgrind = {.name = "callgrind",
					.ending = ".callgrind",
					.counts = true,
					.write = write_callgrind};
