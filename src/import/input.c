/* SPDX-License-Identifier: BSD-3-Clause */
#include "import/importer.h"

#include <assert.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"

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
	TRY(bytes_reserve(to, READ_SIZE + 1));
	TRY(recording_file_read(input->file, to->data + to->len, READ_SIZE, &got));
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
	int rc;

	TRY(bytes_reserve(to, READ_SIZE + 1));
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

	while (input->buffer.len == before) {
		if (!input->more && input->packed_at == input->packed.len) {
			input->packed_at = input->packed.len = 0;
			TRY(read_file(input, &input->packed));
		}
		if (!input->more && input->packed_at == input->packed.len) {
			input->ended = true;
			return input->between ? NULL : unpack_error(input, "its end is missing");
		}
		TRY(unpack_some(input));
	}
	return NULL;
}

/* Reads more; bytes that were handed out make room. input->ended if there is none. */
static struct error *fill(struct import_input *input)
{
	struct bytes *buffer = &input->buffer;

	buffer->len -= input->at;
	input->handed += input->at;
	if (buffer->len)
		memmove(buffer->data, buffer->data + input->at, buffer->len);
	input->at = 0;
	if (input->is_packed)
		return unpack(input);
	TRY(read_file(input, buffer));
	input->ended = input->file_ended;
	return NULL;
}

struct error *import_input_begin(struct import_input *input, struct bytes *begun)
{
	input->read = begun->len;
	input->is_packed = begun->len >= 2 && begun->data[0] == 0x1f && begun->data[1] == 0x8b;
	*(input->is_packed ? &input->packed : &input->buffer) = *begun;
	*begun = (struct bytes){0};
	if (input->is_packed && inflateInit2(&input->stream, GZIP_WINDOW) != Z_OK)
		return error_no_memory();
	while (!input->ended && input->buffer.len < IMPORT_HEAD)
		TRY(fill(input));
	return NULL;
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
	assert(!input->at);
	while (!input->ended && input->buffer.len <= IMPORT_WHOLE_MAX)
		TRY(fill(input));
	if (input->buffer.len > IMPORT_WHOLE_MAX)
		return error_new(ERR_INPUT, "%s is too large: more than 1 GiB", input->file->name);
	*data = input->buffer.data;
	*len = input->buffer.len;
	return NULL;
}

static struct error *take_line(struct import_input *input, char *start, size_t taken, char **line,
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

		if (left > searched)
			end = memchr(start + searched, '\n', left - searched);
		*line = NULL;
		*len = end ? (size_t)(end - start) : left;
		if (*len > IMPORT_LINE_MAX)
			return import_error(input, "it is too long");
		if (end || (input->ended && left))
			return take_line(input, start, *len + (end != NULL), line, len);
		if (input->ended)
			return NULL;
		searched = left;
		TRY(fill(input));
	}
}

struct error *import_lines(struct import_input *input,
			   struct error *(*take)(void *ctx, char *line, size_t len), void *ctx)
{
	size_t len;
	char *line;

	for (;;) {
		TRY(import_line(input, &line, &len));
		if (!line)
			return NULL;
		TRY(take(ctx, line, len));
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

void import_json_fail(struct import_json *json, const char *what)
{
	if (!json->err)
		json->err = import_damaged(json->import, what);
}

/* The next byte, without taking it; 0: the end, or an error. */
static char now(struct import_json *json)
{
	struct import_input *input = json->input;

	while (!json->err && input->at == input->buffer.len && !input->ended)
		json->err = fill(input);
	return json->err || input->at == input->buffer.len ? '\0'
							   : (char)input->buffer.data[input->at];
}

static char advance(struct import_json *json)
{
	const char c = now(json);

	if (!json->err && json->input->at < json->input->buffer.len)
		json->input->at++;
	return c;
}

/* ... behind blanks. */
static char next_sign(struct import_json *json)
{
	for (;;) {
		const char c = now(json);

		if (c != ' ' && c != '\t' && c != '\n' && c != '\r')
			return c;
		advance(json);
	}
}

static bool take(struct import_json *json, char sign)
{
	if (next_sign(json) != sign)
		return false;
	advance(json);
	return true;
}

static void expect(struct import_json *json, char sign)
{
	if (!take(json, sign))
		import_json_fail(json, "this is no whole JSON");
}

struct error *import_json_read(struct import *import,
			       void (*member)(struct import_json *json, void *ctx, const char *key),
			       void *ctx)
{
	struct import_json json = {.import = import, .input = import->input};

	import_json_object(&json, member, ctx);
	if (next_sign(&json) || !json.input->ended)
		import_json_fail(&json, "something follows the end of its JSON");
	bytes_free(&json.value);
	return json.err;
}

bool import_json_is(struct import_json *json, char sign)
{
	return next_sign(json) == sign;
}

/* Takes a byte; keeps it if there is a value to be parsed. */
static char step(struct import_json *json, bool keep)
{
	const char c = advance(json);

	if (!keep || json->err)
		return c;
	if (json->value.len == IMPORT_VALUE_MAX)
		import_json_fail(json, "a value is too long");
	if (!json->err)
		json->err = bytes_reserve(&json->value, 1);
	if (!json->err)
		json->value.data[json->value.len++] = (uint8_t)c;
	return c;
}

static void scan_string(struct import_json *json, bool keep)
{
	step(json, keep); /* the quote */
	for (;;) {
		const char c = step(json, keep);

		if (c == '\\' && step(json, keep))
			continue;
		if (!c)
			import_json_fail(json, "this is no whole JSON");
		if (!c || c == '"')
			return;
	}
}

static bool ends_word(char c)
{
	return !c || strchr(",:]}[{\" \t\r\n", c);
}

/* Goes over a value, whatever is in it; jansson judges what is kept. */
static void scan(struct import_json *json, bool keep)
{
	uint64_t depth = 0;

	next_sign(json);
	do {
		const char c = depth ? next_sign(json) : now(json);

		if (!c)
			import_json_fail(json, "this is no whole JSON");
		if (c == '"') {
			scan_string(json, keep);
			continue;
		}
		depth += c == '{' || c == '[';
		if ((c == '}' || c == ']') && !depth)
			import_json_fail(json, "this is no JSON");
		depth -= c == '}' || c == ']';
		step(json, keep);
		while (!json->err && !strchr(",:]}[{", c) && !ends_word(now(json)))
			step(json, keep);
	} while (!json->err && depth);
}

json_t *import_json_value(struct import_json *json)
{
	json_t *value;

	json->value.len = 0;
	scan(json, true);
	if (json->err)
		return NULL;
	value = json_loadb((const char *)json->value.data, json->value.len, JSON_DECODE_ANY, NULL);
	if (!value)
		import_json_fail(json, "a value is no JSON");
	return value;
}

double import_json_number(struct import_json *json)
{
	json_auto_t *value = import_json_value(json);

	return json_is_number(value) ? json_number_value(value) : NAN;
}

const char *import_json_text(struct import_json *json)
{
	json_auto_t *value = import_json_value(json);
	const char *text = NULL;

	if (value && !json_is_string(value) && !json_is_null(value))
		import_json_fail(json, "a text is expected, and something else is there");
	else if (json_is_string(value))
		json->err = import_text(json->import, json_string_value(value),
					json_string_length(value), &text);
	return text;
}

void import_json_object(struct import_json *json,
			void (*member)(struct import_json *json, void *ctx, const char *key),
			void *ctx)
{
	expect(json, '{');
	if (take(json, '}'))
		return;
	do {
		json_auto_t *key = import_json_is(json, '"') ? import_json_value(json) : NULL;
		uint64_t before;

		if (!key)
			import_json_fail(json, "a key is missing in its JSON");
		expect(json, ':');
		next_sign(json);
		before = json->input->handed + json->input->at;
		if (!json->err)
			member(json, ctx, json_string_value(key));
		if (!json->err && before == json->input->handed + json->input->at)
			scan(json, false);
	} while (!json->err && take(json, ','));
	expect(json, '}');
}

void import_json_array(struct import_json *json,
		       void (*element)(struct import_json *json, void *ctx), void *ctx)
{
	expect(json, '[');
	if (take(json, ']'))
		return;
	do
		element(json, ctx);
	while (!json->err && take(json, ','));
	expect(json, ']');
}

static void read_number(struct import_json *json, void *ctx)
{
	struct import_column *column = ctx;
	char text[64], *end;
	size_t n = 0;

	next_sign(json);
	while (n < sizeof(text) - 1 && !ends_word(now(json)))
		text[n++] = advance(json);
	text[n] = '\0';
	if (!json->err)
		json->err = ARRAY_RESERVE(&column->at, &column->room, column->n + 1);
	if (json->err)
		return;
	column->at[column->n] = strtod(text, &end);
	if (!strcmp(text, "null"))
		column->at[column->n] = NAN;
	else if (!n || *end || text[strspn(text, "0123456789+-.eE")])
		import_json_fail(json, "a number is expected, and something else is there");
	column->n++;
}

void import_json_numbers(struct import_json *json, struct import_column *column)
{
	column->n = 0;
	import_json_array(json, read_number, column);
}

bool import_next_vcpu(struct import_vcpus *vcpus, uint16_t *vcpu)
{
	const struct import_column *runs = &vcpus->runs;
	double number;

	if (!(vcpus->left >= 1)) {
		if (runs->n - vcpus->next < 2)
			return false;
		vcpus->left = runs->at[vcpus->next + 1];
		vcpus->next += 2;
	}
	if (!(vcpus->left >= 1))
		return false;
	vcpus->left--;
	number = runs->at[vcpus->next - 2];
	*vcpu = number >= 0 && number < RECORDING_MAX_VCPUS ? (uint16_t)number : 0;
	return number == *vcpu;
}
