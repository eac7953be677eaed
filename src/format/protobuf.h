/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef UNIPROF_FORMAT_PROTOBUF_H
#define UNIPROF_FORMAT_PROTOBUF_H

/*
 * Messages in the encoding of Protocol Buffers (protobuf.dev, "Encoding"):
 * fields one behind the other, in any order. An absent number is zero.
 * Messages start as {0} and end with protobuf_free.
 */

#include <string.h>

#include "base/bytes.h"

struct protobuf {
	struct bytes bytes;
	bool no_memory; /* then the message is not whole */
};

/* Wire types: a varint, 64 bits in little endian, and a length with so many bytes behind it. */
#define PROTOBUF_VARINT 0
#define PROTOBUF_64	1
#define PROTOBUF_LEN	2

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

#endif
