/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef UNIPROF_TARGET_CORE_FRAME_MAP_H
#define UNIPROF_TARGET_CORE_FRAME_MAP_H

/* Where a guest's frames are in a file: what is in a row there and here is one run. */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

/* The most runs: 384 MiB of memory. */
#define FRAME_RUNS_MAX (1u << 24)

struct frame_run {
	uint64_t gfn, n; /* frames */
	uint64_t at;	 /* byte in the file */
};

struct frame_map {
	struct frame_run *run;
	size_t n, room;
};

/* gfn + n, and at + n frames, must not wrap around. */
struct error *frame_map_add(struct frame_map *map, uint64_t gfn, uint64_t n, uint64_t at);

/* When all are added: of frames that were added twice, one is kept. */
void frame_map_sort(struct frame_map *map);

/* False if the frame is not in the file. */
bool frame_map_find(const struct frame_map *map, uint64_t gfn, uint64_t *at);

void frame_map_free(struct frame_map *map);

#endif
