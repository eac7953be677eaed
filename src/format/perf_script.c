/* SPDX-License-Identifier: BSD-3-Clause */

/*
 * The text that `perf script` prints, which many tools read: for each sample
 * a line with thread, vCPU, time and weight, its frames, leaf first, and an
 * empty line. Where threads of the guest are not known, the guest is a process,
 * and a vCPU a thread of it.
 */

#include "format/tables.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

struct perf_script {
	const struct format_job *job;
	struct location_table *table;
	struct format_lines lines; /* of all functions of an entry of the table */
	struct frame_texts texts;  /* of frames */
	char *comm, *event;
	char **comms; /* of threads, by their numbers; NULL: not met yet */
	uint32_t pid;
	struct bytes head; /* of a sample */
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

static void put_text(struct bytes *line, const char *text)
{
	put_bytes(line, text, strlen(text));
}

/* Bytes of an address, with blanks before it. */
#define ADDRESS 16

static void put_hex(struct bytes *line, uint64_t value, size_t width)
{
	uint8_t digits[ADDRESS];
	size_t at = sizeof(digits);

	do
		digits[--at] = (uint8_t) "0123456789abcdef"[value & 15];
	while (value >>= 4);
	while (sizeof(digits) - at < width)
		digits[--at] = ' ';
	put_bytes(line, digits + at, sizeof(digits) - at);
}

/* With zeros before it, if it has fewer digits than `width`. */
static void put_padded(struct bytes *line, uint64_t value, unsigned width)
{
	for (uint64_t power = 10; --width; power *= 10)
		if (value < power)
			put_text(line, "0");
	put_decimal(line, value);
}

/* A file's name, without characters that would end it. */
static void put_file(struct bytes *line, const char *path)
{
	for (; *path; path++)
		line->data[line->len++] =
			(uint8_t)(*path == ' ' || *path == '(' || *path == ')' ? '_' : *path);
}

/* Where the function is, and numbers. */
#define LINE_ROOM 80

/* Function k of an entry, a line each. */
static struct error *format_line(const struct perf_script *s, uint32_t number, uint32_t k,
				 struct bytes *line)
{
	const struct location_entry *entry = &s->table->at[number];
	const struct location_function *function =
		&s->table->functions[location_place(s->table, number, k)->function];
	const bool outer = k + 1 == location_answer(s->table, number)->n;
	const char *file = outer && entry->image != LOCATION_NONE
				   ? s->table->images[entry->image].path
			   : outer ? "[unknown]"
				   : "inlined";

	TRY(bytes_reserve(line, LINE_ROOM + strlen(function->name) + strlen(file)));
	put_text(line, "\t");
	put_hex(line, location_code(s->table, number), ADDRESS);
	put_text(line, " ");
	put_text(line, function->resolved ? function->name : "[unknown]");
	/* Readers strip a suffix that looks like an offset: a real one protects the name. */
	if (function->resolved && (outer || strchr(function->name, '+'))) {
		put_text(line, "+0x");
		put_hex(line, outer ? location_from_start(s->table, number) : 0, 0);
	}
	put_text(line, " (");
	put_file(line, file);
	put_text(line, ")\n");
	return NULL;
}

static struct error *format_entry(void *ctx, uint32_t frame, struct bytes *line)
{
	const struct perf_script *s = ctx;
	const uint32_t number = s->table->of_frame[frame];
	const uint32_t n = location_answer(s->table, number)->n;

	for (uint32_t k = 0; k < n; k++)
		TRY(format_line(s, number, k, line));
	return NULL;
}

static struct error *give_frame(void *ctx, uint32_t node, struct bytes *scratch,
				struct format_text *out)
{
	struct perf_script *s = ctx;

	return format_lines_get(&s->lines, s->table->frames->of_node[node], scratch, out);
}

/* As format_lines_ahead, for what is known of a frame by its number in the symbolizer. */
static void location_ahead(const struct location_table *table, uint32_t frame, unsigned step)
{
	const struct location_answer *answer;

	if (step == 0) {
		symbolizer_answer_ahead(table->symbolizer, frame);
		__builtin_prefetch(&table->of_frame[frame]);
		return;
	}
	answer = &table->answers[symbolizer_answer(table->symbolizer, frame)];
	if (step == 1) {
		__builtin_prefetch(&table->frames->node[frame]);
		__builtin_prefetch(&table->at[table->of_frame[frame]]);
		__builtin_prefetch(answer);
	} else if (step == 2) {
		__builtin_prefetch(stacks_node(table->profile->stacks, table->frames->node[frame]));
		__builtin_prefetch(&table->places[answer->places]);
	} else if (step == 3) {
		__builtin_prefetch(&table->functions[table->places[answer->places].function]);
	}
}

static void fetch_ahead(void *ctx, uint32_t node, unsigned step)
{
	const struct perf_script *s = ctx;
	const uint32_t *frame = &s->table->frames->of_node[node];

	if (step == 0)
		__builtin_prefetch(frame);
	else if (!format_lines_ahead(&s->lines, *frame, step - 1) && step > 1)
		location_ahead(s->table, *frame, step - 2);
}

static struct error *comm_of(struct perf_script *s, const struct sample *sample, const char **out)
{
	const struct recorded_thread *thread = sample_thread(s->job, sample->thread);
	const char *name;

	*out = s->comm;
	if (!thread)
		return NULL;
	if (!s->comms[sample->thread]) {
		TRY(symbolizer_intern(s->job->symbolizer, *thread->name ? thread->name : "?",
				      &name));
		s->comms[sample->thread] = word(name);
	}
	*out = s->comms[sample->thread];
	return *out ? NULL : error_no_memory();
}

/* Bytes of six numbers and what stands between them. */
#define HEAD_ROOM (6 * DECIMAL_MAX + 32)

/* "web 7/1 [000] 12.000345: 1000000 cpu-clock: " */
static struct error *put_head(struct perf_script *s, const struct sample *sample, const char *comm)
{
	const struct sample_ids ids =
		sample_ids(sample_thread(s->job, sample->thread), s->pid, sample->vcpu);
	const uint64_t us = sample->time_ns / 1000;
	struct bytes *head = &s->head;

	TRY(bytes_reserve(head, HEAD_ROOM + strlen(comm) + strlen(s->event)));
	put_text(head, comm);
	put_text(head, " ");
	put_decimal(head, ids.pid);
	put_text(head, "/");
	put_decimal(head, ids.tid);
	put_text(head, " [");
	put_padded(head, sample->vcpu, 3);
	put_text(head, "] ");
	put_decimal(head, us / 1000000);
	put_text(head, ".");
	put_padded(head, us % 1000000, 6);
	put_text(head, ": ");
	put_decimal(head, sample->weight_ns * sample->times);
	put_text(head, " ");
	put_text(head, s->event);
	put_text(head, ": \n");
	fwrite_unlocked(head->data, 1, head->len, s->out);
	head->len = 0;
	return NULL;
}

static struct error *put_sample(void *ctx, const struct sample *sample, struct sample_batch *batch)
{
	struct perf_script *s = ctx;
	const char *comm;
	struct error *err = comm_of(s, sample, &comm);

	if (!err)
		err = put_head(s, sample, comm);
	if (!err)
		err = sample_text_put(batch, s->out);
	putc_unlocked('\n', s->out);
	return err;
}

static struct error *prepare(struct perf_script *s)
{
	const char *name, *unit;

	TRY(format_guest_name(s->job, &name));
	TRY(format_unit(s->job, &unit));
	s->comm = word(name);
	s->event = word(format_unit_is_time(s->job) ? "cpu-clock" : unit);
	s->pid = format_guest_pid(s->job);
	s->comms = calloc(s->job->profile->n_threads + 1, sizeof(*s->comms));
	return s->comm && s->event && s->comms ? location_table_new(s->job, &s->table)
					       : error_no_memory();
}

static struct error *write_perf_script(const struct format_job *job, FILE *out)
{
	struct perf_script s = {.job = job,
				.lines = {.format = format_entry, .ctx = &s},
				.texts = {.stacks = job->profile->stacks,
					  .give = give_frame,
					  .ahead = fetch_ahead,
					  .ctx = &s},
				.out = out};
	struct error *err = prepare(&s);

	if (!err)
		err = samples_read_texts(job, &s.texts, put_sample, &s);
	location_table_free(s.table);
	format_lines_free(&s.lines);
	bytes_free(&s.head);
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
