/* SPDX-License-Identifier: BSD-3-Clause */
#include "import/import.h"

#include <string.h>

#include "import/importer.h"
#include "recording/format.h"
#include "profile/recording_reader.h"

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

/* Which importer reads it, judged by the first line that says something. */
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

/* Reads until a recording's magic would be there, or the file ends. */
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
