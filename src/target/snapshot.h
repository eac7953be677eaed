/* SPDX-License-Identifier: BSD-3-Clause */
#pragma once

/*
 * Snapshot files: registers and the touched frames of guest memory for a
 * sequence of samples, so that unwinding can be repeated exactly, anywhere
 * (target `replay:FILE`). Laid out in docs/snapshot.md. A frame is written
 * again only when its contents changed.
 */

#include "target/target.h"

/* Constants of the file. */

#define SNAPSHOT_MAGIC	   "uniprof-snapshot" /* without the final 0 */
#define SNAPSHOT_MAGIC_LEN 16
#define SNAPSHOT_MAJOR	   1
#define SNAPSHOT_MINOR	   3

#define SNAPSHOT_HEAD	'H'
#define SNAPSHOT_FRAME	'F'
#define SNAPSHOT_SAMPLE 'S'
#define SNAPSHOT_END	'E'

#define SNAPSHOT_RECORD_HEAD 5 /* tag and length */
#define SNAPSHOT_RECORD_TAIL 4 /* checksum */
#define SNAPSHOT_PAYLOAD_MAX (4u << 20)

#define SNAPSHOT_ONLINE 0x01
#define SNAPSHOT_USER	0x02
#define SNAPSHOT_PSE	0x04
#define SNAPSHOT_ARM	0x08
#define SNAPSHOT_ELR	0x10
/* From here on the number of any other instruction set: enum isa. */
#define SNAPSHOT_ISA_AT 5

/* In place of a word's bytes: regs.segmented is 16, or 32. */
#define SNAPSHOT_16_BITS 2
#define SNAPSHOT_SEGMENT 3

struct snapshot_writer;

/* Creates `path` and writes the head; `info` needs arch and vcpus. */
struct error *snapshot_create(const char *path, const struct target_info *info,
			      struct snapshot_writer **out);

/*
 * Adds a frame of FRAME_SIZE bytes to the sample that is being built. The first
 * contents count: later ones, read when code was looked up, are no part of the
 * sample.
 */
struct error *snapshot_frame(struct snapshot_writer *writer, uint64_t gfn, const void *bytes);

/* The sample that is being built is taken again: its frames will come once more. */
void snapshot_restart(struct snapshot_writer *writer);

/* Ends the sample: time, pause, states and registers are taken from it, memory from the frames. */
struct error *snapshot_sample(struct snapshot_writer *writer, const struct sample *sample);

struct error *snapshot_close(struct snapshot_writer *writer);

/* Copies of frames of guest memory by number, each as it was last stored. */

/* The most frames that a store holds: 1 GiB of guest memory. */
#define FRAME_STORE_MAX (1u << 18)

struct frame_store;

struct error *frame_store_new(struct frame_store **out);
void frame_store_free(struct frame_store *store);

/* Stores FRAME_SIZE bytes; *changed tells whether they differ from the stored ones. */
struct error *frame_store_put(struct frame_store *store, uint64_t gfn, const void *bytes,
			      bool *changed);

/* The frame's bytes or NULL; fits `frame` of struct physmem, with the store as its ctx. */
const void *frame_store_get(void *store, uint64_t gfn);
