/* SPDX-License-Identifier: BSD-3-Clause */
#pragma once

/*
 * The writer and the reader of recordings share this: constants and JSON of the
 * format, the file below it, the decoder and the encoder; docs/recording.md
 * explains the format, and why. Private to src/recording and src/import.
 */

#include <stddef.h>
#include <stdint.h>

#include "base/bytes.h"
#include "base/error.h"
#include "base/intern.h"
#include "recording/recording.h"

/* The head of a file: the magic, then one byte each of major and minor version. */
#define RECORDING_MAGIC	    "\x89uniprof"
#define RECORDING_MAGIC_LEN 8
#define RECORDING_MAJOR	    1
#define RECORDING_MINOR	    6
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
	RECORD_EXITS = 15,  /* how often a vCPU has left the guest, for a reason and at a place */
	RECORD_CONTAINER = 16, /* the one of the threads that follow */
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

/*
 * The file below a recording: bytes in or out, in order, with sentences that
 * name the path. "-" is standard output or input.
 */

struct recording_file {
	int fd;
	char *name; /* for sentences */
};

/* Creates or empties `path`. ERR_OUTPUT. */
struct error *recording_file_create(const char *path, struct recording_file *out);

/* Opens `path` to read it. ERR_INPUT. */
struct error *recording_file_open(const char *path, struct recording_file *out);

/* Writes everything, however many system calls it takes, or fails with ERR_OUTPUT. */
struct error *recording_file_write(struct recording_file *file, const void *data, size_t len);

/* Reads available bytes, at least one, at most `len`; *got is 0 at the end. ERR_INPUT. */
struct error *recording_file_read(struct recording_file *file, void *data, size_t len, size_t *got);

/* Bytes, 0 if that cannot be known (a pipe). */
uint64_t recording_file_size(const struct recording_file *file);

/* Closes and frees; the error, ERR_OUTPUT, matters only to writers. */
struct error *recording_file_close(struct recording_file *file);

/* Like recording_read, of a file that is open and whose beginning is in `begun`, which is taken over. */
struct error *recording_read_file(struct recording_file *file, struct bytes *begun,
				  struct stacks *stacks, const struct recording_visitor *visitor,
				  bool *cut);

/*
 * From the records of a recording to the visitor, one whole record at a time
 * (decode.c). Keeps what records refer back to: nodes, the last tick, each
 * vCPU's last entry. Every number is checked, whatever a checksum said about it.
 */

struct decoder {
	const char *name;      /* of the file, for sentences; the caller's */
	struct stacks *stacks; /* the caller's */
	const struct recording_visitor *visitor;
	struct recording_info info;
	bool has_info, has_end;
	unsigned type;	 /* of the record that is being decoded, */
	uint64_t offset; /* and where in the file it is */
	/* [nodes]: the file's node ids in `stacks`; NULL: the same */
	uint32_t *ids;
	uint32_t nodes;
	size_t ids_room;
	struct tick_entry *last;    /* [info.vcpus]: the last entry of each */
	struct tick_entry *entries; /* [info.vcpus + TICK_WAITS_MAX]: the tick that is being read */
	struct tick_entry *waits; /* [TICK_WAITS_MAX]: threads that do not run, of the next tick */
	uint32_t n_waits;
	uint64_t time_ns, weight_ns, paused_ns;
	struct recorded_thread *thread; /* [threads]: number 1 is thread[0] */
	size_t threads, threads_room;
	const char *container; /* of the threads that follow; NULL: not known */
	const char **text;     /* [texts]: number 1 is text[0] */
	size_t texts, texts_room;
	struct pool *pool; /* of all these texts */
};

/* A record at byte `offset` of the file. ERR_INPUT names that byte; a visitor's error is passed on. */
struct error *decode_record(struct decoder *decoder, unsigned type, struct cursor payload,
			    uint64_t offset);

/* ERR_INPUT: "NAME is damaged at byte OFFSET: WHY". */
struct error *decode_damaged(const struct decoder *decoder, uint64_t offset, const char *why);

void decoder_free(struct decoder *decoder);

/*
 * From ticks and names to records, appended to a buffer (encode.c). Keeps what records
 * refer back to: nodes, the last tick, each vCPU's last entry.
 */

struct encoder {
	const struct stacks *stacks;		    /* the caller's */
	uint32_t nodes;				    /* so many are encoded, the root included */
	uint32_t threads;			    /* so many are encoded */
	char container[RECORDED_CONTAINER_MAX + 1]; /* of the last of them; "": not known */
	uint32_t vcpus;
	struct tick_entry *last; /* [vcpus]: the last entry of each */
	uint64_t time_ns, weight_ns, paused_ns;
	uint64_t pause_remainder_ns; /* remainder of pauses */
	/* Precision of moments, pauses, and CPU time. */
	uint64_t time_grain_ns, pause_grain_ns, ran_grain_ns;
};

struct error *encoder_init(struct encoder *encoder, const struct stacks *stacks, uint32_t vcpus);
void encoder_free(struct encoder *encoder);

/* As recording_pack() says. */
void encoder_coarsen(struct encoder *encoder, uint64_t period_ns);

/* The first bytes of a file. */
struct error *encode_head(struct bytes *out);

/* RECORD_INFO or RECORD_END. */
struct error *encode_json(const struct bytes *json, enum record_type type, struct bytes *out);

/*
 * True if the caller keeps recording_tick's rules. *newest is the highest stack
 * id in the tick: encode nodes up to it first.
 */
bool encode_allows(const struct encoder *encoder, const struct tick *tick, uint32_t *newest);

/* One record of nodes not yet encoded, as many as go into one, up to `last` at most. */
struct error *encode_nodes(struct encoder *encoder, uint32_t last, struct bytes *out);

/* The next thread; before it its container, if that is another than the last one's. */
struct error *encode_thread(struct encoder *encoder, const struct recorded_thread *thread,
			    struct bytes *out);

/* A tick; before it, which threads run where others did, and those that do not run. */
struct error *encode_tick(struct encoder *encoder, const struct tick *tick, struct bytes *out);

struct error *encode_exits(const struct recorded_exits *exits, struct bytes *out);

struct error *encode_name(uint64_t addr, uint8_t kind, const char *name, uint64_t offset,
			  struct bytes *out);

/* Puts all records of `out` into a packed one, unless that is no shorter. */
struct error *encode_packed(struct bytes *out);

/* The check for all of `out`, which began behind the last check. */
struct error *encode_check(struct bytes *out);

/*
 * Appends the texts that are new, then the source locations of an address. `written` numbers
 * the texts by their pointers, which the caller keeps valid: each is written once.
 */
struct error *encode_locations(struct ids *written, uint64_t addr, uint8_t kind,
			       const struct source_frame *frames, size_t n, struct bytes *out);
