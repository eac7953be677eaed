/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef UNIPROF_UNWIND_X86_INSN_H
#define UNIPROF_UNWIND_X86_INSN_H

/*
 * Decodes x86 instructions as far as following a stack pointer needs it:
 * length, opcode and operands. Knows all of the instruction set up to AVX-512
 * that compilers emit; unknown instructions have length 0.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define X86_INSN_MAX 15 /* bytes */

enum { X86_AX, X86_CX, X86_DX, X86_BX, X86_SP, X86_BP, X86_SI, X86_DI, X86_NO_REG = 0xff };

enum x86_map { X86_MAP_ONE, X86_MAP_0F, X86_MAP_0F38, X86_MAP_0F3A, X86_MAP_MORE };

struct x86_insn {
	uint8_t len;
	uint8_t map; /* enum x86_map */
	uint8_t opcode;
	bool vector;   /* VEX or EVEX encoded: works on vector registers */
	bool narrow;   /* prefix 66: 16-bit operands */
	bool modrm;    /* the fields below are set */
	uint8_t mod;   /* 3: the operand is register `rm` */
	uint8_t reg;   /* with the bit from REX */
	uint8_t rm;    /* with the bit from REX; mod 3 only */
	uint8_t base;  /* of the memory operand; X86_NO_REG: none */
	bool index;    /* the memory operand has an index register */
	int32_t disp;  /* of the memory operand */
	int64_t imm;   /* immediate or relative offset, sign-extended */
	uint8_t extra; /* REX.B for opcodes that hold a register in their low bits: 8 or 0 */
};

/*
 * Decodes the instruction at `bytes`, of which `n` can be read; `word` is 8 or
 * 4. Returns its length, 0 if it is unknown or cut off.
 */
size_t x86_decode(const uint8_t *bytes, size_t n, unsigned word, struct x86_insn *insn);

/* Effect of an instruction on the stack pointer, the frame pointer and the flow of control. */

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

bool x86_is_call(const struct x86_effect *effect);

/* True for instructions that fill the space between functions. */
bool x86_is_padding(const struct x86_insn *insn);

/*
 * Behind a call, is this where another function begins? Without symbols there
 * is no other way to see that a call never returns. `framed`: the frame
 * pointer is set up.
 */
bool x86_begins_function(const struct x86_insn *insn, const struct x86_effect *effect, bool framed,
			 unsigned word);

#endif
