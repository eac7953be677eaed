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

#endif
