/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef UNIPROF_UNWIND_ARM_FLOW_H
#define UNIPROF_UNWIND_ARM_FLOW_H

#include "unwind/arm32/insn.h"
#include "unwind/unwind.h"

/* Longer functions are not followed, bytes. */
#define ARM_FUNCTION_MAX (32u << 10)

enum arm_known {
	ARM_FOLLOWED, /* *state is that before the instruction at pc */
	ARM_GUESSED,  /* ... if it is reached by a jump to a place that is not known */
	ARM_UNKNOWN,  /* no path leads there that could be followed */
};

struct arm_query {
	bool thumb;
	uint64_t start, end; /* of the code that is followed */
	uint64_t entry;	     /* in it: where the function is entered, */
	uint64_t pc;	     /* and where it stands */
	bool by_flags;	     /* whether an instruction there is executed, flags say, else it is */
	uint32_t flags;	     /* CPSR */
};

struct arm_scratch;
struct arm_scratch *arm_scratch_new(void);
void arm_scratch_free(struct arm_scratch *scratch);

/*
 * Follows the function from its entry to the instruction at pc. Looks at
 * each instruction at most twice. One instruction set is followed: functions
 * that change it within themselves are not.
 */
enum arm_known arm_follow(struct arm_scratch *scratch, const struct code *code,
			  const struct arm_query *query, struct arm_state *state);

#endif
