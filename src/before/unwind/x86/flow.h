/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef UNIPROF_UNWIND_X86_STATE_H
#define UNIPROF_UNWIND_X86_STATE_H

/*
 * What a function has done to the stack and to the frame pointer at one of
 * its instructions, and how each instruction changes that.
 */

#include "unwind/x86_effect.h"

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
 * Applies an instruction that is no jump; calls return. False where it makes
 * no sense in a function that has come this far: it belongs to another.
 */
bool x86_state_apply(struct x86_state *state, const struct x86_effect *effect, unsigned word);

/* A call to the next instruction, by which 32-bit code asks where it is. */
void x86_state_push(struct x86_state *state, unsigned word);

#endif
