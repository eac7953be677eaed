/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef UNIPROF_OUTPUT_SINK_H
#define UNIPROF_OUTPUT_SINK_H

/*
 * A large buffer in front of a descriptor, for filters that must be faster
 * than stdio. Everything may be read but only sink_* may write.
 */

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "base/error.h"

#define SINK_SIZE (1u << 20)

struct sink {
	int fd;
	const char *name; /* for messages */
	char *bytes;
	size_t len;	  /* bytes that are waiting */
	uint64_t flushes; /* so often all that was waiting has been written */
};

struct error *sink_new(struct sink *sink, int fd, const char *name);

/* Forgets what is waiting; the descriptor stays open. */
void sink_free(struct sink *sink);

/* ERR_OUTPUT when writing fails. */
struct error *sink_flush(struct sink *sink);

/* Makes room for up to `len` bytes (at most SINK_SIZE) that are then written to `*at`... */
static inline struct error *sink_reserve(struct sink *sink, size_t len, char **at)
{
	struct error *err = len > SINK_SIZE - sink->len ? sink_flush(sink) : NULL;

	*at = sink->bytes + sink->len;
	return err;
}

/* ... and says how many there were. */
static inline void sink_commit(struct sink *sink, size_t len)
{
	sink->len += len;
}

/* Takes back the last byte that was put; not possible after a flush. */
void sink_take_back(struct sink *sink);

/* For what does not fit: flushes, and writes directly what is too large to wait, but its end. */
struct error *sink_put_slowly(struct sink *sink, const char *bytes, size_t len);

static inline struct error *sink_put(struct sink *sink, const char *bytes, size_t len)
{
	if (len > SINK_SIZE - sink->len)
		return sink_put_slowly(sink, bytes, len);
	memcpy(sink->bytes + sink->len, bytes, len);
	sink->len += len;
	return NULL;
}

#endif
