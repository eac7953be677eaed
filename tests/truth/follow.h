/* SPDX-License-Identifier: BSD-3-Clause */
#pragma once

/*
 * The stack of calls as the instructions themselves make it: pushed by calls and interrupts, popped
 * by returns, replaced by jumps to other functions. It reads neither registers nor memory, hence
 * knows nothing of frame pointers, of CFI or of where the stack lies. Each different stack is a
 * node of a tree, with the instructions that ran while it was the stack.
 */

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "code.h"

/* Instructions, counted by the emulator. */
struct counters {
	uint64_t guest, xen;
};

struct follow;

struct follow *follow_new(const struct counters *counters);

/* Events, each just before the instruction at `address` of `function` runs. */
void follow_call(struct follow *follow, const struct function *function,
		 const struct function *callee);
void follow_call_indirect(struct follow *follow, const struct function *function);
void follow_return(struct follow *follow, const struct function *function);
void follow_return_interrupt(struct follow *follow, const struct function *function);
/* A function's first instruction, or any block of one that is not in the image. */
void follow_enter(struct follow *follow, const struct function *function);
/* Some code that is neither the guest's nor Xen's: dom0's. */
void follow_other(struct follow *follow);

/*
 * Writes one line a node, root first: "STACK GUEST XEN CALLS", names joined by ';'. XEN are Xen's
 * instructions between two of the guest's, up to the first and from the last of dom0's: what
 * hypercalls, traps and switches took. Then "# lost N": how often an instruction was not in the function that it should have been
 * in; 0 proves that no call, return or jump was missed. The guest must not run meanwhile.
 */
void follow_write(struct follow *follow, FILE *out);
