/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef UNIPROF_TARGET_XEN_FRAMES_H
#define UNIPROF_TARGET_XEN_FRAMES_H

/*
 * Frames of a guest that stay mapped. What is cached is a frame, never a
 * translation: the contents are read anew by whoever looks at them.
 */

#include <stdbool.h>

#include "arch/arch.h"
#include "base/error.h"
#include "target/xen/xen_if.h"

struct frames;

struct error *frames_new(struct xen_if *xi, struct frames **out);
void frames_free(struct frames *frames);

/* The frame if it is mapped, else NULL. Touches nothing but the table: for the paused guest. */
const void *frames_find(void *frames, uint64_t gfn);

/*
 * The frame, mapped if need be; NULL if it cannot be mapped, which is
 * remembered for a while. When the table is full, frames that were not used
 * since the last call of frames_tick are unmapped.
 */
const void *frames_bring(void *frames, uint64_t gfn);

/* True if bringing this frame failed lately: asking again is no use now. */
bool frames_refused(const struct frames *frames, uint64_t gfn);

/* Once a sample: ages what is in the table. */
void frames_tick(struct frames *frames);

/* How often frames were unmapped: until it is oftener, those that were given stay where they are. */
uint64_t frames_clearings(const struct frames *frames);

/* Frames mapped since the start. */
uint64_t frames_mapped(const struct frames *frames);

#endif
