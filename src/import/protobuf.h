/* SPDX-License-Identifier: BSD-3-Clause */
#pragma once

/*
 * Messages in the encoding of Protocol Buffers (protobuf.dev, "Encoding"), read
 * field by field and written: fields one behind the other, in any order. An
 * absent number is zero. Messages to be written start as {0} and end with
 * protobuf_free. With the numbers of fields of pprof's messages.
 */

#include <string.h>

#include "base/bytes.h"

/* Wire types: a varint, little endian of 64 and of 32 bits, and a length with so many bytes behind it. */
enum protobuf_wire { PROTOBUF_VARINT = 0, PROTOBUF_64 = 1, PROTOBUF_LEN = 2, PROTOBUF_32 = 5 };

/* A field: a number, or bytes. */
struct protobuf_field {
	unsigned number;
	enum protobuf_wire wire;
	uint64_t value;
	struct cursor bytes;
};

/* False at the end, and with in->at NULL where the bytes are no message. */
static inline bool protobuf_next(struct cursor *in, struct protobuf_field *field)
{
	uint64_t key = 0, len = 0;
	bool good;

	*field = (struct protobuf_field){0};
	if (!in->at || in->at == in->end)
		return false;
	good = get_varint(in, &key) && key >> 3 && key >> 3 <= 0x1fffffff;
	field->number = (unsigned)(key >> 3);
	field->wire = (enum protobuf_wire)(key & 7);
	if (good && field->wire == PROTOBUF_VARINT)
		good = get_varint(in, &field->value);
	else if (good && field->wire == PROTOBUF_LEN)
		good = get_varint(in, &len);
	else if (good && (field->wire == PROTOBUF_64 || field->wire == PROTOBUF_32))
		len = field->wire == PROTOBUF_64 ? 8 : 4;
	else
		good = false;
	if (!good || len > (uint64_t)(in->end - in->at)) {
		in->at = NULL;
		return false;
	}
	field->bytes = (struct cursor){in->at, in->at + len};
	in->at += len;
	return true;
}

/* To be written. */
struct protobuf {
	struct bytes bytes;
	bool no_memory; /* then the message is not whole */
};

/* Empties it, and keeps its memory. */
static inline void protobuf_clear(struct protobuf *message)
{
	message->bytes.len = 0;
}

static inline void protobuf_free(struct protobuf *message)
{
	bytes_free(&message->bytes);
}

static inline bool protobuf_reserve(struct protobuf *message, size_t more)
{
	struct error *err;

	if (more <= message->bytes.cap - message->bytes.len)
		return true;
	err = bytes_reserve(&message->bytes, more);
	message->no_memory |= err != NULL;
	error_free(err);
	return !err;
}

/* Adds an element of a repeated number, to be packed by protobuf_message. */
static inline void protobuf_element(struct protobuf *message, uint64_t value)
{
	if (protobuf_reserve(message, VARINT_MAX))
		put_varint(&message->bytes, value);
}

/* Adds a varint, unless it is zero. */
static inline void protobuf_number(struct protobuf *message, unsigned field, uint64_t value)
{
	if (!value)
		return;
	protobuf_element(message, field << 3 | PROTOBUF_VARINT);
	protobuf_element(message, value);
}

/* Adds a number of 64 bits, also zero. */
static inline void protobuf_fixed64(struct protobuf *message, unsigned field, uint64_t value)
{
	uint8_t bytes[sizeof(value)];

	for (unsigned i = 0; i < sizeof(bytes); i++)
		bytes[i] = (uint8_t)(value >> 8 * i);
	protobuf_element(message, field << 3 | PROTOBUF_64);
	if (protobuf_reserve(message, sizeof(bytes)))
		put_bytes(&message->bytes, bytes, sizeof(bytes));
}

/* Adds the beginning of a message of `len` bytes, which the caller puts behind it. */
static inline void protobuf_head(struct protobuf *message, unsigned field, size_t len)
{
	protobuf_element(message, field << 3 | PROTOBUF_LEN);
	protobuf_element(message, len);
}

static inline void protobuf_bytes(struct protobuf *message, unsigned field, const void *data,
				  size_t len)
{
	protobuf_head(message, field, len);
	if (len && protobuf_reserve(message, len))
		put_bytes(&message->bytes, data, len);
}

static inline void protobuf_text(struct protobuf *message, unsigned field, const char *text)
{
	protobuf_bytes(message, field, text, strlen(text));
}

/* Adds a whole message, also an empty one. */
static inline void protobuf_message(struct protobuf *message, unsigned field,
				    const struct protobuf *inner)
{
	message->no_memory |= inner->no_memory;
	protobuf_bytes(message, field, inner->bytes.data, inner->bytes.len);
}

/* profile.proto (github.com/google/pprof/proto). */
enum {
	PPROF_SAMPLE_TYPE = 1,
	PPROF_SAMPLE,
	PPROF_MAPPING,
	PPROF_LOCATION,
	PPROF_FUNCTION,
	PPROF_STRING,
	PPROF_TIME_NANOS = 9,
	PPROF_DURATION_NANOS,
	PPROF_PERIOD_TYPE,
	PPROF_PERIOD,
	PPROF_COMMENT,
	PPROF_DEFAULT_SAMPLE_TYPE,
};
enum { PPROF_VALUE_TYPE = 1, PPROF_VALUE_UNIT };
enum { PPROF_SAMPLE_LOCATION = 1, PPROF_SAMPLE_VALUE, PPROF_SAMPLE_LABEL };
enum { PPROF_LABEL_KEY = 1, PPROF_LABEL_STR, PPROF_LABEL_NUM };
enum {
	PPROF_MAPPING_ID = 1,
	PPROF_MAPPING_START,
	PPROF_MAPPING_LIMIT,
	PPROF_MAPPING_OFFSET,
	PPROF_MAPPING_FILE,
	PPROF_MAPPING_BUILD_ID,
	PPROF_MAPPING_HAS_FUNCTIONS,
	PPROF_MAPPING_HAS_FILES,
	PPROF_MAPPING_HAS_LINES,
	PPROF_MAPPING_HAS_INLINE
};
enum { PPROF_LOCATION_ID = 1, PPROF_LOCATION_MAPPING, PPROF_LOCATION_ADDRESS, PPROF_LOCATION_LINE };
enum { PPROF_LINE_FUNCTION = 1, PPROF_LINE_LINE };
enum {
	PPROF_FUNCTION_ID = 1,
	PPROF_FUNCTION_NAME,
	PPROF_FUNCTION_SYSTEM_NAME,
	PPROF_FUNCTION_FILE
};
