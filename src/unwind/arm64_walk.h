/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef UNIPROF_UNWIND_ARM64_WALK_H
#define UNIPROF_UNWIND_ARM64_WALK_H

#include "unwind/arm64_flow.h"
#include "unwind/walk.h"

#define ARM64_SITE_BITS 12 /* log 2 of the places that are remembered */

/* What following the code said of a place. */
struct arm64_site {
	uint64_t addr, root;
	uint32_t age;
	uint8_t kind; /* enum frame_kind */
	bool filled, has_start;
	bool followed, guessed; /* guessed: as one of the cases of a jump by table */
	bool returns;		/* the code from here on leads to a return from an exception */
	uint64_t start;
	struct arm64_state state;
	struct tabled table;
};

struct arm64_unwinder {
	struct arm64_scratch *scratch;
	struct arm64_site site[1u << ARM64_SITE_BITS];
};

struct arm64_unwinder *arm64_unwinder_new(void);
void arm64_unwinder_free(struct arm64_unwinder *unwinder);

/*
 * unwind_stack() for A64 code. Callers are found by following the code of the
 * function that stands there (frameless leaves, entry, exit, code without
 * frame records), by the row of its image's table, then by frame record; there,
 * the innermost frame's link register is taken for a caller if it is in another
 * function and not the record's (AAPCS64, 6.4.6). Handlers of exceptions stand
 * on top of what they have interrupted. Return addresses may be signed.
 */
void arm64_unwind(const struct unwind_input *in, struct frame *frames, struct unwind_result *out);

#endif
