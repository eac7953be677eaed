/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef UNIPROF_TARGET_HOST_MEMORY_H
#define UNIPROF_TARGET_HOST_MEMORY_H

/*
 * The memory of another process, through /proc/PID/mem: who may read it is
 * checked when it is opened, so that it can be read after all rights have been
 * given up. It stays that of the program that ran then.
 */

#include "target/host/threads.h"
#include "unwind/unwind.h"

/* *fd is for reading, and for writing if so asked; the caller closes it. */
struct error *host_memory_open(pid_t pid, bool write, int *fd);

/* Returns the bytes read, fewer where the process has no memory. */
size_t host_memory_read(int fd, uint64_t va, void *buf, size_t len);

/* Copies up to `want` bytes for a window; false if it ran out of time (until_ns; 0: no hurry). */
bool host_memory_window(int fd, uint64_t va, uint32_t want, uint8_t *buffer, uint64_t until_ns,
			struct window *out);

#endif
