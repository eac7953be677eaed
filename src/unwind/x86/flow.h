/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef UNIPROF_UNWIND_X86_FLOW_H
#define UNIPROF_UNWIND_X86_FLOW_H

/*
 * Effects of a function on the stack and the frame pointer at one of its
 * instructions; and how each instruction changes them.
 */

#include "unwind/isa.h"
#include "unwind/x86/insn.h"

/* Depth or offset that is not known. */
#define X86_LOST INT32_MIN

/* All in bytes; "slot" is where the return address is. */
struct x86_state {
	int32_t depth;	  /* slot = sp + depth, or X86_LOST; negative: already popped */
	int32_t fp_at;	  /* slot = fp + fp_at; 0: fp is no frame pointer here */
	int32_t saved_at; /* the caller's fp is stored at slot - saved_at; 0: it is still in fp */
	bool fp_lost;	  /* ... or it is neither */
	bool entry; /* the code took over a stack or frame pointer without keeping the old one */
	/*
	 * A realigned stack: slot holds a copy of the return address. The true
	 * slot's address + word is stored at slot - origin_at, if that is not 0.
	 */
	bool copied;
	int32_t origin_at;
	uint8_t origin_reg; /* it is in this register, while nothing else is known */

	int32_t probe_depth; /* depth at which a stack probing loop ends; 0: none */
};

extern const struct x86_state x86_state_at_entry;

/*
 * Finds where a function keeps its return address and its caller's frame
 * pointer at one of its instructions, by following its code from the first
 * instruction to that one: pushes, pops, constants added to the stack pointer,
 * frame set-up and tear-down. So entry, exit, frameless leaves and code that
 * has no frame pointer at all need no rule of their own.
 */

/* No function is followed farther than this, in instructions. */
#define X86_FLOW_STEPS 12000

/* Working memory of a search; belongs to the caller. */
struct flow_scratch;
void *flow_scratch_new(void); /* for free(); NULL: no memory */
struct paths_scratch *x86_paths(void *scratch);

/* *steps is the number of instructions that may be followed, and is reduced by those that were. */
enum flow_result x86_flow(const struct flow_query *query, struct code_reader *reader,
			  struct flow_scratch *scratch, unsigned *steps, struct x86_state *out);

#endif
