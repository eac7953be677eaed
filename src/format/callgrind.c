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
	struct profile_cell cell;
	uint32_t seen; /* the stack that it was last counted for */
};

struct callgrind {
	const struct format_job *job;
	struct location_table *table;
	struct location_chain chain;
	struct ids *call_ids; /* numbers of costs */
	struct cost *costs;
	size_t room;
	bool *named;	   /* [functions]: its name has been written */
	struct ids *files; /* numbers of those whose name has been written */
	FILE *out;
};

static struct error *find(struct callgrind *c, uint32_t caller, uint32_t callee, uint32_t line,
			  struct cost **cost)
{
	uint32_t id;
	bool added;
	struct error *err =
		ids_get(c->call_ids, (uint64_t)caller << 32 | line, callee, &id, &added);

	if (!err)
		err = ARRAY_RESERVE(&c->costs, &c->room, id + (size_t)1);
	if (err)
		return err;
	*cost = &c->costs[id];
	if (added)
		**cost = (struct cost){.caller = caller, .callee = callee, .line = line};
	return NULL;
}

static struct error *add(struct callgrind *c, uint32_t stack, uint32_t caller, uint32_t callee,
			 uint32_t line)
{
	const struct profile_cell *cell = profile_cell(&c->job->profile->cells, stack);
	struct cost *cost = NULL;
	struct error *err = find(c, caller, callee, line, &cost);

	if (err || cost->seen == stack)
		return err;
	cost->seen = stack;
	profile_cell_add(&cost->cell, cell);
	return NULL;
}

static struct error *add_stack(struct callgrind *c, uint32_t stack)
{
	struct error *err = location_table_chain(c->table, stack, &c->chain);
	uint32_t callee = LOCATION_NONE;

	for (size_t i = 0; i < c->chain.n && !err; i++) {
		const struct location_line *line = &c->table->lines[c->chain.at[i]];

		err = add(c, stack, line->function, callee, line->line);
		callee = line->function;
	}
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
		fprintf(c->out, "calls=%" PRIu64 " 0\n", cost->cell.samples);
	}
	fprintf(c->out, "%" PRIu32 " %" PRIu64 " %" PRIu64 "\n", cost->line, cost->cell.weight_ns,
		cost->cell.samples);
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
	struct callgrind c = {.job = job, .out = out};
	struct error *err = location_table_new(job, &c.table);
	uint32_t n = stacks_count(job->profile->stacks);

	if (!err)
		err = ids_new(&c.call_ids);
	if (!err)
		err = ids_new(&c.files);
	if (!err) {
		c.named = calloc(c.table->n_functions + 1, sizeof(*c.named));
		err = c.named ? NULL : error_no_memory();
	}
	for (uint32_t stack = 1; stack < n && !err; stack++)
		if (profile_cell(&job->profile->cells, stack)->samples)
			err = add_stack(&c, stack);
	if (!err)
		err = put_all(&c);
	location_table_free(c.table);
	ids_free(c.call_ids);
	ids_free(c.files);
	free(c.chain.at);
	free(c.costs);
	free(c.named);
	return err;
}

const struct format format_callgrind = {.name = "callgrind",
					.ending = ".callgrind",
					.write = write_callgrind};
