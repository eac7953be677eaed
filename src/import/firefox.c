/* SPDX-License-Identifier: BSD-3-Clause */

/*
 * The processed format of the Firefox Profiler, of any version whose threads
 * have stack, frame and function tables: their own, or since version 56 or so
 * those of all threads ("shared"). Tables are columns, kept until the file
 * ends. Each thread is a vCPU, and a thread. In exports of uniprof it is one of
 * the two: a vCPU by its name, or a thread whose samples tell their vCPUs.
 */

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/owned.h"
#include "import/importer.h"

/* The columns that are needed; their numbers are rows of other tables. */
struct firefox_tables {
	struct import_column stack_frame, stack_prefix;
	struct import_column frame_function, frame_line;
	struct import_column function_name, function_resource, function_source, function_file;
	struct import_column resource_lib;
	struct import_column source_file;
	const char **texts;
	size_t n_texts, texts_room;
};

struct firefox_thread {
	struct firefox_tables tables;
	struct import_column stack, time, time_delta, weight;
	struct import_vcpus vcpus;
	const char *name, *process, *weight_type;
	uint32_t pid, tid;
};

struct firefox {
	struct import *import;
	struct firefox_tables shared;
	struct firefox_thread *threads;
	size_t n_threads, threads_room;
	uint32_t *libs; /* numbers as of import_image; 0: no path */
	size_t n_libs, libs_room;
	struct firefox_tables *tables; /* that are being read */
	struct import_image lib;
	double start_ms, interval_ms;
	const char *imported_from, *product;
	uint64_t others; /* samples of another unit, or with a negative weight */
};

#define COLUMN(table, key, column)                                  \
	{                                                           \
		table, key, offsetof(struct firefox_tables, column) \
	}

static const struct {
	const char *table, *key;
	size_t offset;
} columns[] = {
	COLUMN("stackTable", "frame", stack_frame),
	COLUMN("stackTable", "prefix", stack_prefix),
	COLUMN("frameTable", "func", frame_function),
	COLUMN("frameTable", "line", frame_line),
	COLUMN("funcTable", "name", function_name),
	COLUMN("funcTable", "resource", function_resource),
	COLUMN("funcTable", "source", function_source),
	COLUMN("funcTable", "fileName", function_file),
	COLUMN("resourceTable", "lib", resource_lib),
	COLUMN("sources", "filename", source_file),
};

#define N_COLUMNS (sizeof(columns) / sizeof(columns[0]))

static struct import_column *column_at(struct firefox_tables *tables, size_t i)
{
	return (struct import_column *)((char *)tables + columns[i].offset);
}

static void tables_free(struct firefox_tables *tables)
{
	for (size_t i = 0; i < N_COLUMNS; i++)
		free(column_at(tables, i)->at);
	free(tables->texts);
}

static void firefox_free(struct firefox *f)
{
	tables_free(&f->shared);
	for (size_t i = 0; i < f->n_threads; i++) {
		tables_free(&f->threads[i].tables);
		free(f->threads[i].stack.at);
		free(f->threads[i].time.at);
		free(f->threads[i].time_delta.at);
		free(f->threads[i].weight.at);
		free(f->threads[i].vcpus.runs.at);
	}
	free(f->threads);
	free(f->libs);
}

static bool has_head(const uint8_t *head, size_t len)
{
	static const char *const keys[] = {"\"meta\"", "\"libs\"", "\"threads\""};
	size_t at = import_after_blanks(head, len, 0);

	if (at == len || head[at] != '{')
		return false;
	at = import_after_blanks(head, len, at + 1);
	for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]); i++)
		if (len - at > strlen(keys[i]) && !memcmp(head + at, keys[i], strlen(keys[i])))
			return true;
	return false;
}

struct firefox_table {
	struct firefox *f;
	const char *name;
};

static void read_column(struct import_json *json, void *ctx, const char *key)
{
	const struct firefox_table *table = ctx;

	for (size_t i = 0; i < N_COLUMNS; i++)
		if (!strcmp(columns[i].table, table->name) && !strcmp(columns[i].key, key) &&
		    import_json_is(json, '[')) {
			import_json_numbers(json, column_at(table->f->tables, i));
			return;
		}
}

static void read_text(struct import_json *json, void *ctx)
{
	struct firefox *f = ctx;
	const char *text = import_json_text(json);

	if (!json->err)
		json->err = ARRAY_RESERVE(&f->tables->texts, &f->tables->texts_room,
					  f->tables->n_texts + 1);
	if (!json->err)
		f->tables->texts[f->tables->n_texts++] = text ? text : "";
}

/* Reads one of the tables that threads share or have themselves, if this is one. */
static void read_table(struct import_json *json, struct firefox *f, const char *key)
{
	struct firefox_table table = {f, key};

	if (!strcmp(key, "stringArray")) {
		import_json_array(json, read_text, f);
		return;
	}
	for (size_t i = 0; i < N_COLUMNS; i++)
		if (!strcmp(columns[i].table, key) && import_json_is(json, '{')) {
			import_json_object(json, read_column, &table);
			return;
		}
}

static void read_shared(struct import_json *json, void *ctx, const char *key)
{
	struct firefox *f = ctx;

	f->tables = &f->shared;
	read_table(json, f, key);
}

static void read_samples(struct import_json *json, void *ctx, const char *key)
{
	struct firefox *f = ctx;
	struct firefox_thread *thread = &f->threads[f->n_threads - 1];
	const struct {
		const char *key;
		struct import_column *column;
	} known[] = {{"stack", &thread->stack},
		     {"time", &thread->time},
		     {"timeDeltas", &thread->time_delta},
		     {"weight", &thread->weight},
		     {"vcpus", &thread->vcpus.runs}};

	if (!strcmp(key, "weightType"))
		thread->weight_type = import_json_text(json);
	for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++)
		if (!strcmp(key, known[i].key) && import_json_is(json, '['))
			import_json_numbers(json, known[i].column);
}

/* A number, also as a text; RECORDED_ID_UNKNOWN if it is none. */
static uint32_t read_id(struct import_json *json)
{
	json_auto_t *value = import_json_value(json);
	const char *text = json_string_value(value);
	char *end = NULL;
	const double number = text ? strtod(text, &end) : json_number_value(value);
	const bool good = text ? end != text && !*end : json_is_number(value);

	return good ? import_id(number) : RECORDED_ID_UNKNOWN;
}

static void read_member(struct import_json *json, void *ctx, const char *key)
{
	struct firefox *f = ctx;
	struct firefox_thread *thread = &f->threads[f->n_threads - 1];

	f->tables = &thread->tables;
	if (!strcmp(key, "name"))
		thread->name = import_json_text(json);
	else if (!strcmp(key, "processName"))
		thread->process = import_json_text(json);
	else if (!strcmp(key, "pid"))
		thread->pid = read_id(json);
	else if (!strcmp(key, "tid"))
		thread->tid = read_id(json);
	else if (!strcmp(key, "samples"))
		import_json_object(json, read_samples, f);
	else
		read_table(json, f, key);
}

static void read_thread(struct import_json *json, void *ctx)
{
	struct firefox *f = ctx;

	if (f->n_threads == RECORDED_THREADS_MAX)
		import_json_fail(json, "too many threads");
	if (!json->err)
		json->err = ARRAY_RESERVE(&f->threads, &f->threads_room, f->n_threads + 1);
	if (json->err)
		return;
	f->threads[f->n_threads++] =
		(struct firefox_thread){.pid = RECORDED_ID_UNKNOWN, .tid = RECORDED_ID_UNKNOWN};
	import_json_object(json, read_member, f);
}

static void read_lib_member(struct import_json *json, void *ctx, const char *key)
{
	struct firefox *f = ctx;

	if (!strcmp(key, "path"))
		f->lib.path = import_json_text(json);
	else if (!strcmp(key, "codeId"))
		f->lib.build_id = import_json_text(json);
}

static void read_lib(struct import_json *json, void *ctx)
{
	struct firefox *f = ctx;

	f->lib = (struct import_image){0};
	import_json_object(json, read_lib_member, f);
	if (!json->err)
		json->err = ARRAY_RESERVE(&f->libs, &f->libs_room, f->n_libs + 1);
	if (json->err)
		return;
	f->libs[f->n_libs] = 0;
	if (f->lib.path)
		json->err = import_image(f->import, &f->lib, &f->libs[f->n_libs]);
	f->n_libs++;
}

static void read_meta(struct import_json *json, void *ctx, const char *key)
{
	struct firefox *f = ctx;

	if (!strcmp(key, "startTime"))
		f->start_ms = import_json_number(json);
	else if (!strcmp(key, "interval"))
		f->interval_ms = import_json_number(json);
	else if (!strcmp(key, "importedFrom"))
		f->imported_from = import_json_text(json);
	else if (!strcmp(key, "product"))
		f->product = import_json_text(json);
}

static void read_top(struct import_json *json, void *ctx, const char *key)
{
	struct firefox *f = ctx;

	if (!strcmp(key, "meta"))
		import_json_object(json, read_meta, f);
	else if (!strcmp(key, "libs"))
		import_json_array(json, read_lib, f);
	else if (!strcmp(key, "shared"))
		import_json_object(json, read_shared, f);
	else if (!strcmp(key, "threads"))
		import_json_array(json, read_thread, f);
}

/* The row of a table of n rows that a column names in its row i; false: none. */
static bool row(const struct import_column *column, double i, size_t n, uint32_t *out)
{
	double number;

	if (!(i >= 0 && i < (double)column->n))
		return false;
	number = column->at[(size_t)i];
	if (!(number >= 0 && number < (double)n && number < UINT32_MAX))
		return false;
	*out = (uint32_t)number;
	return true;
}

static void find_file(const struct firefox_tables *t, uint32_t function, const char **file)
{
	uint32_t source, text;

	if (row(&t->function_source, function, t->source_file.n, &source) &&
	    row(&t->source_file, source, t->n_texts, &text))
		*file = t->texts[text];
	else if (row(&t->function_file, function, t->n_texts, &text))
		*file = t->texts[text];
}

/* The code of a frame; false if a number in its tables is none. */
static bool find_code(const struct firefox *f, const struct firefox_tables *t, uint32_t frame,
		      struct import_code *code)
{
	uint32_t function, text, resource, lib;

	*code = (struct import_code){.addr = IMPORT_NO_ADDR};
	if (!row(&t->frame_function, frame, t->function_name.n, &function) ||
	    !row(&t->function_name, function, t->n_texts, &text))
		return false;
	code->name = t->texts[text];
	find_file(t, function, &code->file);
	if (!row(&t->frame_line, frame, UINT32_MAX, &code->line))
		code->line = 0;
	if (row(&t->function_resource, function, t->resource_lib.n, &resource) &&
	    row(&t->resource_lib, resource, f->n_libs, &lib))
		code->image = f->libs[lib];
	return true;
}

/* The stacks of a stack table, whose rows come behind their prefixes; the caller frees *ids. */
static struct error *make_stacks(struct firefox *f, const struct firefox_tables *t, uint32_t **ids)
{
	const size_t n = t->stack_frame.n;

	TRY(ARRAY_NEW(ids, n + 1));
	for (size_t i = 0; i < n; i++) {
		uint32_t frame, prefix = 0;
		struct import_code code;
		uint64_t addr;
		const bool outermost = i < t->stack_prefix.n && isnan(t->stack_prefix.at[i]);

		if (!row(&t->stack_frame, (double)i, t->frame_function.n, &frame) ||
		    (!outermost && !row(&t->stack_prefix, (double)i, i, &prefix)) ||
		    !find_code(f, t, frame, &code))
			return import_damaged(f->import, "a number in its tables is none");
		TRY(import_code(f->import, &code, &addr));
		TRY(import_frame(f->import, outermost ? STACK_ROOT : (*ids)[prefix], addr, FRAME_PC,
				 &(*ids)[i]));
	}
	return NULL;
}

static bool is_own(const struct firefox *f)
{
	return f->imported_from && !strcmp(f->imported_from, "uniprof");
}

/* "vCPU 3" in an export of uniprof; false in others. */
static bool read_vcpu(const struct firefox *f, const char *name, uint16_t *vcpu)
{
	unsigned long number;
	char *end;

	if (!is_own(f) || !name || strncmp(name, "vCPU ", 5))
		return false;
	number = strtoul(name + 5, &end, 10);
	*vcpu = (uint16_t)number;
	return !*end && number < RECORDING_MAX_VCPUS;
}

static bool is_time(const struct firefox_thread *thread)
{
	return thread->weight_type && !strcmp(thread->weight_type, "tracing-ms") &&
	       thread->weight.n;
}

/* The unit of the thread's weights, "": nanoseconds. */
static const char *unit_of(const struct firefox_thread *thread)
{
	if (is_time(thread))
		return "";
	return thread->weight_type && !strcmp(thread->weight_type, "bytes") ? "bytes" : "samples";
}

static struct error *add_sample(struct firefox *f, const struct firefox_thread *thread, size_t i,
				double ms, struct import_sample sample)
{
	const double weight = thread->weight.n ? thread->weight.at[i] : 1,
		     scaled = is_time(thread) ? weight * 1e6 : weight;

	if (scaled < 0) {
		f->others++; /* memory that was freed */
		return NULL;
	}
	if (!(scaled <= (double)IMPORT_WEIGHT_MAX && ms >= 0 && ms < 9e12))
		return import_damaged(f->import, "a weight or a time is out of range");
	sample.times = 1;
	sample.weight = (uint64_t)llround(scaled);
	sample.time_ns = (uint64_t)llround(ms * 1e6);
	return import_sample(f->import, &sample);
}

static struct error *add_samples(struct firefox *f, struct firefox_thread *thread,
				 const uint32_t *ids, size_t n_ids)
{
	const size_t n = thread->stack.n;
	const bool deltas = thread->time_delta.n && !thread->time.n;
	const bool has_vcpus = is_own(f) && thread->vcpus.runs.n;
	const size_t number = (size_t)(thread - f->threads);
	struct import_sample sample = {.vcpu = (uint16_t)number};
	double ms = 0;

	if ((deltas ? thread->time_delta.n : thread->time.n) != n ||
	    (thread->weight.n && thread->weight.n != n))
		return import_damaged(f->import, "the columns of its samples differ in length");
	if (!has_vcpus && number >= RECORDING_MAX_VCPUS)
		return import_damaged(f->import, "too many threads");
	if (has_vcpus || !read_vcpu(f, thread->name, &sample.vcpu))
		TRY(import_thread(f->import,
				  &(struct recorded_thread){.pid = thread->pid,
							    .tid = thread->tid,
							    .name = thread->name ?: "",
							    .process = thread->process},
				  &sample.thread));
	for (size_t i = 0; i < n; i++) {
		uint32_t stack;

		ms = deltas ? ms + thread->time_delta.at[i] : thread->time.at[i];
		sample.stack = STACK_ROOT;
		if (row(&thread->stack, (double)i, n_ids, &stack))
			sample.stack = ids[stack];
		else if (!isnan(thread->stack.at[i]))
			return import_damaged(f->import, "a number of a stack is none");
		if (has_vcpus && !import_next_vcpu(&thread->vcpus, &sample.vcpu))
			return import_damaged(f->import, "vCPUs are missing, or no numbers");
		TRY(add_sample(f, thread, i, ms, sample));
	}
	return NULL;
}

static struct error *tell_thread(struct firefox *f, struct firefox_thread *thread,
				 const uint32_t *shared)
{
	const struct firefox_tables *own = &thread->tables;
	FREED uint32_t *ids = NULL;

	if (!thread->stack.n)
		return NULL;
	if (strcmp(unit_of(thread), unit_of(f->threads))) {
		f->others += thread->stack.n;
		return NULL;
	}
	if (!own->stack_frame.n)
		return add_samples(f, thread, shared, f->shared.stack_frame.n);
	TRY(make_stacks(f, own, &ids));
	return add_samples(f, thread, ids, own->stack_frame.n);
}

static void describe(struct firefox *f)
{
	struct import *import = f->import;
	double first_ms = import->n ? INFINITY : 0;

	for (size_t i = 0; i < import->n; i++)
		first_ms = fmin(first_ms, (double)import->samples[i].time_ns / 1e6);
	if (f->start_ms > 0 && f->start_ms < 9e12)
		import->start_unix_ns = (uint64_t)llround((f->start_ms + first_ms) * 1e6);
	if (f->interval_ms > 0)
		import->rate_hz = 1e3 / f->interval_ms;
	if (f->product && *f->product)
		import->guest_name = strdup(f->product);
	snprintf(import->host, sizeof(import->host), "Firefox Profiler%s%s",
		 f->imported_from ? ", by " : "", f->imported_from ? f->imported_from : "");
	if (f->n_threads)
		strcpy(import->unit, unit_of(f->threads));
	if (f->others)
		snprintf(import->reason, sizeof(import->reason),
			 "the file ends; %" PRIu64 " samples of other units are left out",
			 f->others);
}

static struct error *read_firefox(struct import *import)
{
	ENDED_BY(firefox_free) struct firefox f = {.import = import};
	FREED uint32_t *shared = NULL;

	TRY(import_json_read(import, read_top, &f));
	TRY(make_stacks(&f, &f.shared, &shared));
	for (size_t i = 0; i < f.n_threads; i++)
		TRY(tell_thread(&f, &f.threads[i], shared));
	describe(&f);
	return NULL;
}

const struct importer import_firefox = {.name = "firefox",
					.title = "files of the Firefox Profiler",
					.has_head = has_head,
					.read = read_firefox};
