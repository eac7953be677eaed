/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef UNIPROF_BASE_LIMITS_H
#define UNIPROF_BASE_LIMITS_H

/*
 * Limits for a process that reads files: of CPU time, waiting and memory, a base
 * and more for each byte that a file takes on its disk. A small file that unpacks
 * to gigabytes, or has no end, is refused; a large one is read.
 */

#include <stdint.h>

/* Sets those of CPU time and memory; a process over its CPU time gets SIGXCPU. */
void limits_set(void);

/* How long all of it may take for the file at `path`, waiting included: to be set by alarm(2). */
unsigned limits_seconds(const char *path);

/* Raises both limits that are set for an open regular file. */
void limits_raise(int fd);

/* Raises the limit of CPU time to the highest, for a process that answers many questions. */
void limits_serve(void);

/* Bytes of memory that a process with limits has for the file at `path`; a pipe is not opened. */
uint64_t limits_memory(const char *path);

#endif
