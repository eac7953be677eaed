/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef UNIPROF_PROFILE_RECORDED_PLACES_H
#define UNIPROF_PROFILE_RECORDED_PLACES_H

/* Places in the source that a recording carries; private to profile.c. */

#include <stdbool.h>
#include <stddef.h>

#include "base/error.h"
#include "profile/source_frame.h"

struct recorded_places;

struct error *recorded_places_new(struct recorded_places **out);
void recorded_places_free(struct recorded_places *places);

/* Copies the frames with their strings, of which each is kept once. */
struct error *recorded_places_add(struct recorded_places *places, uint64_t addr, uint8_t kind,
				  const struct source_frame *frames, size_t n);

/* Entry i, in order of adding; false behind the last. The frames are good until recorded_places_free. */
struct recorded_place {
	uint64_t addr;
	struct source_frame *frames;
	uint32_t n;
	uint8_t kind;
};
bool recorded_places_get(const struct recorded_places *places, size_t i,
			 struct recorded_place *out);

#endif
