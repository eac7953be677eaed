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
	uint32_t function, line;
	uint32_t cost; /* of the call; LOCATION_NONE: the outermost function has none */
	uint32_t node; /* its place in the path */
	uint64_t samples, weight;
};

struct callgrind {
	const struct format_job *job;
	struct location_table *table;
	struct stack_path path;
	struct call *calls; /* of the path, outermost first, several where some were inlined */
	size_t n_calls, calls_room;
	struct ids *call_ids; /* numbers of costs */
	struct cost *costs;
	size_t room;
	bool *named;	   /* [functions]: its name has been written */
	struct ids *files; /* numbers of those whose name has been written */
	FILE *out;
};

static struct error *find(struct callgrind *c, uint32_t caller, uint32_t callee, uint32_t line,
			  uint32_t *cost)
{
	bool added;
	struct error *err =
		ids_get(c->call_ids, (uint64_t)caller << 32 | line, callee, cost, &added);

	if (!err)
		err = ARRAY_RESERVE(&c->costs, &c->room, *cost + (size_t)1);
	if (!err && added)
		c->costs[*cost] = (struct cost){.caller = caller, .callee = callee, .line = line};
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

/* Adds a function to the path, which the innermost one calls. */
static struct error *open_call(struct callgrind *c, const struct location_place *place)
{
	struct call call = {.function = place->function,
			    .line = place->line,
			    .cost = LOCATION_NONE,
			    .node = (uint32_t)c->path.n - 1};
	struct error *err = ARRAY_RESERVE(&c->calls, &c->calls_room, c->n_calls + 1);

	if (!err && c->n_calls) {
		const struct call *caller = &c->calls[c->n_calls - 1];

		err = find(c, caller->function, call.function, caller->line, &call.cost);
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
			err = open_call(c, &c->table->places[answer->places + k - 1]);
	}
	if (err || !c->n_calls)
		return err;
	leaf = &c->calls[c->n_calls - 1];
	add(&leaf->samples, &leaf->weight, cell->samples, cell->weight_ns);
	err = find(c, leaf->function, LOCATION_NONE, leaf->line, &own);
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

	for (uint32_t stack = 1; stack < n && !err; stack++)
		if (profile_cell(&profile->cells, stack)->samples)
			err = add_stack(c, stack);
	c->path.n = 0;
	if (!err)
		close_calls(c);
	return err;
}

static int by_caller(const void *left, const void *right)
{
	const struct cost *a = left, *b = right;

	if (a->caller != b->caller)
		return a->caller < b->caller ? -1 : 1;
	/* Its own costs first; those behind a calls= line belong to the call. */
	if (a->callee != b->callee)
		return a->callee == LOCATION_NONE   ? -1
		       : b->callee == LOCATION_NONE ? 1
		       : a->callee < b->callee	    ? -1
						    : 1;
	return (a->line > b->line) - (a->line < b->line);
}

/* "(3) name" for the first time, then "(3)". */
static void put_name(struct callgrind *c, const char *key, uint32_t function)
{
	fprintf(c->out, "%s=(%" PRIu32 ")", key, function + 1);
	if (!c->named[function])
		fprintf(c->out, " %s", c->table->functions[function].name);
	c->named[function] = true;
	putc('\n', c->out);
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
	fprintf(c->out, "%s=(%" PRIu32 ")", key, id + 1);
	if (added)
		fprintf(c->out, " %s", file ? file : "???");
	putc('\n', c->out);
	return NULL;
}

static struct error *put_cost(struct callgrind *c, const struct cost *cost)
{
	if (cost->callee != LOCATION_NONE) {
		struct error *err = put_file(c, "cfi", cost->callee);

		if (err)
			return err;
		put_name(c, "cfn", cost->callee);
		fprintf(c->out, "calls=%" PRIu64 " 0\n", cost->samples);
	}
	fprintf(c->out, "%" PRIu32 " %" PRIu64 " %" PRIu64 "\n", cost->line, cost->weight,
		cost->samples);
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

static struct error *put_all(struct callgrind *c)
{
	uint32_t n = ids_count(c->call_ids), last = LOCATION_NONE;
	struct error *err = put_head(c);

	if (err)
		return err;
	if (n)
		qsort(c->costs, n, sizeof(*c->costs), by_caller);
	for (uint32_t i = 0; i < n && !err; i++) {
		if (c->costs[i].caller != last) {
			putc('\n', c->out);
			err = put_file(c, "fl", c->costs[i].caller);
			put_name(c, "fn", c->costs[i].caller);
		}
		last = c->costs[i].caller;
		if (!err)
			err = put_cost(c, &c->costs[i]);
	}
	return err;
}

static struct error *write_callgrind(const struct format_job *job, FILE *out)
{
	struct callgrind c = {.job = job, .path.stacks = job->profile->stacks, .out = out};
	struct error *err = location_table_new(job, &c.table);

	if (!err)
		err = ids_new(&c.call_ids);
	if (!err)
		err = ids_new(&c.files);
	if (!err) {
		c.named = calloc(c.table->n_functions + 1, sizeof(*c.named));
		err = c.named ? NULL : error_no_memory();
	}
	if (!err)
		err = add_stacks(&c);
	if (!err)
		err = put_all(&c);
	location_table_free(c.table);
	ids_free(c.call_ids);
	ids_free(c.files);
	stack_path_free(&c.path);
	free(c.calls);
	free(c.costs);
	free(c.named);
	return err;
}

const struct format format_callgrind = {.name = "callgrind",
					.ending = ".callgrind",
					.write = write_callgrind};
