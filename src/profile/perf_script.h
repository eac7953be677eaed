/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef UNIPROF_PROFILE_PERF_SCRIPT_H
#define UNIPROF_PROFILE_PERF_SCRIPT_H

/*
 * Lines of what `perf script` prints. An event begins with one such as
 *
 *	web server  815/816 [003] 4711.123456:   10101010 cpu-clock:
 *
 * of which pid, CPU and period may be missing; its frames follow, leaf first:
 *
 *	    7f1234 name+0x12 (/lib/file.so)
 *
 * and an empty line ends it. Without call chains the one frame stands behind
 * the event.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A part of the line. */
struct perf_piece {
	const char *at;
	size_t len;
};

struct perf_header {
	struct perf_piece comm, event, rest; /* rest: a frame behind the event */
	uint64_t time_ns, cpu, period;
	bool has_period;
};

/* False if no event begins there. */
bool perf_read_header(const char *line, struct perf_header *header);

/*
 * False if it is no frame at all. The name is without what else stands there;
 * without a name it is the file's, *is_file.
 */
bool perf_read_frame(const char *line, uint64_t *addr, struct perf_piece *name, bool *is_file);

#endif
