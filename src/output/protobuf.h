/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef UNIPROF_OUTPUT_PROTOBUF_H
#define UNIPROF_OUTPUT_PROTOBUF_H

/*
 * Messages in the encoding of Protocol Buffers (protobuf.dev, "Encoding"):
 * fields one behind the other, in any order. Zero is what an absent number is.
 */

#include "base/bytes.h"

struct protobuf {
	struct bytes bytes;
	bool no_memory; /* then the message is not whole */
};

/* Starts again, in the same memory. */
void protobuf_clear(struct protobuf *message);
void protobuf_free(struct protobuf *message);

void protobuf_number(struct protobuf *message, unsigned field, uint64_t value);
void protobuf_bytes(struct protobuf *message, unsigned field, const void *data, size_t len);
void protobuf_message(struct protobuf *message, unsigned field, const struct protobuf *inner);

/* An element of a repeated number, to be packed by protobuf_message. */
void protobuf_element(struct protobuf *message, uint64_t value);

#endif
