/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef UNIPROF_PROFILE_RECORDING_PLACES_H
#define UNIPROF_PROFILE_RECORDING_PLACES_H

/*
 * Places in the source, and the texts that they are made of, of which each is
 * written once. Private to src/profile.
 */

#include "base/bytes.h"
#include "recording/decode.h"

/* Texts that were written: by their pointers, which whoever writes keeps. */
struct written {
	struct written_text *at; /* open addressing; a power of two, at most half used */
	uint64_t n;
	size_t room;
};

void written_free(struct written *written);

/* The texts that are new, then the places. */
struct error *encode_places(struct written *written, uint64_t addr, uint8_t kind,
			    const struct source_frame *frames, size_t n, struct bytes *out);

struct error *decode_text(struct decoder *decoder, struct cursor in, uint64_t offset);
struct error *decode_places(struct decoder *decoder, struct cursor in, uint64_t offset);

#endif
