/* SPDX-License-Identifier: BSD-3-Clause */
#include "import/importer.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/intern.h"
#include "import/import.h"
#include "recording/file.h"
#include "recording/format.h"

#define READ_SIZE (64u << 10)

struct error *import_error(const struct import_text *text, const char *what)
{
	return error_new(ERR_INPUT, "%s, line %" PRIu64 ": %s", text->file->name, text->number,
			 what);
}

/* Reads more; bytes that were handed out make room. */
static struct error *fill(struct import_text *text)
{
	struct bytes *buffer = &text->buffer;
	struct error *err;
	size_t got;

	buffer->len -= text->at;
	if (buffer->len)
		memmove(buffer->data, buffer->data + text->at, buffer->len);
	text->at = 0;
	/* One more for the NUL. */
	err = bytes_reserve(buffer, READ_SIZE + 1);
	if (!err)
		err = recording_file_read(text->file, buffer->data + buffer->len, READ_SIZE, &got);
	if (err)
		return err;
	buffer->len += got;
	text->read += got;
	recording_progress(text->visitor, text->read, recording_file_size(text->file));
	text->ended = got == 0;
	return NULL;
}

static struct error *take(struct import_text *text, char *start, size_t taken, char **line,
			  size_t *len)
{
	text->at += taken;
	start[*len] = '\0';
	if (strlen(start) != *len)
		return import_error(text, "a NUL byte: this is no text");
	if (*len && start[*len - 1] == '\r')
		start[--*len] = '\0';
	*line = start;
	return NULL;
}

struct error *import_line(struct import_text *text, char **line, size_t *len)
{
	size_t searched = 0;

	text->number++;
	for (;;) {
		char *start = (char *)text->buffer.data + text->at, *end = NULL;
		size_t left = text->buffer.len - text->at;
		struct error *err;

		if (left > searched)
			end = memchr(start + searched, '\n', left - searched);
		*line = NULL;
		*len = end ? (size_t)(end - start) : left;
		if (*len > IMPORT_LINE_MAX)
			return import_error(text, "it is too long");
		if (end || (text->ended && left))
			return take(text, start, *len + (end != NULL), line, len);
		if (text->ended)
			return NULL;
		searched = left;
		err = fill(text);
		if (err)
			return err;
	}
}

/* Names of functions, by number. */
struct import_names {
	struct pool *pool;
	struct ids *ids;
	const char **at;
	size_t room;
};

static struct error *import_new(struct import *import)
{
	struct error *err;

	import->vcpus = 1;
	import->names = calloc(1, sizeof(*import->names));
	if (!import->names)
		return error_no_memory();
	err = pool_new(&import->names->pool);
	return err ? err : ids_new(&import->names->ids);
}

static void import_free(struct import *import)
{
	if (import->names) {
		pool_free(import->names->pool);
		ids_free(import->names->ids);
		free(import->names->at);
	}
	free(import->names);
	free(import->samples);
	bytes_free(&import->text.buffer);
}

static struct error *number_name(struct import_names *names, const char *name, size_t len,
				 uint32_t *id)
{
	const char *kept;
	bool added;
	struct error *err =
		pool_intern(names->pool, name, len < NAME_MAX_LEN ? len : NAME_MAX_LEN, &kept);

	if (!err)
		err = ids_get(names->ids, (uintptr_t)kept, 0, id, &added);
	if (err || !added)
		return err;
	err = ARRAY_RESERVE(&names->at, &names->room, *id + 1);
	if (err)
		return err;
	names->at[*id] = kept;
	return NULL;
}

struct error *import_address(struct import *import, uint32_t parent, uint64_t addr, uint32_t *id)
{
	const struct frame frame = {.addr = addr, .kind = FRAME_PC};

	return stacks_child(import->stacks, parent, &frame, id);
}

struct error *import_frame(struct import *import, uint32_t parent, const char *name, size_t len,
			   uint32_t *id)
{
	uint32_t number;
	struct error *err = number_name(import->names, name, len, &number);

	return err ? err : import_address(import, parent, IMPORT_ADDR + number, id);
}

struct error *import_sample(struct import *import, const struct import_sample *sample)
{
	struct error *err;

	if (sample->times > IMPORT_SAMPLES_MAX - import->total)
		return import_error(&import->text, "too many samples");
	import->total += sample->times;
	err = ARRAY_RESERVE(&import->samples, &import->room, import->n + 1);
	if (err)
		return err;
	import->samples[import->n++] = *sample;
	if (sample->vcpu >= import->vcpus)
		import->vcpus = sample->vcpu + 1u;
	return NULL;
}

static int by_time(const void *left, const void *right)
{
	const struct import_sample *a = left, *b = right;

	if (a->time_ns != b->time_ns)
		return a->time_ns < b->time_ns ? -1 : 1;
	return (a->vcpu > b->vcpu) - (a->vcpu < b->vcpu);
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

static struct error *tell_names(const struct import *import)
{
	const struct recording_visitor *v = import->visitor;
	struct error *err = NULL;

	for (uint32_t i = 0; v->name && i < ids_count(import->names->ids) && !err; i++)
		err = v->name(v->ctx, IMPORT_ADDR + i, FRAME_PC, import->names->at[i], 0);
	return err;
}

static struct error *tell_samples(const struct import *import)
{
	const struct recording_visitor *v = import->visitor;
	uint64_t start = import->n ? import->samples[0].time_ns : 0;
	struct error *err = NULL;

	for (size_t i = 0; v->tick && i < import->n && !err; i++) {
		const struct import_sample *sample = &import->samples[i];
		const struct tick_entry entry = {.vcpu = sample->vcpu,
						 .stack = sample->stack,
						 .state = VCPU_RUNNING,
						 .end = UNWIND_OUTERMOST,
						 .ran_ns = sample->weight};
		const struct tick tick = {.time_ns = sample->time_ns - start,
					  .weight_ns = sample->weight,
					  .n = 1,
					  .entries = &entry,
					  .more = sample->times - 1};

		err = v->tick(v->ctx, &tick);
	}
	return err;
}

static char *base_name(char *path)
{
	char *slash = strrchr(path, '/');

	return slash && slash[1] ? slash + 1 : path;
}

/* Tells the visitor everything, in order of time. */
static struct error *import_tell(struct import *import)
{
	const struct recording_visitor *v = import->visitor;
	struct recording_info info = {.target = (char *)import->target,
				      .guest_name = base_name(import->text.file->name),
				      .host = import->host,
				      .weight_unit = *import->unit ? import->unit : NULL,
				      .vcpus = import->vcpus};
	struct recording_end end = {.reason = import->reason};
	struct error *err = v->info ? v->info(v->ctx, &info) : NULL;

	sort(import);
	if (import->n)
		end.elapsed_ns =
			import->samples[import->n - 1].time_ns - import->samples[0].time_ns;
	if (!err)
		err = tell_names(import);
	if (!err)
		err = tell_samples(import);
	if (!err && v->end)
		err = v->end(v->ctx, &end);
	return err;
}

bool import_is_target(const char *target)
{
	return target && (!strcmp(target, "folded") || !strcmp(target, "perf-script"));
}

/* Lets the last line be read once more; its end was overwritten. */
static void give_back(struct import_text *text, char *line, size_t len)
{
	size_t at = (size_t)(line - (char *)text->buffer.data), taken = text->at - at;

	if (taken > len) {
		memset(line + len, ' ', taken - len);
		line[taken - 1] = '\n';
	}
	text->at = at;
	text->number--;
}

/* Chooses the importer by the first line that is neither blank nor a comment. */
static struct error *choose(struct import *import, struct error *(**read)(struct import *))
{
	struct error *err;
	size_t len;
	char *line;

	do
		err = import_line(&import->text, &line, &len);
	while (!err && line && (!line[strspn(line, " \t")] || *line == '#'));
	error_free(err); /* a NUL byte, a long line: this is no text */
	if (err || !line)
		*read = NULL;
	else if (import_is_perf(line))
		*read = import_perf;
	else
		*read = import_is_folded(line, len) ? import_folded : NULL;
	if (!*read)
		return error_new(ERR_INPUT,
				 "%s is no recording of uniprof, nor folded stacks or what perf "
				 "script prints",
				 import->text.file->name);
	give_back(&import->text, line, len);
	return NULL;
}

/* `buffer` holds the beginning of the file, and is taken over. */
static struct error *import_read(struct recording_file *file, struct bytes *buffer,
				 struct stacks *stacks, const struct recording_visitor *visitor)
{
	struct import import = {
		.text = {.file = file, .visitor = visitor, .buffer = *buffer, .read = buffer->len},
		.stacks = stacks,
		.visitor = visitor};
	struct error *(*read)(struct import *) = NULL;
	struct error *err;

	*buffer = (struct bytes){0};
	err = import_new(&import);
	if (!err)
		err = choose(&import, &read);
	if (!err)
		err = read(&import);
	if (!err)
		err = import_tell(&import);
	import_free(&import);
	return err;
}

/* Reads as many bytes as a recording's magic has, or to the file's end. */
static struct error *begin(struct recording_file *file, struct bytes *buffer)
{
	size_t got = 1;
	struct error *err = NULL;

	while (!err && got && buffer->len < RECORDING_MAGIC_LEN) {
		err = bytes_reserve(buffer, RECORDING_MAGIC_LEN);
		if (!err)
			err = recording_file_read(file, buffer->data + buffer->len,
						  RECORDING_MAGIC_LEN, &got);
		if (!err)
			buffer->len += got;
	}
	return err;
}

static bool is_text(const struct bytes *buffer)
{
	return buffer->len && buffer->data[0] != (uint8_t)RECORDING_MAGIC[0];
}

struct error *source_read(const char *path, struct stacks *stacks,
			  const struct recording_visitor *visitor, bool *cut)
{
	struct bytes buffer = {0};
	struct recording_file file;
	struct error *err = recording_file_open(path, &file);

	*cut = false;
	if (err)
		return err;
	err = begin(&file, &buffer);
	if (!err && is_text(&buffer))
		err = import_read(&file, &buffer, stacks, visitor);
	else if (!err)
		err = recording_read_file(&file, &buffer, stacks, visitor, cut);
	bytes_free(&buffer);
	error_free(recording_file_close(&file));
	return err;
}
