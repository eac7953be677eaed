/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef UNIPROF_TARGET_PROCESS_PERF_RING_H
#define UNIPROF_TARGET_PROCESS_PERF_RING_H

/* A perf event and the memory that the kernel leaves its records in (perf_event_open(2)). */

#include <linux/perf_event.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/error.h"

struct ring {
	int fd;
	struct perf_event_mmap_page *page; /* NULL: there is none */
	size_t size;			   /* of the records' room, bytes, a power of two */
};

/* `attr` of the event of a thread. ERR_DENIED with a sentence; ERR_GUEST: it has ended. */
struct error *ring_open(struct perf_event_attr *attr, pid_t tid, size_t size, struct ring *ring);
void ring_close(struct ring *ring);

/* Where the kernel writes next. */
uint64_t ring_head(const struct ring *ring);

/* Copies what stands at a place; places go round. */
void ring_copy(const struct ring *ring, uint64_t at, void *to, size_t len);

#endif
