/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef UNIPROF_UNWIND_ARM64_FRAME_H
#define UNIPROF_UNWIND_ARM64_FRAME_H

/* A walk through A64 code, and the ways from a frame to its caller. */

#include "unwind/arm64_walk.h"

enum { ARM64_FP = 29, ARM64_LR, ARM64_SP };

struct arm64_walk {
	struct walk walk;
	uint64_t lr; /* x30, */
	bool lr_known;
};

/* What is known of where the walk stands; valid until the next call. The walk must have an unwinder. */
const struct arm64_site *arm64_site(struct arm64_walk *walk);

/* Is this a return address? *target is what the call before it called, 0: not known. */
bool arm64_is_return(const struct arm64_walk *walk, uint64_t ret, uint64_t *target, bool *readable);

/* By the row of the image's table. */
enum found arm64_by_row(struct arm64_walk *walk, const struct arm64_site *site, uint8_t *trust);

/* Instructions from a handler's first to its last, at most; Linux has some 160. */
#define ARM64_ERET_STEPS 224

/* Does the code from `pc` on lead to a return from an exception, before `end` (0: not known)? */
bool arm64_leads_to_eret(const struct code *code, uint64_t pc, uint64_t end);

/*
 * What was interrupted, where the code that comes next returns to it: does in
 * advance what that does with the registers it has saved. FOUND_END if that
 * cannot be told: frame records would leave out whom it has interrupted.
 */
enum found arm64_by_eret(struct arm64_walk *walk, uint8_t *trust);

/* By search of the stack for what looks like a return address. Always a guess. */
enum found arm64_by_scan(struct arm64_walk *walk);

/* Notes that the word at `va` was missed, should it be on another stack. */
static inline void arm64_note_elsewhere(struct walk *walk, uint64_t va)
{
	const uint64_t room = va & (FRAME_SIZE - 1);

	/* Others are saved below the first that is missed, but hardly on another page. */
	if (!walk->beyond && walk_is_elsewhere(walk->stack, va))
		walk->elsewhere = va - (room < 256 ? room : 256);
}

#endif
