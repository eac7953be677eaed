/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef UNIPROF_UNWIND_ARM32_ARM32_H
#define UNIPROF_UNWIND_ARM32_ARM32_H

/* A32 and T32 code, for the unwinder: following it, and the ways to a caller. */

#include "unwind/arm32/insn.h"
#include "unwind/walk.h"

/* Mode of code (struct pc_info): T32; above that, if FRAME_PC, the flags N, Z, C and V of CPSR. */
#define ARM_MODE_T32   1u
#define ARM_MODE_FLAGS 1 /* bits to the right of them */

static inline uint8_t arm_mode(const struct walk *walk)
{
	const uint32_t flags = (uint32_t)walk->in->regs->flags;

	return (uint8_t)((walk->at.kind == FRAME_PC ? flags >> 28 << ARM_MODE_FLAGS : 0) |
			 walk->arm.thumb);
}

/* Functions of struct unwind_isa. */
enum flow_result arm_follow(const struct flow_query *query, struct code_reader *reader,
			    void *scratch, unsigned *steps, struct rule *out);
bool arm_call_before(const uint8_t *bytes, size_t n, uint64_t ret, unsigned word, struct call *out);
bool arm_try_return(struct walk *walk, uint64_t slot, uint64_t word);

/* Code that is followed: from `entry` on, as far as it lies in [start, end). */
struct arm_range {
	uint64_t entry, start, end;
};

/* ... to where the walk stands. The walk must have an unwinder. */
enum flow_result arm_follow_to_pc(struct walk *walk, const struct arm_range *range,
				  struct rule *rule);

/* Rule: following the function's code; may be a guess. */
enum found arm_rule_code(struct walk *walk, uint8_t *trust);

/*
 * Rule: proof by the call, where no symbols tell the function. Following the
 * code from the call's target to here finds this very call's return address.
 */
enum found arm_rule_target(struct walk *walk, uint8_t *trust);

/* Rule: the row of the image's table, if its kind serves there. */
enum found arm_rule_table(struct walk *walk, uint8_t *trust);

/* Rule: a frame record; always a guess. */
enum found arm_rule_record(struct walk *walk);

#endif
