/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef UNIPROF_RECORDING_FORMAT_H
#define UNIPROF_RECORDING_FORMAT_H

#include "base/bytes.h"
#include "recording/recording.h"

/*
 * Constants and JSON that the writer and the reader of recordings share;
 * docs/recording.md explains the format, and why. Private to src/recording and src/import.
 */

/* The head of a file: the magic, then one byte each of major and minor version. */
#define RECORDING_MAGIC	    "\x89uniprof"
#define RECORDING_MAGIC_LEN 8
#define RECORDING_MAJOR	    1
#define RECORDING_MINOR	    4
#define RECORDING_HEAD_LEN  (RECORDING_MAGIC_LEN + 2)

/* Then records: length of the payload (varint), type (one byte), payload. */
enum record_type {
	RECORD_CHECK = 1,	/* CRC-32, low byte first, of all since the last CRC */
	RECORD_INFO = 2,	/* JSON: struct recording_info */
	RECORD_NODES = 3,	/* stack nodes, one behind the other */
	RECORD_TICK = 4,	/* a tick that weighs as much as the one before */
	RECORD_TICK_SINCE = 5,	/* a tick that weighs the time since the one before */
	RECORD_TICK_WEIGHT = 6, /* a tick with its weight */
	RECORD_NAME = 7,	/* the name for an address */
	RECORD_END = 8,		/* JSON: struct recording_end */
	RECORD_TEXT = 9,	/* strings of source locations */
	RECORD_LOCATIONS = 10,	/* where in the source an address is */
	RECORD_THREAD = 11,	/* a thread of the guest's system */
	RECORD_RUNNING = 12,	/* which threads vCPUs run from the next tick on */
	RECORD_WAITING = 13,	/* threads that do not run, of the next tick */
	RECORD_PACKED = 14, /* records, compressed; none of them is packed, a check or the info */
	RECORD_TYPES
};

/* Bytes of a check's payload, and of the whole record. */
#define CHECK_LEN    4
#define CHECK_RECORD (2 + CHECK_LEN)

/* The longest payload, and the most bytes of a record's length and type. */
#define RECORD_MAX	(1u << 20)
#define RECORD_HEAD_MAX 4

/* The writer puts a check behind this many bytes; the reader wants one within a little more. */
#define STRETCH_WRITE (64u << 10)
#define STRETCH_MAX   (STRETCH_WRITE + 2 * (RECORD_MAX + RECORD_HEAD_MAX))

/* The most bytes that a packed record unpacks to. */
#define UNPACKED_MAX STRETCH_MAX

/* The longest name of a function, bytes. */
#define NAME_MAX_LEN (64u << 10)

/* Low bits of a node's first number; above them, the distance to its parent. */
#define NODE_KIND_BITS	2
#define NODE_TRUST_BITS 2

/* The lowest two bits of the numbers that tell a tick's vCPUs. */
enum tick_op {
	TICK_REPEAT, /* above them: so many vCPUs are as they were */
	TICK_ENTRY,  /* two bits of state, above them the end; then the stack's id */
	TICK_SKIP,   /* above them: so many vCPUs are not in this tick */
	TICK_CPU,    /* above them: microseconds of CPU time that the next vCPU told has used */
};
#define TICK_OP_BITS	2
#define TICK_STATE_BITS 2

/* Low bits of a waiting thread's second number, which say its state less WAIT_QUEUED; above them, the end. */
#define WAITING_STATE_BITS 3

/* Bits of a thread's first number. */
#define THREAD_OF_KERNEL 1u
#define THREAD_IS_IDLE	 2u

/*
 * The JSON in recordings: metadata of the start and of the end. Unknown fields
 * are skipped; absent ones are 0 or NULL.
 */

/*
 * Appends the JSON to `out`. Strings that are no UTF-8 get a '?' for each
 * byte that is not; numbers above INT64_MAX become that.
 */
struct error *recording_info_write(const struct recording_info *info, struct bytes *out);
struct error *recording_end_write(const struct recording_end *end, struct bytes *out);

/*
 * Fills `info` or `end`; false if the text is no JSON, or a field has the wrong
 * type. Frees nothing that was there; after false there is nothing to free.
 */
bool recording_info_read(const void *text, size_t len, struct recording_info *info);
bool recording_end_read(const void *text, size_t len, struct recording_end *end);

#endif
