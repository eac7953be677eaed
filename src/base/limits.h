/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef UNIPROF_BASE_LIMITS_H
#define UNIPROF_BASE_LIMITS_H

/*
 * Limits for a process that reads files: of CPU time, and of memory, a base
 * and more for each byte that a file takes on its disk. A small file that unpacks
 * to gigabytes is refused; a large one is read.
 */

#include <stdint.h>

/* Sets both; a process over its CPU time gets SIGXCPU. */
void limits_set(void);

/*
 * Raises the limit of memory for an open regular file. No effect in a process
 * without limits.
 */
void limits_raise(int fd);

/* Bytes of memory that a process with limits has for the file at `path`; a pipe is not opened. */
uint64_t limits_memory(const char *path);

#endif
