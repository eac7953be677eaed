/* SPDX-License-Identifier: BSD-3-Clause */
#include "import/import.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/owned.h"
#include "base/preopen.h"
#include "import/importer.h"
#include "recording/format.h"

/* The first that says that a file is its own reads it. */
static const struct importer *const importers[] = {
	&import_perf_data, &import_firefox,	&import_speedscope, &import_raw,
	&import_callgrind, &import_perf_script, &import_folded,	    &import_pprof,
};

/* The beginning of a list of segments, as long as that of a recording. */
#define LIST_MAGIC "\x89uniseg\n"

/* Bytes of such a list: at most, and at a time. */
#define LIST_MAX  (64u << 20)
#define LIST_STEP 65536u

#define N_IMPORTERS (sizeof(importers) / sizeof(importers[0]))

struct error *import_damaged(const struct import *import, const char *what)
{
	return error_new(ERR_INPUT, "%s: %s", import->input->file->name, what);
}

void import_left_out(struct import *import, uint64_t samples)
{
	if (samples)
		snprintf(import->reason, sizeof(import->reason),
			 "the file ends; %" PRIu64 " sample%s of other events left out", samples,
			 samples == 1 ? "" : "s");
}

double import_unit_ns(const char *unit)
{
	static const struct {
		const char *name;
		double ns;
	} units[] = {{"nanoseconds", 1}, {"ns", 1},   {"nanosecond", 1},     {"microseconds", 1e3},
		     {"us", 1e3},	 {"µs", 1e3}, {"milliseconds", 1e6}, {"ms", 1e6},
		     {"seconds", 1e9},	 {"s", 1e9}};

	for (size_t i = 0; i < sizeof(units) / sizeof(units[0]); i++)
		if (!strcmp(unit, units[i].name))
			return units[i].ns;
	return 0;
}

struct error *import_sample(struct import *import, const struct import_sample *sample)
{
	if (!sample->times)
		return NULL;
	if (sample->times > IMPORT_SAMPLES_MAX - import->total)
		return import_damaged(import, "too many samples");
	import->total += sample->times;
	TRY(ARRAY_RESERVE(&import->samples, &import->room, import->n + 1));
	import->samples[import->n++] = *sample;
	if (sample->vcpu >= import->vcpus)
		import->vcpus = sample->vcpu + 1u;
	return NULL;
}

struct error *import_samples(struct import *import, struct import_sample sample, uint64_t weight)
{
	const uint64_t n = sample.times, more = n ? weight % n : 0;

	if (!n)
		return NULL;
	sample.weight = weight / n;
	sample.times = n - more;
	TRY(import_sample(import, &sample));
	sample.weight++;
	sample.times = more;
	return import_sample(import, &sample);
}

static int by_time(const void *left, const void *right)
{
	const struct import_sample *a = left, *b = right;

	return COMPARE(a->time_ns, b->time_ns) ?: COMPARE(a->vcpu, b->vcpu);
}

static void sort(struct import *import)
{
	for (size_t i = 1; i < import->n; i++) {
		if (import->samples[i].time_ns >= import->samples[i - 1].time_ns)
			continue;
		qsort(import->samples, import->n, sizeof(*import->samples), by_time);
		return;
	}
}

static struct error *tell_samples(const struct import *import,
				  const struct recorded_thread *threads)
{
	const struct recording_visitor *v = import->visitor;
	uint64_t start = import->n ? import->samples[0].time_ns : 0;

	for (size_t i = 0; v->tick && i < import->n; i++) {
		const struct import_sample *sample = &import->samples[i];
		const struct tick_entry entry = {.vcpu = sample->vcpu,
						 .stack = sample->stack,
						 .state = sample->state,
						 .end = UNWIND_OUTERMOST,
						 .ran_ns = sample->weight,
						 .thread = sample->thread};
		const struct tick tick = {.time_ns = sample->time_ns - start,
					  .weight_ns = sample->weight,
					  .n = 1,
					  .entries = &entry,
					  .threads = threads,
					  .more = sample->times - 1};

		TRY(v->tick(v->ctx, &tick));
	}
	return NULL;
}

static char *base_name(char *path)
{
	char *slash = strrchr(path, '/');

	return slash && slash[1] ? slash + 1 : path;
}

static struct error *tell_info(const struct import *import, const char *target)
{
	const struct recording_visitor *v = import->visitor;
	struct recording_info info = {.target = (char *)target,
				      .guest_name = import->guest_name
							    ? import->guest_name
							    : base_name(import->input->file->name),
				      .host = (char *)import->host,
				      .weight_unit = *import->unit ? (char *)import->unit : NULL,
				      .vcpus = import->vcpus,
				      .rate_hz = import->rate_hz,
				      .start_unix_ns = import->start_unix_ns,
				      .timeless = import->timeless};
	struct error *err = import_tables_images(import->tables, &info.images);

	if (!err && v->info)
		err = v->info(v->ctx, &info);
	free(info.images.at);
	return err;
}

/* Tells the visitor everything, in order of time. */
static struct error *tell(struct import *import, const char *target)
{
	const struct recording_visitor *v = import->visitor;
	struct recording_end end = {.reason = *import->reason ? import->reason : "the file ends",
				    .elapsed_ns = import->elapsed_ns};
	const struct recorded_thread *threads;

	TRY(tell_info(import, target));
	sort(import);
	if (import->n && !end.elapsed_ns)
		end.elapsed_ns =
			import->samples[import->n - 1].time_ns - import->samples[0].time_ns;
	TRY(import_tables_threads(import->tables, v, &threads));
	TRY(import_tables_names(import->tables, v));
	TRY(tell_samples(import, threads));
	return v->end ? v->end(v->ctx, &end) : NULL;
}

bool import_is_target(const char *target)
{
	for (size_t i = 0; target && i < N_IMPORTERS; i++)
		if (!strcmp(target, importers[i]->name))
			return true;
	return false;
}

/* "... nor a, b or c": all that can be read. */
static struct error *unknown(const struct import *import)
{
	size_t len;
	FREED char *titles = NULL;
	FILE *out = open_memstream(&titles, &len);

	if (!out)
		return error_no_memory();
	for (size_t i = 0; i < N_IMPORTERS; i++)
		fprintf(out, "%s%s",
			!i		       ? ""
			: i + 1 == N_IMPORTERS ? " or "
					       : ", ",
			importers[i]->title);
	if (fclose(out))
		return error_no_memory();
	return error_new(ERR_INPUT, "%s is no recording of uniprof, nor %s",
			 import->input->file->name, titles);
}

/* The first line that is neither blank nor a comment; NULL: this is no text. */
static char *first_line(struct import_input *input, size_t *len)
{
	struct error *err;
	char *line;

	do
		err = import_line(input, &line, len);
	while (!err && line && (!line[strspn(line, " \t")] || *line == '#'));
	error_free(err); /* a NUL byte, a long line: this is no text */
	return err ? NULL : line;
}

static struct error *choose(struct import *import, const struct importer **importer)
{
	struct import_input *input = import->input;
	size_t len;
	char *line;

	for (size_t i = 0; i < N_IMPORTERS; i++) {
		if (importers[i]->has_head &&
		    importers[i]->has_head(input->buffer.data, input->buffer.len)) {
			*importer = importers[i];
			return NULL;
		}
	}
	line = first_line(input, &len);
	for (size_t i = 0; line && i < N_IMPORTERS; i++) {
		if (importers[i]->has_line && importers[i]->has_line(line, len)) {
			*importer = importers[i];
			import_give_back(input, line, len);
			return NULL;
		}
	}
	return unknown(import);
}

static void import_free(struct import *import)
{
	import_tables_free(import->tables);
	free(import->samples);
	free(import->guest_name);
}

/* `begun` holds the beginning of the file, and is taken over. */
static struct error *import_read(struct recording_file *file, struct bytes *begun,
				 struct stacks *stacks, const struct recording_visitor *visitor)
{
	ENDED_BY(import_input_end) struct import_input input = {.file = file, .visitor = visitor};
	ENDED_BY(import_free)
	struct import import = {.input = &input, .stacks = stacks, .visitor = visitor, .vcpus = 1};
	const struct importer *importer = NULL;

	TRY(import_input_begin(&input, begun));
	TRY(import_tables_new(&import.tables));
	TRY(choose(&import, &importer));
	TRY(importer->read(&import));
	return tell(&import, importer->name);
}

/* Reads as many bytes as a recording's magic has, or to the file's end. */
static struct error *begin(struct recording_file *file, struct bytes *buffer)
{
	size_t got = 1;

	while (got && buffer->len < RECORDING_MAGIC_LEN) {
		TRY(bytes_reserve(buffer, RECORDING_MAGIC_LEN));
		TRY(recording_file_read(file, buffer->data + buffer->len, RECORDING_MAGIC_LEN,
					&got));
		buffer->len += got;
	}
	return NULL;
}

struct error *source_list(const struct segments *segments, FILE *out)
{
	fprintf(out, LIST_MAGIC "%" PRIu64 " %" PRIu64, segments->from_unix_ns,
		segments->to_unix_ns);
	for (size_t i = 0; i < segments->n; i++)
		fprintf(out, "%c%s", '\0', segments->paths[i]);
	return ferror(out) ? error_new(ERR_FAILED, "cannot list the segments of that time") : NULL;
}

static bool is_list(const struct bytes *buffer)
{
	return buffer->len >= RECORDING_MAGIC_LEN &&
	       !memcmp(buffer->data, LIST_MAGIC, RECORDING_MAGIC_LEN);
}

/* Reads the rest of a file, and puts a NUL behind it. */
static struct error *list_bytes(struct recording_file *file, struct bytes *list)
{
	size_t got = 1;

	while (got) {
		if (list->len > LIST_MAX)
			return error_new(ERR_INPUT, "%s is too long", file->name);
		TRY(bytes_reserve(list, LIST_STEP + 1));
		TRY(recording_file_read(file, list->data + list->len, LIST_STEP, &got));
		list->len += got;
	}
	list->data[list->len] = '\0';
	return NULL;
}

/* The paths of a list, which ends with a NUL; the caller frees *paths. */
static struct error *list_paths(const char *at, const char *end, char ***paths, size_t *n)
{
	size_t room = 0;

	for (; at < end; at += strlen(at) + 1) {
		if (!preopen_has_input(at))
			return error_new(ERR_INPUT, "a list of segments is no recording");
		TRY(ARRAY_RESERVE(paths, &room, *n + 1));
		(*paths)[(*n)++] = (char *)at;
	}
	return NULL;
}

/* Reads a list of segments; `list` holds its beginning. */
static struct error *list_read(struct recording_file *file, struct bytes *list,
			       struct stacks *stacks, const struct recording_visitor *visitor)
{
	struct segments set = {0};
	FREED char **paths = NULL;
	const char *head;

	TRY(list_bytes(file, list));
	head = (const char *)list->data + RECORDING_MAGIC_LEN;
	if (sscanf(head, "%" SCNu64 " %" SCNu64, &set.from_unix_ns, &set.to_unix_ns) != 2)
		return error_new(ERR_INPUT, "%s is a damaged list of segments", file->name);
	TRY(list_paths(head + strlen(head) + 1, (const char *)list->data + list->len, &paths,
		       &set.n));
	set.paths = paths;
	return segments_read(&set, stacks, visitor);
}

struct error *source_read(const char *path, struct stacks *stacks,
			  const struct recording_visitor *visitor, bool *cut)
{
	ENDED_BY(bytes_free) struct bytes buffer = {0};
	struct recording_file file;
	struct error *err;

	*cut = false;
	TRY(recording_file_open(path, &file));
	err = begin(&file, &buffer);
	if (!err && buffer.len && buffer.data[0] != (uint8_t)RECORDING_MAGIC[0])
		err = import_read(&file, &buffer, stacks, visitor);
	else if (!err && is_list(&buffer))
		err = list_read(&file, &buffer, stacks, visitor);
	else if (!err)
		err = recording_read_file(&file, &buffer, stacks, visitor, cut);
	error_free(recording_file_close(&file));
	return err;
}
