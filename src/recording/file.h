/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef UNIPROF_RECORDING_FILE_H
#define UNIPROF_RECORDING_FILE_H

/*
 * The file below a recording: bytes in or out, in order, with sentences that
 * name the path. "-" is standard output or input. Private to src/recording and
 * src/import.
 */

#include <stddef.h>
#include <stdint.h>

#include "base/bytes.h"
#include "base/error.h"
#include "recording/format.h"
#include "recording/recording.h"

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
 * Private to src/recording.
 */

struct decoder {
	const char *name;      /* of the file, for sentences; the caller's */
	struct stacks *stacks; /* the caller's */
	const struct recording_visitor *visitor;
	struct recording_info info;
	bool has_info, has_end;
	/* [nodes]: the file's node ids in `stacks`; NULL: the same, for that was new */
	uint32_t *ids;
	uint32_t nodes, ids_cap;
	struct tick_entry *last;    /* [info.vcpus]: the last entry of each */
	struct tick_entry *entries; /* [info.vcpus + TICK_WAITS_MAX]: the tick that is being read */
	struct tick_entry *waits; /* [TICK_WAITS_MAX]: threads that do not run, of the next tick */
	uint32_t n_waits;
	uint64_t time_ns, weight_ns, paused_ns;
	struct recorded_thread *thread; /* [threads]: number 1 is thread[0] */
	size_t threads, threads_room;
	char **text; /* [texts]: number 1 is text[0] */
	size_t texts, texts_room;
};

/* A record at byte `offset` of the file. ERR_INPUT names that byte; a visitor's error is passed on. */
struct error *decode_record(struct decoder *decoder, unsigned type, struct cursor payload,
			    uint64_t offset);

/* ERR_INPUT: "NAME is damaged at byte OFFSET: WHY". */
struct error *decode_damaged(const struct decoder *decoder, uint64_t offset, const char *why);

void decoder_free(struct decoder *decoder);

#endif
