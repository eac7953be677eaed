/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef UNIPROF_TARGET_SNAPSHOT_READER_H
#define UNIPROF_TARGET_SNAPSHOT_READER_H

/* Reads what snapshot.h writes; see docs/snapshot.md. */

#include "target/frame_store.h"
#include "target/target.h"

struct snapshot_reader;

/*
 * Opens a snapshot, fills `info` and checks the whole file: ERR_INPUT if it is
 * damaged, no snapshot, or of a newer major version. A file that ends in the
 * middle of a record (its writer died) is read up to its last whole sample.
 */
struct error *snapshot_open(const char *path, struct target_info *info,
			    struct snapshot_reader **out);
void snapshot_reader_free(struct snapshot_reader *reader);

/*
 * Goes to the next sample: puts the frames that come with it into `frames`,
 * fills times, states and registers of `sample` and leaves the stacks empty.
 * vCPUs that only one of both has are off-line. *more is false behind the last.
 */
struct error *snapshot_next(struct snapshot_reader *reader, struct frame_store *frames,
			    struct sample *sample, bool *more);

/* Are there samples left? */
bool snapshot_has_next(const struct snapshot_reader *reader);

#endif
