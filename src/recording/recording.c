/* SPDX-License-Identifier: BSD-3-Clause */
#include "recording/format.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#include "base/array.h"
#include "base/owned.h"

#define FLUSH_NS UINT64_C(1000000000)

struct recording_writer {
	struct recording_file file;
	struct encoder encoder;
	struct ids *texts;    /* of source locations, by pointer */
	struct bytes stretch; /* records since the last check; not yet in the file */
	uint64_t flushed_ns;  /* time of the last tick when it was last written */
	bool packs;	      /* stretches are compressed, and written only when they are long */
	bool broken;	      /* a write failed: the file ends there, whatever follows */
};

static struct error *check_usable(const struct recording_writer *writer)
{
	if (writer->broken)
		return error_new(ERR_OUTPUT, "cannot write to %s any more", writer->file.name);
	return NULL;
}

/* Closes the stretch with a check and writes it to the file. */
static struct error *write_stretch(struct recording_writer *writer)
{
	struct bytes *stretch = &writer->stretch;
	struct error *err;

	writer->flushed_ns = writer->encoder.time_ns;
	if (stretch->len == 0)
		return NULL;
	err = writer->packs ? encode_packed(stretch) : NULL;
	if (!err)
		err = encode_check(stretch);
	if (!err)
		err = recording_file_write(&writer->file, stretch->data, stretch->len);
	writer->broken = err != NULL;
	stretch->len = 0;
	return err;
}

static struct error *write_if_long(struct recording_writer *writer)
{
	return writer->stretch.len >= STRETCH_WRITE ? write_stretch(writer) : NULL;
}

static void writer_free(struct recording_writer *writer)
{
	encoder_free(&writer->encoder);
	ids_free(writer->texts);
	bytes_free(&writer->stretch);
	free(writer);
}

static struct error *put_head(struct recording_writer *writer, const struct recording_info *info)
{
	ENDED_BY(bytes_free) struct bytes json = {0};

	TRY(encode_head(&writer->stretch));
	TRY(recording_info_write(info, &json));
	return encode_json(&json, RECORD_INFO, &writer->stretch);
}

bool recording_begins(const void *data, size_t len)
{
	return len >= RECORDING_MAGIC_LEN && !memcmp(data, RECORDING_MAGIC, RECORDING_MAGIC_LEN);
}

struct error *recording_create(const char *path, const struct recording_info *info,
			       const struct stacks *stacks, struct recording_writer **out)
{
	struct recording_writer *writer;
	struct error *err;

	if (info->vcpus > RECORDING_MAX_VCPUS)
		return error_new(ERR_GUEST, "the guest has %u vCPUs, a recording at most %u",
				 info->vcpus, RECORDING_MAX_VCPUS);
	if (!isfinite(info->rate_hz) || info->rate_hz < 0)
		return error_new(ERR_FAILED, "a recording's rate must be a number, not below 0");
	TRY(ARRAY_NEW(&writer, 1));
	err = encoder_init(&writer->encoder, stacks, info->vcpus);
	if (!err)
		err = ids_new(&writer->texts);
	if (!err)
		err = put_head(writer, info);
	if (!err)
		err = recording_file_create(path, &writer->file);
	if (err) {
		writer_free(writer);
		return err;
	}
	err = write_stretch(writer);
	if (err) {
		recording_abandon(writer);
		return err;
	}
	*out = writer;
	return NULL;
}

void recording_pack(struct recording_writer *writer, uint64_t period_ns)
{
	writer->packs = true;
	encoder_coarsen(&writer->encoder, period_ns);
}

static struct error *put_nodes(struct recording_writer *writer, uint32_t last)
{
	while (writer->encoder.nodes <= last) {
		TRY(encode_nodes(&writer->encoder, last, &writer->stretch));
		TRY(write_if_long(writer));
	}
	return NULL;
}

struct error *recording_tick(struct recording_writer *writer, const struct tick *tick)
{
	uint32_t newest;

	TRY(check_usable(writer));
	if (!encode_allows(&writer->encoder, tick, &newest))
		return error_new(ERR_FAILED, "a sample does not fit the recording: time, vCPU, "
					     "state, stack or thread is out of range or order");
	TRY(put_nodes(writer, newest));
	TRY(encode_tick(&writer->encoder, tick, &writer->stretch));
	if (!writer->packs && tick->time_ns - writer->flushed_ns >= FLUSH_NS)
		return write_stretch(writer);
	return write_if_long(writer);
}

struct error *recording_thread(struct recording_writer *writer,
			       const struct recorded_thread *thread)
{
	TRY(check_usable(writer));
	if (writer->encoder.threads == RECORDED_THREADS_MAX)
		return error_new(ERR_FAILED, "a recording has at most %u threads",
				 RECORDED_THREADS_MAX);
	TRY(encode_thread(&writer->encoder, thread, &writer->stretch));
	return write_if_long(writer);
}

struct error *recording_exits(struct recording_writer *writer, const struct recorded_exits *exits)
{
	TRY(check_usable(writer));
	if (exits->vcpu >= writer->encoder.vcpus || exits->stack == STACK_ROOT ||
	    exits->stack >= stacks_count(writer->encoder.stacks))
		return error_new(ERR_FAILED, "exits of a vCPU or at a place that there is not");
	TRY(put_nodes(writer, exits->stack));
	TRY(encode_exits(exits, &writer->stretch));
	return write_if_long(writer);
}

struct error *recording_name(struct recording_writer *writer, uint64_t addr, uint8_t kind,
			     const char *name, uint64_t offset)
{
	TRY(check_usable(writer));
	if (kind >= FRAME_KINDS)
		return error_new(ERR_FAILED, "a name for a frame of kind %u, which there is not",
				 kind);
	TRY(encode_name(addr, kind, name, offset, &writer->stretch));
	return write_if_long(writer);
}

struct error *recording_locations(struct recording_writer *writer, uint64_t addr, uint8_t kind,
				  const struct source_frame *frames, size_t n)
{
	TRY(check_usable(writer));
	if (kind >= FRAME_KINDS || !n || n > SOURCE_DEPTH)
		return error_new(ERR_FAILED, "places in the source that cannot be");
	TRY(encode_locations(writer->texts, addr, kind, frames, n, &writer->stretch));
	return write_if_long(writer);
}

struct error *recording_flush(struct recording_writer *writer)
{
	TRY(check_usable(writer));
	return write_stretch(writer);
}

/* Appends the end and writes it all out. */
static struct error *finish(struct recording_writer *writer, const struct recording_end *end)
{
	ENDED_BY(bytes_free) struct bytes json = {0};
	struct error *err = end ? recording_end_write(end, &json) : NULL;

	if (end && !err)
		err = encode_json(&json, RECORD_END, &writer->stretch);
	return error_first(err, write_stretch(writer));
}

struct error *recording_close(struct recording_writer *writer, const struct recording_end *end)
{
	/* The call that broke the writer has returned its error. */
	struct error *err = writer->broken ? NULL : finish(writer, end);

	err = error_first(err, recording_file_close(&writer->file));
	writer_free(writer);
	return err;
}

void recording_abandon(struct recording_writer *writer)
{
	error_free(recording_file_close(&writer->file));
	writer_free(writer);
}

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
	uint64_t len;
	uLongf got;

	if (!get_varint(&in, &len) || !len || len > UNPACKED_MAX)
		return decode_damaged(decoder, offset, "a packed record's length cannot be");
	TRY(bytes_reserve(out, len));
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
	ENDED_BY(bytes_free) struct bytes data = {0};
	struct cursor records;
	struct record record;

	TRY(unpack(decoder, packed, offset, &data));
	records = (struct cursor){data.data, data.data + data.len};
	while (records.at < records.end) {
		if (find_record(records, reader->minor, &record) != FOUND ||
		    record.type == RECORD_CHECK || record.type == RECORD_PACKED)
			return decode_damaged(decoder, offset, "no record can be packed like that");
		TRY(decode_record(decoder, record.type, record.payload, offset));
		records.at = record.payload.end;
	}
	return NULL;
}

/* Decodes the records of buffer[0..walked), head excluded. */
static struct error *decode(struct recording_reader *reader)
{
	size_t at = reader->base == 0 ? RECORDING_HEAD_LEN : 0;
	struct record record;

	while (at < reader->walked && find_buffered(reader, at, &record) == FOUND) {
		if (record.type == RECORD_PACKED)
			TRY(decode_packed(reader, record.payload, reader->base + at));
		else if (record.type != RECORD_CHECK)
			TRY(decode_record(&reader->decoder, record.type, record.payload,
					  reader->base + at));
		at = (size_t)(record.payload.end - reader->buffer.data);
	}
	return NULL;
}

/* Verifies the stretch that it covers, decodes it, and drops it from the buffer. */
static struct error *take_stretch(struct recording_reader *reader, const struct record *check)
{
	size_t covered = (size_t)(check->payload.at - reader->buffer.data);
	uint32_t crc = (uint32_t)crc32(0, reader->buffer.data, (uInt)covered);
	struct bytes *buffer = &reader->buffer;

	for (int i = 0; i < CHECK_LEN; i++)
		if (check->payload.at[i] != (uint8_t)(crc >> (8 * i)))
			return decode_damaged(&reader->decoder, reader->base,
					      "what follows does not match its checksum");
	TRY(decode(reader));
	buffer->len -= covered + CHECK_LEN;
	memmove(buffer->data, buffer->data + covered + CHECK_LEN, buffer->len);
	reader->base += covered + CHECK_LEN;
	reader->walked = 0;
	return NULL;
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
	struct record record;

	if (!reader->has_head) {
		if (reader->buffer.len < RECORDING_HEAD_LEN)
			return NULL;
		TRY(check_head(reader));
	}
	while (!reader->padded && reader->walked < reader->buffer.len) {
		found = find_buffered(reader, reader->walked, &record);
		reader->padded = found == FOUND_PADDING;
		if (found != FOUND)
			break;
		reader->walked = (size_t)(record.payload.end - reader->buffer.data);
		if (record.type == RECORD_CHECK)
			TRY(take_stretch(reader, &record));
	}
	if (found == FOUND_DAMAGE)
		return decode_damaged(&reader->decoder, reader->base + reader->walked,
				      "no record can begin like that");
	if (reader->padded)
		TRY(skip_padding(reader));
	if (reader->buffer.len > STRETCH_MAX)
		return decode_damaged(&reader->decoder, reader->base, "no checksum follows");
	return NULL;
}

/* The file has ended: a last stretch without checksum is taken as it is. */
static struct error *take_tail(struct recording_reader *reader, bool *cut)
{
	*cut = !reader->decoder.has_end || reader->buffer.len > 0 || reader->padded;
	if (!reader->has_head && reader->buffer.len == 0)
		return error_new(ERR_INPUT, "%s is empty", reader->file->name);
	if (!reader->has_head && !has_magic(reader))
		return no_recording(reader);
	if (reader->has_head)
		TRY(decode(reader));
	if (!reader->decoder.has_info)
		return error_new(ERR_INPUT, "%s ends before its first sample", reader->file->name);
	return NULL;
}

static struct error *read_all(struct recording_reader *reader, bool *cut)
{
	const uint64_t size = recording_file_size(reader->file);
	struct bytes *buffer = &reader->buffer;
	size_t got;

	for (;;) {
		TRY(walk(reader));
		TRY(bytes_reserve(buffer, READ_SIZE));
		TRY(recording_file_read(reader->file, buffer->data + buffer->len, READ_SIZE, &got));
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
	ENDED_BY(stacks_end) struct stacks *own = NULL;
	struct error *err;

	*cut = true;
	if (!stacks)
		TRY(stacks_new(&own));
	TRY(recording_file_open(path, &file));
	err = recording_read_file(&file, &nothing, stacks ?: own, visitor, cut);
	error_free(recording_file_close(&file));
	return err;
}
