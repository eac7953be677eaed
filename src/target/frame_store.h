/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef UNIPROF_TARGET_FRAME_STORE_H
#define UNIPROF_TARGET_FRAME_STORE_H

/* Copies of frames of guest memory by number, each as it was last stored. */

#include <stdbool.h>
#include <stdint.h>

#include "arch/arch.h"
#include "base/error.h"

/* The most frames that a store holds: 1 GiB of guest memory. */
#define FRAME_STORE_MAX (1u << 18)

struct frame_store;

struct error *frame_store_new(struct frame_store **out);
void frame_store_free(struct frame_store *store);

/* Stores FRAME_SIZE bytes; *changed tells whether they differ from what was there. */
struct error *frame_store_put(struct frame_store *store, uint64_t gfn, const void *bytes,
			      bool *changed);

/* Has the frame been stored since frame_store_next was called last? */
bool frame_store_is_new(const struct frame_store *store, uint64_t gfn);
void frame_store_next(struct frame_store *store);

/* The frame's bytes or NULL; fits `frame` of struct physmem, with the store as its ctx. */
const void *frame_store_get(void *store, uint64_t gfn);

#endif
