/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef UNIPROF_TARGET_SNAPSHOT_H
#define UNIPROF_TARGET_SNAPSHOT_H

/*
 * Snapshot files: registers and the touched frames of guest memory for a
 * sequence of samples, so that unwinding can be repeated exactly, anywhere
 * (target `replay:FILE`). Laid out in docs/snapshot.md. A frame is written
 * again only when its contents changed.
 */

#include <stdio.h>

#include "target/target.h"

struct snapshot_writer;

/* Creates `path` and writes the head; `info` needs arch and vcpus. */
struct error *snapshot_create(const char *path, const struct target_info *info,
			      struct snapshot_writer **out);

/*
 * Adds a frame of FRAME_SIZE bytes to the sample that is being built. The
 * first contents count: what the guest wrote there later, when its code was
 * looked at, is no part of the sample.
 */
struct error *snapshot_frame(struct snapshot_writer *writer, uint64_t gfn, const void *bytes);

/* The sample that is being built is taken again: its frames will come once more. */
void snapshot_restart(struct snapshot_writer *writer);

/* Ends the sample: time, pause, states and registers are taken from it, memory from the frames. */
struct error *snapshot_sample(struct snapshot_writer *writer, const struct sample *sample);

struct error *snapshot_close(struct snapshot_writer *writer);

#endif
