/* SPDX-License-Identifier: BSD-3-Clause */
#include "format/protobuf.h"

#include <string.h>

/* Wire types: a varint, 64 bits in little endian, and a length with so many bytes behind it. */
#define WIRE_VARINT 0
#define WIRE_64	    1
#define WIRE_LEN    2

void protobuf_clear(struct protobuf *message)
{
	message->bytes.len = 0;
}

void protobuf_free(struct protobuf *message)
{
	bytes_free(&message->bytes);
}

static bool reserve(struct protobuf *message, size_t more)
{
	struct error *err = bytes_reserve(&message->bytes, more);

	message->no_memory |= err != NULL;
	error_free(err);
	return !err;
}

void protobuf_element(struct protobuf *message, uint64_t value)
{
	if (reserve(message, VARINT_MAX))
		put_varint(&message->bytes, value);
}

void protobuf_number(struct protobuf *message, unsigned field, uint64_t value)
{
	if (!value)
		return;
	protobuf_element(message, field << 3 | WIRE_VARINT);
	protobuf_element(message, value);
}

void protobuf_fixed64(struct protobuf *message, unsigned field, uint64_t value)
{
	uint8_t bytes[sizeof(value)];

	for (unsigned i = 0; i < sizeof(bytes); i++)
		bytes[i] = (uint8_t)(value >> 8 * i);
	protobuf_element(message, field << 3 | WIRE_64);
	if (reserve(message, sizeof(bytes)))
		put_bytes(&message->bytes, bytes, sizeof(bytes));
}

void protobuf_head(struct protobuf *message, unsigned field, size_t len)
{
	protobuf_element(message, field << 3 | WIRE_LEN);
	protobuf_element(message, len);
}

void protobuf_bytes(struct protobuf *message, unsigned field, const void *data, size_t len)
{
	protobuf_head(message, field, len);
	if (len && reserve(message, len))
		put_bytes(&message->bytes, data, len);
}

void protobuf_text(struct protobuf *message, unsigned field, const char *text)
{
	protobuf_bytes(message, field, text, strlen(text));
}

void protobuf_message(struct protobuf *message, unsigned field, const struct protobuf *inner)
{
	message->no_memory |= inner->no_memory;
	protobuf_bytes(message, field, inner->bytes.data, inner->bytes.len);
}
