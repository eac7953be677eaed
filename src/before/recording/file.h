/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef UNIPROF_PROFILE_RECORDING_FILE_H
#define UNIPROF_PROFILE_RECORDING_FILE_H

/*
 * The file below a recording: bytes in or out, in order, with sentences that
 * name the path. "-" is standard output or input. Private to src/profile.
 */

#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

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

/* Reads what there is, at least a byte, at most `len`; *got is 0 at the end. ERR_INPUT. */
struct error *recording_file_read(struct recording_file *file, void *data, size_t len, size_t *got);

/* Bytes, 0 if that cannot be known (a pipe). */
uint64_t recording_file_size(const struct recording_file *file);

/* Closes and frees; an error, ERR_OUTPUT, is of interest to who has written. */
struct error *recording_file_close(struct recording_file *file);

#endif
