/* SPDX-License-Identifier: BSD-3-Clause */
#include "recording/file.h"

#include <stdlib.h>
#include <zlib.h>

/* Bytes that are asked for in one read. */
#define READ_SIZE (64u << 10)

/*
 * The buffer holds what follows the last check. Nothing of it is decoded
 * before its own check was found and matches, or the file ends.
 */
struct recording_reader {
	struct recording_file *file;
	struct bytes buffer;
	uint64_t base; /* the file's offset of the buffer's first byte */
	size_t walked; /* so far the buffer holds whole records */
	bool has_head;
	bool padded; /* from `walked` on the file has nothing but zeros */
	uint8_t minor;
	struct decoder decoder;
};

/* A record somewhere in the buffer. */
struct record {
	uint8_t type;
	struct cursor payload;
};

enum found { FOUND, FOUND_PART, FOUND_PADDING, FOUND_DAMAGE };

/*
 * The record that `in` begins with: there, only its beginning there, the zeros that some file
 * systems leave at the end when the machine goes down, or none that can be.
 */
static enum found find_record(struct cursor in, uint8_t minor, struct record *out)
{
	const size_t there = (size_t)(in.end - in.at);
	uint64_t len;

	if (!get_varint(&in, &len))
		return there < RECORD_HEAD_MAX ? FOUND_PART : FOUND_DAMAGE;
	if (len > RECORD_MAX)
		return FOUND_DAMAGE;
	if (in.at == in.end)
		return FOUND_PART;
	out->type = *in.at++;
	if (out->type == 0 && len == 0)
		return FOUND_PADDING;
	/* Only a later minor version may have types that are not known here. */
	if (out->type == 0 || (out->type >= RECORD_TYPES && minor <= RECORDING_MINOR) ||
	    (out->type == RECORD_CHECK && len != CHECK_LEN))
		return FOUND_DAMAGE;
	if (len > (size_t)(in.end - in.at))
		return FOUND_PART;
	out->payload = (struct cursor){in.at, in.at + len};
	return FOUND;
}

/* The record at `at` of the buffer. */
static enum found find_buffered(const struct recording_reader *reader, size_t at,
				struct record *out)
{
	const uint8_t *data = reader->buffer.data;

	return find_record((struct cursor){data + at, data + reader->buffer.len}, reader->minor,
			   out);
}

/* Decompresses a packed record whole, which begins at byte `offset`; *out is the caller's to free. */
static struct error *unpack(const struct decoder *decoder, struct cursor in, uint64_t offset,
			    struct bytes *out)
{
	struct error *err = NULL;
	uint64_t len;
	uLongf got;

	if (!get_varint(&in, &len) || !len || len > UNPACKED_MAX)
		return decode_damaged(decoder, offset, "a packed record's length cannot be");
	err = bytes_reserve(out, len);
	if (err)
		return err;
	got = (uLongf)len;
	if (uncompress(out->data, &got, in.at, (uLong)(in.end - in.at)) != Z_OK || got != len)
		return decode_damaged(decoder, offset, "a packed record cannot be unpacked");
	out->len = len;
	return NULL;
}

/* Decodes the records of a packed one, which begins at byte `offset` of the file. */
static struct error *decode_packed(struct recording_reader *reader, struct cursor packed,
				   uint64_t offset)
{
	struct decoder *decoder = &reader->decoder;
	struct bytes data = {0};
	struct record record = {0};
	struct error *err = unpack(decoder, packed, offset, &data);
	struct cursor records = {data.data, data.len ? data.data + data.len : data.data};

	while (!err && records.at < records.end) {
		if (find_record(records, reader->minor, &record) != FOUND ||
		    record.type == RECORD_CHECK || record.type == RECORD_PACKED)
			err = decode_damaged(decoder, offset, "no record can be packed like that");
		else
			err = decode_record(decoder, record.type, record.payload, offset);
		records.at = record.payload.end;
	}
	bytes_free(&data);
	return err;
}

/* Decodes the records of buffer[0..walked), head excluded. */
static struct error *decode(struct recording_reader *reader)
{
	size_t at = reader->base == 0 ? RECORDING_HEAD_LEN : 0;
	struct error *err = NULL;
	struct record record;

	while (at < reader->walked && !err && find_buffered(reader, at, &record) == FOUND) {
		if (record.type == RECORD_PACKED)
			err = decode_packed(reader, record.payload, reader->base + at);
		else if (record.type != RECORD_CHECK)
			err = decode_record(&reader->decoder, record.type, record.payload,
					    reader->base + at);
		at = (size_t)(record.payload.end - reader->buffer.data);
	}
	return err;
}

/* Verifies the stretch that it covers, decodes it, and drops it from the buffer. */
static struct error *take_stretch(struct recording_reader *reader, const struct record *check)
{
	size_t covered = (size_t)(check->payload.at - reader->buffer.data);
	uint32_t crc = (uint32_t)crc32(0, reader->buffer.data, (uInt)covered);
	struct bytes *buffer = &reader->buffer;
	struct error *err;

	for (int i = 0; i < CHECK_LEN; i++)
		if (check->payload.at[i] != (uint8_t)(crc >> (8 * i)))
			return decode_damaged(&reader->decoder, reader->base,
					      "what follows does not match its checksum");
	err = decode(reader);
	buffer->len -= covered + CHECK_LEN;
	memmove(buffer->data, buffer->data + covered + CHECK_LEN, buffer->len);
	reader->base += covered + CHECK_LEN;
	reader->walked = 0;
	return err;
}

/* True if the buffer begins with the magic, or with as much of it as fits. */
static bool has_magic(const struct recording_reader *reader)
{
	size_t len =
		reader->buffer.len < RECORDING_MAGIC_LEN ? reader->buffer.len : RECORDING_MAGIC_LEN;

	return memcmp(reader->buffer.data, RECORDING_MAGIC, len) == 0;
}

static struct error *no_recording(const struct recording_reader *reader)
{
	return error_new(ERR_INPUT, "%s is no recording of uniprof", reader->file->name);
}

static struct error *check_head(struct recording_reader *reader)
{
	const uint8_t *head = reader->buffer.data;

	if (!has_magic(reader))
		return no_recording(reader);
	if (head[RECORDING_MAGIC_LEN] != RECORDING_MAJOR)
		return error_new(ERR_INPUT,
				 "%s has format %u, but this program reads format %u: use a "
				 "matching uniprof",
				 reader->file->name, head[RECORDING_MAGIC_LEN], RECORDING_MAJOR);
	reader->minor = head[RECORDING_MAGIC_LEN + 1];
	reader->has_head = true;
	reader->walked = RECORDING_HEAD_LEN;
	return NULL;
}

/* Takes zeros from the buffer's end; there must be nothing else. */
static struct error *skip_padding(struct recording_reader *reader)
{
	for (size_t i = reader->walked; i < reader->buffer.len; i++)
		if (reader->buffer.data[i] != 0)
			return decode_damaged(&reader->decoder, reader->base + reader->walked,
					      "no record can begin like that");
	reader->buffer.len = reader->walked;
	return NULL;
}

/* Goes over the records in the buffer as far as they are whole. */
static struct error *walk(struct recording_reader *reader)
{
	enum found found = FOUND;
	struct error *err = NULL;
	struct record record;

	if (!reader->has_head) {
		if (reader->buffer.len < RECORDING_HEAD_LEN)
			return NULL;
		err = check_head(reader);
	}
	while (!err && !reader->padded && reader->walked < reader->buffer.len) {
		found = find_buffered(reader, reader->walked, &record);
		reader->padded = found == FOUND_PADDING;
		if (found != FOUND)
			break;
		reader->walked = (size_t)(record.payload.end - reader->buffer.data);
		if (record.type == RECORD_CHECK)
			err = take_stretch(reader, &record);
	}
	if (!err && found == FOUND_DAMAGE)
		err = decode_damaged(&reader->decoder, reader->base + reader->walked,
				     "no record can begin like that");
	if (!err && reader->padded)
		err = skip_padding(reader);
	if (!err && reader->buffer.len > STRETCH_MAX)
		err = decode_damaged(&reader->decoder, reader->base, "no checksum follows");
	return err;
}

/* The file has ended: a last stretch without checksum is taken as it is. */
static struct error *take_tail(struct recording_reader *reader, bool *cut)
{
	struct error *err;

	*cut = !reader->decoder.has_end || reader->buffer.len > 0 || reader->padded;
	if (!reader->has_head && reader->buffer.len == 0)
		return error_new(ERR_INPUT, "%s is empty", reader->file->name);
	if (!reader->has_head && !has_magic(reader))
		return no_recording(reader);
	err = reader->has_head ? decode(reader) : NULL;
	if (!err && !reader->decoder.has_info)
		err = error_new(ERR_INPUT, "%s ends before its first sample", reader->file->name);
	return err;
}

static struct error *read_all(struct recording_reader *reader, bool *cut)
{
	const uint64_t size = recording_file_size(reader->file);
	struct bytes *buffer = &reader->buffer;
	struct error *err;
	size_t got;

	for (;;) {
		err = walk(reader);
		if (!err)
			err = bytes_reserve(buffer, READ_SIZE);
		if (!err)
			err = recording_file_read(reader->file, buffer->data + buffer->len,
						  READ_SIZE, &got);
		if (err)
			return err;
		if (got == 0)
			return take_tail(reader, cut);
		buffer->len += got;
		recording_progress(reader->decoder.visitor, reader->base + buffer->len, size);
	}
}

struct error *recording_read_file(struct recording_file *file, struct bytes *begun,
				  struct stacks *stacks, const struct recording_visitor *visitor,
				  bool *cut)
{
	struct recording_reader reader = {.file = file,
					  .buffer = *begun,
					  .decoder = {.name = file->name,
						      .stacks = stacks,
						      .visitor = visitor}};
	struct error *err;

	*begun = (struct bytes){0};
	*cut = true;
	err = read_all(&reader, cut);
	decoder_free(&reader.decoder);
	bytes_free(&reader.buffer);
	return err;
}

struct error *recording_read(const char *path, struct stacks *stacks,
			     const struct recording_visitor *visitor, bool *cut)
{
	struct recording_file file;
	struct bytes nothing = {0};
	struct error *err;

	*cut = true;
	err = recording_file_open(path, &file);
	if (err)
		return err;
	err = recording_read_file(&file, &nothing, stacks, visitor, cut);
	error_free(recording_file_close(&file));
	return err;
}
