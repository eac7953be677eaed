/* SPDX-License-Identifier: BSD-3-Clause */

/*
 * The text that `perf script` prints, which many tools read: for each sample
 * a line with thread, vCPU, time and weight, its frames, leaf first, and an
 * empty line. Where threads of the guest are not known, the guest is a process,
 * and a vCPU a thread of it.
 */

#include "format/format.h"

#include <ctype.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "format/tables.h"

struct perf_script {
	const struct format_job *job;
	struct location_table *table;
	struct location_chain chain;
	struct format_lines lines; /* by their numbers in the table */
	char *comm, *event;
	char **comms; /* of threads, by their numbers; NULL: not met yet */
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

/* Writes a file's name, without characters that would end it. */
static void put_file(const char *path, FILE *out)
{
	for (; *path; path++)
		putc(*path == ' ' || *path == '(' || *path == ')' ? '_' : *path, out);
}

static struct error *format_line(void *ctx, uint32_t number, FILE *out)
{
	const struct perf_script *s = ctx;
	const struct location_line *line = &s->table->lines[number];
	const struct location_entry *entry = &s->table->at[line->entry];
	const struct location_function *function = &s->table->functions[line->function];
	bool outer = number + 1 == entry->lines + entry->n_lines;

	fprintf(out, "\t%16" PRIx64 " %s", entry->code,
		function->resolved ? function->name : "[unknown]");
	/* Readers strip a suffix that looks like an offset: a real one protects the name. */
	if (function->resolved && (outer || strchr(function->name, '+')))
		fprintf(out, "+0x%" PRIx64, outer ? entry->offset : 0);
	fputs(" (", out);
	if (!outer)
		fputs("inlined", out);
	else if (entry->image != LOCATION_NONE)
		put_file(s->table->images[entry->image].path, out);
	else
		fputs("[unknown]", out);
	fputs(")\n", out);
	return NULL;
}

static struct error *comm_of(struct perf_script *s, const struct sample *sample, const char **out)
{
	const struct recorded_thread *thread = sample_thread(s->job, sample->thread);
	const char *name;
	struct error *err;

	*out = s->comm;
	if (!thread)
		return NULL;
	if (!s->comms[sample->thread]) {
		err = symbolizer_intern(s->job->symbolizer, *thread->name ? thread->name : "?",
					&name);
		if (err)
			return err;
		s->comms[sample->thread] = word(name);
	}
	*out = s->comms[sample->thread];
	return *out ? NULL : error_no_memory();
}

static struct error *put_sample(void *ctx, const struct sample *sample)
{
	struct perf_script *s = ctx;
	const struct recorded_thread *thread = sample_thread(s->job, sample->thread);
	const struct sample_ids ids = sample_ids(thread, s->pid, sample->vcpu);
	const uint64_t us = sample->time_ns / 1000;
	const char *comm;
	struct error *err = comm_of(s, sample, &comm);

	if (!err)
		err = location_table_chain(s->table, sample->stack, &s->chain);
	if (err)
		return err;
	fprintf(s->out,
		"%s %" PRIu32 "/%" PRIu32 " [%03u] %" PRIu64 ".%06" PRIu64 ": %" PRIu64 " %s: \n",
		comm, ids.pid, ids.tid, sample->vcpu, us / 1000000, us % 1000000,
		sample->weight_ns * sample->times, s->event);
	for (size_t i = 0; i < s->chain.n && !err; i++)
		err = format_lines_put(&s->lines, s->chain.at[i], format_line, s, s->out);
	putc('\n', s->out);
	return err;
}

static struct error *prepare(struct perf_script *s)
{
	const char *name, *unit;
	struct error *err = format_guest_name(s->job, &name);

	if (!err)
		err = format_unit(s->job, &unit);
	if (err)
		return err;
	s->comm = word(name);
	s->event = word(format_unit_is_time(s->job) ? "cpu-clock" : unit);
	s->pid = format_guest_pid(s->job);
	s->comms = calloc(s->job->profile->n_threads + 1, sizeof(*s->comms));
	return s->comm && s->event && s->comms ? location_table_new(s->job, &s->table)
					       : error_no_memory();
}

static struct error *write_perf_script(const struct format_job *job, FILE *out)
{
	struct perf_script s = {.job = job, .out = out};
	struct error *err = prepare(&s);

	if (!err)
		err = samples_read(job, put_sample, &s);
	location_table_free(s.table);
	format_lines_free(&s.lines);
	free(s.chain.at);
	for (size_t i = 0; s.comms && i <= job->profile->n_threads; i++)
		free(s.comms[i]);
	free(s.comms);
	free(s.comm);
	free(s.event);
	return err;
}

const struct format format_perf_script = {.name = "perf-script",
					  .ending = ".perf",
					  .write = write_perf_script};
