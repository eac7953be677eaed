/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef UNIPROF_ARCH_X86_INSN_H
#define UNIPROF_ARCH_X86_INSN_H

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

#endif
