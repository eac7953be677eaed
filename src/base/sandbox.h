/* SPDX-License-Identifier: BSD-3-Clause */
#pragma once

/*
 * Processes that read one file that others wrote: without rights, and with
 * limits of CPU time, waiting and memory, a base and more for each byte that the
 * file takes on its disk. A small file that unpacks to gigabytes, or has no end,
 * is refused; a large one is read.
 */

#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

/* Sets the limits of CPU time and memory; a process over its CPU time gets SIGXCPU. */
void sandbox_limit(void);

/* How long all of it may take for the file at `path`, waiting included: to be set by alarm(2). */
unsigned sandbox_seconds(const char *path);

/* Raises both limits that are set for an open regular file. */
void sandbox_raise(int fd);

/* Raises the limit of CPU time to the highest, for a process that answers many questions. */
void sandbox_serve(void);

/* Bytes of memory that a process with limits has for the file at `path`; a pipe is not opened. */
uint64_t sandbox_memory(const char *path);

/*
 * Makes the calling process, just forked, one that the file at `path` is
 * parsed in: it keeps `fds`, standard error and the files that were opened
 * ahead (base/preopen.h), has no rights, ends with its parent, and has the
 * limits for the file.
 */
void sandbox_enter(const char *path, const int *fds, size_t n);

/* Seconds, waiting for a disk included, that one answer may take; far more than a loaded machine needs. */
#define SANDBOX_WAIT_S 120

/* The error for a reader's status that is not 0. */
struct error *sandbox_crashed(const char *path, int status) MUST_CHECK;
