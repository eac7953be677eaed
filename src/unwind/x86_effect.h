/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef UNIPROF_UNWIND_X86_EFFECT_H
#define UNIPROF_UNWIND_X86_EFFECT_H

/*
 * What an instruction does to the stack pointer, to the frame pointer and to
 * the flow of control.
 */

#include "unwind/x86/insn.h"

enum x86_op {
	X86_OTHER,   /* nothing of interest */
	X86_PUSH,    /* one word; `reg` or [base + value], or neither */
	X86_POP,     /* one word into `reg` (X86_NO_REG: elsewhere) */
	X86_SET_SP,  /* sp = base + value; base X86_SP: moved by value */
	X86_COPY_SP, /* reg = sp + value; reg is never X86_SP */
	X86_LOSE,    /* `reg` (X86_SP or X86_BP) changes; value 1: it is replaced altogether */
	X86_ENTER,   /* pushes bp, sets it up, then moves sp down by value */
	X86_LEAVE,   /* undoes that */
	X86_CALL,    /* to `value` */
	X86_CALL_INDIRECT, /* to wherever a register or memory says */
	X86_BRANCH,	   /* to `value`, or on */
	X86_JUMP,	   /* to `value` */
	X86_JUMP_INDIRECT,
	X86_STOP, /* control does not come past it: ret, iret, ud2, int3 */
};

struct x86_effect {
	enum x86_op op;
	uint8_t reg, base;
	int64_t value; /* jump and call targets: virtual addresses */
};

/* The effect of `insn`, which stands at `va`. */
struct x86_effect x86_effect(const struct x86_insn *insn, uint64_t va, unsigned word);

#endif
