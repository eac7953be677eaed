/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef UNIPROF_FORMAT_PROTOBUF_H
#define UNIPROF_FORMAT_PROTOBUF_H

/*
 * Messages in the encoding of Protocol Buffers (protobuf.dev, "Encoding"):
 * fields one behind the other, in any order. An absent number is zero.
 * Messages start as {0} and end with protobuf_free.
 */

#include "base/bytes.h"

struct protobuf {
	struct bytes bytes;
	bool no_memory; /* then the message is not whole */
};

/* Empties it, and keeps its memory. */
void protobuf_clear(struct protobuf *message);
void protobuf_free(struct protobuf *message);

/* Adds an element of a repeated number, to be packed by protobuf_message. */
void protobuf_element(struct protobuf *message, uint64_t value);

/* Adds a varint, unless it is zero. */
void protobuf_number(struct protobuf *message, unsigned field, uint64_t value);

/* Adds a number of 64 bits, also zero. */
void protobuf_fixed64(struct protobuf *message, unsigned field, uint64_t value);

void protobuf_bytes(struct protobuf *message, unsigned field, const void *data, size_t len);
void protobuf_text(struct protobuf *message, unsigned field, const char *text);

/* Adds the beginning of a message of `len` bytes, which the caller puts behind it. */
void protobuf_head(struct protobuf *message, unsigned field, size_t len);

/* Adds a whole message, also an empty one. */
void protobuf_message(struct protobuf *message, unsigned field, const struct protobuf *inner);

#endif
