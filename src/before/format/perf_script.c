/* SPDX-License-Identifier: BSD-3-Clause */

/*
 * The text that `perf script` prints, which many tools read: for each sample
 * a line with guest, vCPU, time and weight, its frames, leaf first, and an
 * empty line. A guest is a process, a vCPU a thread of it.
 */

#include "output/output.h"

#include <ctype.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "output/guest_text.h"
#include "format/location_table.h"
#include "format/samples.h"

struct perf_script {
	const struct output_job *job;
	struct places *places;
	struct place_chain chain;
	char *comm, *event;
	uint32_t pid;
	FILE *out;
};

/* Readers take blanks for ends of fields, and parentheses for a file's. */
static char *word(const char *text)
{
	char *copy = strdup(text);

	for (char *at = copy; at && *at; at++)
		if (isspace((unsigned char)*at) || strchr("()[]:", *at))
			*at = '_';
	return copy;
}

/* A file's name, without what would end it. */
static void put_file(const char *path, FILE *out)
{
	for (; *path; path++)
		putc(*path == ' ' || *path == '(' || *path == ')' ? '_' : *path, out);
}

static void put_line(const struct perf_script *s, uint32_t number)
{
	const struct place_line *line = &s->places->lines[number];
	const struct place *place = &s->places->at[line->place];
	const struct place_function *function = &s->places->functions[line->function];
	bool outer = number + 1 == place->lines + place->n_lines;

	fprintf(s->out, "\t%16" PRIx64 " %s", place->code,
		function->resolved ? function->name : "[unknown]");
	/* Readers take away what looks like an offset: it must not be a part of the name. */
	if (function->resolved && (outer || strchr(function->name, '+')))
		fprintf(s->out, "+0x%" PRIx64, outer ? place->offset : 0);
	fputs(" (", s->out);
	if (!outer)
		fputs("inlined", s->out);
	else if (place->image != PLACE_NONE)
		put_file(s->places->images[place->image].path, s->out);
	else
		fputs("[unknown]", s->out);
	fputs(")\n", s->out);
}

static struct error *put_sample(void *ctx, const struct sample *sample)
{
	struct perf_script *s = ctx;
	struct error *err = places_chain(s->places, sample->stack, &s->chain);
	uint64_t us = sample->time_ns / 1000;

	fprintf(s->out,
		"%s %" PRIu32 "/%" PRIu32 " [%03u] %" PRIu64 ".%06" PRIu64 ": %" PRIu64 " %s: \n",
		s->comm, s->pid, s->pid + sample->vcpu, sample->vcpu, us / 1000000, us % 1000000,
		sample->weight_ns * sample->times, s->event);
	for (size_t i = 0; i < s->chain.n && !err; i++)
		put_line(s, s->chain.at[i]);
	putc('\n', s->out);
	return err;
}

static struct error *prepare(struct perf_script *s)
{
	const char *name, *unit;
	struct error *err = guest_name(s->job, &name);

	if (!err)
		err = guest_unit(s->job, &unit);
	if (err)
		return err;
	s->comm = word(name);
	s->event = word(guest_unit_is_time(s->job) ? "cpu-clock" : unit);
	s->pid = guest_pid(s->job);
	return s->comm && s->event ? places_new(s->job, &s->places) : error_no_memory();
}

static struct error *write_perf_script(const struct output_job *job, FILE *out)
{
	struct perf_script s = {.job = job, .out = out};
	struct error *err = prepare(&s);

	if (!err)
		err = samples_read(job, put_sample, &s);
	places_free(s.places);
	free(s.chain.at);
	free(s.comm);
	free(s.event);
	return err;
}

const struct output_format output_perf_script = {.name = "perf-script",
						 .ending = ".perf",
						 .write = write_perf_script};
