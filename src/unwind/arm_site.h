/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef UNIPROF_UNWIND_ARM_SITE_H
#define UNIPROF_UNWIND_ARM_SITE_H

/* What is known of a place in A32 or T32 code: found out once and then kept. */

#include "unwind/arm_flow.h"
#include "unwind/arm_record.h"

struct arm_site {
	uint64_t addr, root;
	uint32_t age;
	uint8_t kind;  /* enum frame_kind */
	uint8_t flags; /* of FRAME_PC: those that conditions are made of */
	bool thumb, filled;
	bool has_start; /* symbols know the function, that starts at */
	uint64_t start; /* this address; else it is where the row starts, or 0 */
	uint8_t known;	/* enum arm_known, of following from there; without symbols that may */
	struct arm_state state; /* be another function, before the one that stands here */
	struct tabled table;
};

#define ARM_SITE_BITS 12 /* log 2 of the places that are remembered */

struct arm_unwinder {
	struct arm_scratch *scratch;
	struct arm_site site[1u << ARM_SITE_BITS];
};

/* Never NULL; valid until the next call. The walk must have an unwinder. */
const struct arm_site *arm_site(const struct arm_walk *walk);

/* Code that is followed: from `entry` on, as far as it lies in [start, end). */
struct arm_range {
	uint64_t entry, start, end;
};

/* ... to where the walk stands. */
enum arm_known arm_site_follow(const struct arm_walk *walk, const struct arm_range *range,
			       struct arm_state *state);

#endif
