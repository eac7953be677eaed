/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef UNIPROF_UNWIND_ARM64_FLOW_H
#define UNIPROF_UNWIND_ARM64_FLOW_H

#include "unwind/arm64_state.h"
#include "unwind/unwind.h"

/* Longer functions are not followed, instructions. */
#define ARM64_FUNCTION_MAX 8192

enum arm64_known {
	ARM64_FOLLOWED, /* *state is that before the instruction at pc */
	ARM64_GUESSED,	/* the same, if a jump by table leads there */
	ARM64_UNKNOWN,	/* no path leads there that could be followed */
};

struct arm64_scratch;
struct arm64_scratch *arm64_scratch_new(void);
void arm64_scratch_free(struct arm64_scratch *scratch);

/*
 * Follows the function from its first instruction at `start` to the one at
 * `pc`, which is below `end`. Looks at each instruction at most once. Code that
 * no branch leads to is taken for a case of the jump by table, if there is one.
 */
enum arm64_known arm64_follow(struct arm64_scratch *scratch, const struct code *code,
			      uint64_t start, uint64_t end, uint64_t pc, struct arm64_state *state);

#endif
