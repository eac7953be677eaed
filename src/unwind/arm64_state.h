/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef UNIPROF_UNWIND_ARM64_STATE_H
#define UNIPROF_UNWIND_ARM64_STATE_H

/*
 * Where a function of A64 code has put what its caller needs: what is known by
 * following its instructions from the first one on. The CFA is the stack
 * pointer at the function's entry.
 */

#include <stdbool.h>
#include <stdint.h>

/* Functions with frames beyond this are not followed, bytes. */
#define ARM64_FRAME_MAX (1 << 20)

struct arm64_state {
	int32_t depth;	  /* sp is the CFA - depth */
	int32_t fp_depth; /* x29 is the CFA - fp_depth, if fp_set */
	int32_t lr_at;	  /* the return address is at the CFA - lr_at, if lr_saved; else in x30 */
	int32_t fp_at;	  /* the caller's x29 is at the CFA - fp_at, if fp_saved */
	bool sp_lost;	  /* sp has an unknown distance to the CFA */
	bool fp_set, lr_saved, fp_saved;
	bool fp_lost; /* x29 has some other value, and was not saved */
};

/* What an instruction does to the flow. */
enum arm64_flow {
	ARM64_ON,     /* goes on to the next one */
	ARM64_BRANCH, /* may go to `target`, or on */
	ARM64_JUMP,   /* goes to `target` */
	ARM64_END,    /* leaves for a place that is not known */
};

/*
 * Applies one instruction at `pc` (Arm Architecture Reference Manual, DDI
 * 0487, chapter C4); false when it does what cannot be followed.
 */
bool arm64_apply(uint32_t insn, uint64_t pc, struct arm64_state *state, enum arm64_flow *flow,
		 uint64_t *target);

/* Is this a call? Then true, and *target is where it goes, 0: to a register's value. */
bool arm64_is_call(uint32_t insn, uint64_t pc, uint64_t *target);

#endif
