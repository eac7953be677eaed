/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef UNIPROF_UNWIND_RISCV_INSN_H
#define UNIPROF_UNWIND_RISCV_INSN_H

/*
 * RV64GC instructions, compressed ones expanded (RISC-V Instruction Set Manual,
 * volume I): those that move the stack pointer, keep registers, or jump.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "arch/riscv/riscv.h"
#include "unwind/isa.h"

/* Bit n: a call may change register n (RISC-V ELF psABI, "Integer Register Convention"). */
#define RISCV_CALL_CHANGES 0xf003fce2u

enum riscv_op {
	RISCV_OTHER,  /* rd, if not x0, has a value that is not told */
	RISCV_ADDI,   /* rd = rs1 + imm; mv, li and nop as well */
	RISCV_ADDIW,  /* ... in 32 bits, sign-extended */
	RISCV_ADD,    /* rd = rs1 + rs2 */
	RISCV_SUB,    /* rd = rs1 - rs2 */
	RISCV_SLLI,   /* rd = rs1 << imm */
	RISCV_LUI,    /* rd = imm */
	RISCV_AUIPC,  /* rd = pc + imm: with a jalr of it, a call or jump farther than a jal */
	RISCV_LD,     /* rd = the 8 bytes at rs1 + imm */
	RISCV_SD,     /* the 8 bytes at rs1 + imm = rs2 */
	RISCV_JAL,    /* to pc + imm, return address to rd */
	RISCV_JALR,   /* to rs1 + imm, return address to rd */
	RISCV_BRANCH, /* to pc + imm, or on */
	RISCV_CSRR,   /* rd = the control register `imm` */
	RISCV_CSRW,   /* the control register `imm` = rs1; with rd, as RISCV_OTHER */
	RISCV_XRET,   /* sret, mret */
	RISCV_STOP,   /* ebreak, or no instruction at all */
};

struct riscv_insn {
	uint8_t op;   /* enum riscv_op */
	uint8_t size; /* bytes: 2 or 4 */
	uint8_t rd, rs1, rs2;
	int64_t imm;
};

/* `n` bytes of code; false if they do not hold the instruction, or it is longer than any of these. */
bool riscv_decode(const uint8_t *bytes, size_t n, struct riscv_insn *out);

/* A call and, if it goes far, the auipc before it. */
#define RISCV_CALL_MAX 8

/* As struct unwind_isa and struct paths have them. */
bool riscv_call_before(const uint8_t *bytes, size_t n, uint64_t ret, unsigned word,
		       struct call *out);
bool riscv_begins_stack(const uint8_t *bytes, size_t n, unsigned word);

/* addi s0, sp, of the frame's size */
bool riscv_sets_up_frame(const uint8_t *bytes, size_t n);

/* A frame is made by a constant; of arrays whose length varies, by a register. */
bool riscv_makes_frame(const uint8_t *bytes, size_t n);
bool riscv_begins(const uint8_t *bytes, size_t n, bool *called);

#endif
