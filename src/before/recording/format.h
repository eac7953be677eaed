/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef UNIPROF_PROFILE_RECORDING_FORMAT_H
#define UNIPROF_PROFILE_RECORDING_FORMAT_H

/*
 * What the writer and the reader of recordings agree on; docs/recording.md
 * says the same in words, and why. Private to src/profile.
 */

/* The head of a file: the magic, then one byte each of major and minor version. */
#define RECORDING_MAGIC	    "\x89uniprof"
#define RECORDING_MAGIC_LEN 8
#define RECORDING_MAJOR	    1
#define RECORDING_MINOR	    1
#define RECORDING_HEAD_LEN  (RECORDING_MAGIC_LEN + 2)

/* Then records: length of the payload (varint), type (one byte), payload. */
enum record_type {
	RECORD_CHECK = 1,	/* CRC-32, low byte first, of all since the last CRC */
	RECORD_INFO = 2,	/* JSON: struct recording_info */
	RECORD_NODES = 3,	/* stack nodes, one behind the other */
	RECORD_TICK = 4,	/* a tick that weighs as much as the one before */
	RECORD_TICK_SINCE = 5,	/* a tick that weighs the time since the one before */
	RECORD_TICK_WEIGHT = 6, /* a tick that says what it weighs */
	RECORD_NAME = 7,	/* the name for an address */
	RECORD_END = 8,		/* JSON: struct recording_end */
	RECORD_TEXT = 9,	/* what places are made of */
	RECORD_PLACES = 10,	/* where in the source an address is */
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

/* The longest name of a function, bytes. */
#define NAME_MAX_LEN (64u << 10)

/* In a node's first number, below how far back its parent is. */
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

#endif
