/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef UNIPROF_IMPORT_PERF_MAPS_H
#define UNIPROF_IMPORT_PERF_MAPS_H

/*
 * Processes, as the records of perf.data tell them: names of threads, and which
 * file is mapped where. Each process has addresses of its own; a profile has
 * one address for one piece of code: that of the first process with the file.
 * Later ones are translated to it, and files that would lie on one another in
 * the profile are moved to stand-ins.
 */

#include "import/importer.h"

/* The process of the kernel's maps. */
#define PERF_KERNEL UINT32_MAX

struct perf_maps;

struct error *perf_maps_new(struct import *import, struct perf_maps **out);
void perf_maps_free(struct perf_maps *maps);

/* A build id from the file's list; it holds for all maps of this path without one. */
struct error *perf_maps_build_id(struct perf_maps *maps, const char *path, const char *hex);

struct perf_map {
	uint32_t pid;
	uint64_t start, len, offset;
	const char *path, *build_id; /* in hex; NULL: as perf_maps_build_id says */
};

struct error *perf_maps_add(struct perf_maps *maps, const struct perf_map *map);

/* `exec`: a new program, whose process has no maps yet. */
struct error *perf_maps_comm(struct perf_maps *maps, uint32_t pid, uint32_t tid, const char *name,
			     bool exec);

/* A process begins with the maps, and a thread with the name, of its parent. */
struct error *perf_maps_fork(struct perf_maps *maps, uint32_t pid, uint32_t tid, uint32_t parent,
			     uint32_t parent_tid);

/*
 * The address in the profile: itself, if nothing is mapped there. *foreign: but
 * something of another process is (FRAME_FOREIGN).
 */
struct error *perf_maps_translate(struct perf_maps *maps, uint32_t pid, uint64_t addr,
				  uint64_t *out, bool *foreign);

/* The thread's number, by its name at the moment. */
struct error *perf_maps_thread(struct perf_maps *maps, uint32_t pid, uint32_t tid,
			       uint32_t *number);

#endif
