/* SPDX-License-Identifier: BSD-3-Clause */
#include "profile/import_text.h"

#include <inttypes.h>
#include <string.h>

#define READ_SIZE (64u << 10)

struct error *import_error(const struct import_text *text, const char *what)
{
	return error_new(ERR_INPUT, "%s, line %" PRIu64 ": %s", text->file->name, text->number,
			 what);
}

/* Reads on; what was handed out makes room. */
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
