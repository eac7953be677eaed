/* SPDX-License-Identifier: BSD-3-Clause */
#pragma once

/*
 * Descriptors of this process: sets of them, and files that are opened ahead.
 */

#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"

/*
 * A set, for libraries that do not tell which ones they have opened. Higher
 * descriptors are ignored: they are opened long after those that matter here.
 */
#define DESCRIPTORS_MAX 4096

struct descriptors {
	uint64_t bits[DESCRIPTORS_MAX / 64];
};

/* Those that are open now. */
void descriptors_collect(struct descriptors *set);

/* Removes the descriptors of `others` from the set. */
void descriptors_subtract(struct descriptors *set, const struct descriptors *others);

void descriptors_add(struct descriptors *set, int fd);

/* Closes all that are not in the set. */
void descriptors_close_others(const struct descriptors *keep);

/*
 * Files are opened ahead while the rights of whoever started us are still there
 * (base/privilege.h), and read or written when they are gone. Whoever needs a
 * file opens it by its path as ever, with the two functions at the end; they
 * hand out what was opened ahead under that same path.
 *
 * The list belongs to the process, as its rights do.
 */

/* A failure is kept, too, and reported when the file is opened. "-" and NULL open nothing. */
struct error *preopen_input(const char *path);

/* As above, of a file that may be a FIFO: errno is ENODATA if nobody opens it to write for 10 s. */
struct error *preopen_bounded_input(const char *path);

/* Creates what is missing; what is there keeps its contents until it is opened. */
struct error *preopen_output(const char *path);

/* For output that is read again afterwards. */
struct error *preopen_output_and_input(const char *path);

/* Takes over a descriptor to read from, as if it had been opened under this path. */
struct error *preopen_adopt(const char *path, int fd);

/* Closes what was adopted under this path, if anything was. */
void preopen_forget(const char *path);

/* Was this path opened ahead to be read, whether that worked or not? */
bool preopen_has_input(const char *path);

/* Adds all these descriptors to the set. */
void preopen_add(struct descriptors *set);

/* Closes everything: files are opened when they are asked for again. */
void preopen_close(void);

/*
 * Like open(2) for reading, and for writing a file that is created or
 * emptied: a descriptor, or -1 with errno. A file opened ahead has one
 * position, shared by all its descriptors; it is at the start when this
 * returns. What is written can be read by its owner alone, and is locked
 * (flock(2)) as long as it is open: a file that another process writes, or
 * that was opened ahead to be read, is refused.
 */
int open_to_read(const char *path);
int open_to_write(const char *path);

/* ERR_OUTPUT, with a sentence for the errno of open_to_write. */
struct error *open_to_write_error(const char *path, int error) MUST_CHECK;

/*
 * Would open_to_read open a regular file? To be asked of paths that no user
 * gave: reading a FIFO or a device may never end.
 */
bool is_regular_file(const char *path);

/*
 * The root directory of a guest as it is on this machine: a mounted image, or
 * where its files were copied to. Paths are the guest's, and so are the symbolic links
 * below it: none leads out of the directory.
 */

/* Preopens the directory. Of several the last counts. */
struct error *sysroot_preopen(const char *dir);

/* True if there is one. */
bool sysroot_is_given(void);

/*
 * Opens a regular file at a whole path of the guest; -1 with errno if there is none, EACCES where
 * we may not look. What is no regular file is not opened, nor are more links followed than Linux does.
 */
int sysroot_open(const char *path);

/* As above, of a file that is no link itself. */
int sysroot_open_itself(const char *path);

/*
 * As sysroot_open, and adopts it: *name is what the file is opened by from then
 * on, NULL with errno if there is none; the caller frees it.
 */
struct error *sysroot_adopt(const char *path, char **name);
