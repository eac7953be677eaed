/* SPDX-License-Identifier: BSD-3-Clause */
#include "import/input.h"

#include <assert.h>
#include <inttypes.h>
#include <string.h>

#define READ_SIZE (64u << 10)

/* zlib.h: 16 more than the window's bits asks for gzip's head and tail. */
#define GZIP_WINDOW (MAX_WBITS + 16)

struct error *import_error(const struct import_input *input, const char *what)
{
	return error_new(ERR_INPUT, "%s, line %" PRIu64 ": %s", input->file->name, input->number,
			 what);
}

static struct error *read_file(struct import_input *input, struct bytes *to)
{
	size_t got;
	/* One more for the NUL behind a line. */
	struct error *err = bytes_reserve(to, READ_SIZE + 1);

	if (!err)
		err = recording_file_read(input->file, to->data + to->len, READ_SIZE, &got);
	if (err)
		return err;
	to->len += got;
	input->read += got;
	input->file_ended = got == 0;
	recording_progress(input->visitor, input->read, recording_file_size(input->file));
	return NULL;
}

static struct error *unpack_error(const struct import_input *input, const char *why)
{
	return error_new(ERR_INPUT, "%s cannot be decompressed: %s", input->file->name, why);
}

/* Decompresses what is there; gzip files may have several parts. */
static struct error *unpack_some(struct import_input *input)
{
	z_stream *stream = &input->stream;
	struct bytes *packed = &input->packed, *to = &input->buffer;
	struct error *err = bytes_reserve(to, READ_SIZE + 1);
	int rc;

	if (err)
		return err;
	if (input->between && inflateReset(stream) != Z_OK)
		return error_no_memory();
	input->between = false;
	stream->next_in = packed->data + input->packed_at;
	stream->avail_in = (uInt)(packed->len - input->packed_at);
	stream->next_out = to->data + to->len;
	stream->avail_out = READ_SIZE;
	rc = inflate(stream, Z_NO_FLUSH);
	input->packed_at = packed->len - stream->avail_in;
	to->len += READ_SIZE - stream->avail_out;
	input->unpacked += READ_SIZE - stream->avail_out;
	input->between = rc == Z_STREAM_END;
	input->more = !stream->avail_out && !input->between;
	if (rc == Z_MEM_ERROR)
		return error_no_memory();
	if (rc != Z_OK && rc != Z_STREAM_END && rc != Z_BUF_ERROR)
		return unpack_error(input, stream->msg ? stream->msg : "it is damaged");
	if (input->unpacked > IMPORT_UNPACK_MAX)
		return unpack_error(input, "it has more than 8 GiB");
	return NULL;
}

static struct error *unpack(struct import_input *input)
{
	const size_t before = input->buffer.len;
	struct error *err = NULL;

	while (!err && input->buffer.len == before) {
		if (!input->more && input->packed_at == input->packed.len) {
			input->packed_at = input->packed.len = 0;
			err = read_file(input, &input->packed);
		}
		if (!err && !input->more && input->packed_at == input->packed.len) {
			input->ended = true;
			return input->between ? NULL : unpack_error(input, "its end is missing");
		}
		if (!err)
			err = unpack_some(input);
	}
	return err;
}

struct error *import_fill(struct import_input *input)
{
	struct bytes *buffer = &input->buffer;
	struct error *err;

	buffer->len -= input->at;
	input->handed += input->at;
	if (buffer->len)
		memmove(buffer->data, buffer->data + input->at, buffer->len);
	input->at = 0;
	if (input->is_packed)
		return unpack(input);
	err = read_file(input, buffer);
	input->ended = input->file_ended;
	return err;
}

struct error *import_input_begin(struct import_input *input, struct bytes *begun)
{
	struct error *err = NULL;

	input->read = begun->len;
	input->is_packed = begun->len >= 2 && begun->data[0] == 0x1f && begun->data[1] == 0x8b;
	if (input->is_packed) {
		input->packed = *begun;
		if (inflateInit2(&input->stream, GZIP_WINDOW) != Z_OK)
			err = error_no_memory();
	} else {
		input->buffer = *begun;
	}
	*begun = (struct bytes){0};
	while (!err && !input->ended && input->buffer.len < IMPORT_HEAD)
		err = import_fill(input);
	return err;
}

void import_input_end(struct import_input *input)
{
	if (input->is_packed)
		inflateEnd(&input->stream);
	bytes_free(&input->packed);
	bytes_free(&input->buffer);
}

struct error *import_whole(struct import_input *input, const uint8_t **data, size_t *len)
{
	struct error *err = NULL;

	assert(!input->at);
	while (!err && !input->ended && input->buffer.len <= IMPORT_WHOLE_MAX)
		err = import_fill(input);
	if (!err && input->buffer.len > IMPORT_WHOLE_MAX)
		err = error_new(ERR_INPUT, "%s is too large: more than 1 GiB", input->file->name);
	*data = input->buffer.data;
	*len = input->buffer.len;
	return err;
}

static struct error *take(struct import_input *input, char *start, size_t taken, char **line,
			  size_t *len)
{
	input->at += taken;
	start[*len] = '\0';
	if (strlen(start) != *len)
		return import_error(input, "a NUL byte: this is no text");
	if (*len && start[*len - 1] == '\r')
		start[--*len] = '\0';
	*line = start;
	return NULL;
}

struct error *import_line(struct import_input *input, char **line, size_t *len)
{
	size_t searched = 0;

	input->number++;
	for (;;) {
		char *start = (char *)input->buffer.data + input->at, *end = NULL;
		size_t left = input->buffer.len - input->at;
		struct error *err;

		if (left > searched)
			end = memchr(start + searched, '\n', left - searched);
		*line = NULL;
		*len = end ? (size_t)(end - start) : left;
		if (*len > IMPORT_LINE_MAX)
			return import_error(input, "it is too long");
		if (end || (input->ended && left))
			return take(input, start, *len + (end != NULL), line, len);
		if (input->ended)
			return NULL;
		searched = left;
		err = import_fill(input);
		if (err)
			return err;
	}
}

void import_give_back(struct import_input *input, char *line, size_t len)
{
	size_t at = (size_t)(line - (char *)input->buffer.data), taken = input->at - at;

	/* Its end was overwritten. */
	if (taken > len) {
		memset(line + len, ' ', taken - len);
		line[taken - 1] = '\n';
	}
	input->at = at;
	input->number--;
}
