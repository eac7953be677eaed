/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The unwinder's A64 part. Exception handlers run on the stack of the code that
 * they have interrupted, or on their own; return addresses may be signed.
 */
#include "arch/arm/arm.h"
#include "unwind/link.h"

#define INSN 4 /* bytes */

/* DWARF numbers (AADWARF64, 4.1). In instructions, 31 is SP or zero. */
enum { FP = 29, LR = 30, SP = 31, ZERO = 32 };

/* Operations of whole instructions beside those of link.h. */
enum {
	LOSE = LINK_BEGIN + 1, /* registers below fp are lost: rd, */
	LOSE_TWO,	       /* and rs2 */
	LOAD,	   /* all 64 bits of a register or two, before or after which rs1 may move */
	STORE,	   /* ... the same */
	LOAD_PART, /* ... less */
	NO_ACCESS, /* ... nothing that counts, but rs1 */
};

/* Registers by their lowest bit; data: there is no SP among these, but one that is 0. */
enum { R0 = LINK_FIELD, R5, R10, DATA0, DATA16 };
enum { IMM26 = DATA16 + 1, IMM19, IMM14, IMM12, IMM12_HIGH, IMM16, QUARTER, SYSTEM };
enum { PAIR4 = SYSTEM + 1, PAIR8, PAIR16, IMM9, WORDS12 };

static const struct link_number numbers[] = {
	[R0 - LINK_FIELD] = {.piece = {{0, 5, 0}}},
	[R5 - LINK_FIELD] = {.piece = {{5, 5, 0}}},
	[R10 - LINK_FIELD] = {.piece = {{10, 5, 0}}},
	[DATA0 - LINK_FIELD] = {.zero = SP, .piece = {{0, 5, 0}}},
	[DATA16 - LINK_FIELD] = {.zero = SP, .piece = {{16, 5, 0}}},
	[IMM26 - LINK_FIELD] = {.sign = 28, .piece = {{0, 26, 2}}},
	[IMM19 - LINK_FIELD] = {.sign = 21, .piece = {{5, 19, 2}}},
	[IMM14 - LINK_FIELD] = {.sign = 16, .piece = {{5, 14, 2}}},
	[IMM12 - LINK_FIELD] = {.down = 30, .piece = {{10, 12, 0}}},
	[IMM12_HIGH - LINK_FIELD] = {.down = 30, .piece = {{10, 12, 12}}},
	[IMM16 - LINK_FIELD] = {.piece = {{5, 16, 0}}},
	[QUARTER - LINK_FIELD] = {.piece = {{21, 2, 0}}},
	[SYSTEM - LINK_FIELD] = {.piece = {{5, 15, 5}}},
	[PAIR4 - LINK_FIELD] = {.sign = 9, .piece = {{15, 7, 2}}},
	[PAIR8 - LINK_FIELD] = {.sign = 10, .piece = {{15, 7, 3}}},
	[PAIR16 - LINK_FIELD] = {.sign = 11, .piece = {{15, 7, 4}}},
	[IMM9 - LINK_FIELD] = {.sign = 9, .piece = {{12, 9, 0}}},
	[WORDS12 - LINK_FIELD] = {.piece = {{10, 12, 3}}},
};

/* The first that fits is it (DDI 0487, C4.1). */
static const struct link_shape shapes[] = {
	/* nop; paciasp and pacibsp; bti */
	{0xffffffff, 0xd503201f, LINK_ADDI, 0, ZERO, ZERO, ZERO},
	{0xffffffbf, 0xd503233f, LINK_BEGIN, 0, ZERO, ZERO, ZERO},
	{0xffffff3f, 0xd503241f, LINK_BEGIN, 0, ZERO, ZERO, ZERO},
	/* bl; blr, blraa and its like; b, b.cond, cbz, tbz */
	{0xfc000000, 0x94000000, LINK_JUMP, IMM26, LR, ZERO, ZERO},
	{0xfffffc1f, 0xd63f0000, LINK_JALR, 0, LR, ZERO, ZERO},
	{0xfefff800, 0xd63f0800, LINK_JALR, 0, LR, ZERO, ZERO},
	{0xfc000000, 0x14000000, LINK_JUMP, IMM26, ZERO, ZERO, ZERO},
	{0xff000000, 0x54000000, LINK_BRANCH, IMM19, ZERO, ZERO, ZERO},
	{0x7e000000, 0x34000000, LINK_BRANCH, IMM19, ZERO, ZERO, ZERO},
	{0x7e000000, 0x36000000, LINK_BRANCH, IMM14, ZERO, ZERO, ZERO},
	/* eret, eretaa, eretab; ret, retaa, retab, by x30; br, braa and its like */
	{0xffffffff, 0xd69f03e0, LINK_XRET, 0, ZERO, ZERO, ZERO},
	{0xfffffbff, 0xd69f0bff, LINK_XRET, 0, ZERO, ZERO, ZERO},
	{0xffffffff, 0xd65f03c0, LINK_JALR, 0, ZERO, LR, ZERO},
	{0xfffffbff, 0xd65f0bff, LINK_JALR, 0, ZERO, LR, ZERO},
	{0xfffffc1f, 0xd61f0000, LINK_JALR, 0, ZERO, ZERO, ZERO},
	{0xfefff800, 0xd61f0800, LINK_JALR, 0, ZERO, ZERO, ZERO},
	/* Returns and jumps of other kinds, brk, udf. */
	{0xfe000000, 0xd6000000, LINK_STOP, 0, ZERO, ZERO, ZERO},
	{0xffe0001f, 0xd4200000, LINK_STOP, 0, ZERO, ZERO, ZERO},
	{0xffff0000, 0x00000000, LINK_STOP, 0, ZERO, ZERO, ZERO},
	/* add and sub of a number or of a register, where SP may be one; mov; movz and movk, of 64 bits */
	{0xbfc00000, 0x91000000, LINK_ADDI, IMM12, R0, R5, ZERO},
	{0xbfc00000, 0x91400000, LINK_ADDI, IMM12_HIGH, R0, R5, ZERO},
	{0xffe0fc00, 0x8b206000, LINK_ADD, 0, R0, R5, DATA16},
	{0xffe0fc00, 0xcb206000, LINK_SUB, 0, R0, R5, DATA16},
	{0xffe0ffe0, 0xaa0003e0, LINK_ADDI, 0, DATA0, DATA16, ZERO},
	{0xff800000, 0xd2800000, LINK_CONST, IMM16, DATA0, ZERO, QUARTER},
	{0xff800000, 0xf2800000, LINK_INSERT, IMM16, DATA0, ZERO, QUARTER},
	/* mrs and msr of a system register (C5.2), whose number is its encoding */
	{0xfff00000, 0xd5300000, LINK_READ, SYSTEM, DATA0, ZERO, ZERO},
	{0xfff00000, 0xd5100000, LINK_WRITE, SYSTEM, ZERO, DATA0, ZERO},
	/* SP written in another way: by a register, or rounded down (and, orr and eor of a number, but not tst). */
	{0xbfe0001f, 0x8b20001f, LINK_OTHER, 0, SP, R5, ZERO},
	{0xdf80001f, 0x9200001f, LINK_OTHER, 0, SP, R5, ZERO},
	{0xff80001f, 0xd200001f, LINK_OTHER, 0, SP, R5, ZERO},
	/* A signature does not change the address. All else that computes, and loads by an address near pc. */
	{0xffff001f, 0xdac1001e, LINK_OTHER, 0, ZERO, ZERO, ZERO},
	{0x1c000000, 0x10000000, LINK_OTHER, 0, DATA0, ZERO, ZERO},
	{0x0e000000, 0x0a000000, LINK_OTHER, 0, DATA0, ZERO, ZERO},
	{0xbf000000, 0x18000000, LINK_OTHER, 0, DATA0, ZERO, ZERO},
	/* Pairs: x registers; loads of w registers, sign-extended or not, and their stores; vector registers. */
	{0xfe400000, 0xa8000000, STORE, PAIR8, ZERO, R5, DATA0},
	{0xfe400000, 0xa8400000, LOAD, PAIR8, DATA0, R5, ZERO},
	{0xbe400000, 0x28400000, LOAD_PART, PAIR4, DATA0, R5, ZERO},
	{0xfe400000, 0x28000000, NO_ACCESS, PAIR4, ZERO, R5, ZERO},
	{0xfe000000, 0x2c000000, NO_ACCESS, PAIR4, ZERO, R5, ZERO},
	{0xfe000000, 0x6c000000, NO_ACCESS, PAIR8, ZERO, R5, ZERO},
	{0xfe000000, 0xac000000, NO_ACCESS, PAIR16, ZERO, R5, ZERO},
	/* Single ones at a number of their sizes: x registers; loads of others; their stores, and vector registers. */
	{0xffc00000, 0xf9000000, LINK_STORE, WORDS12, ZERO, R5, DATA0},
	{0xffc00000, 0xf9400000, LINK_LOAD, WORDS12, DATA0, R5, ZERO},
	{0x3fc00000, 0x39000000, LINK_OTHER, 0, ZERO, ZERO, ZERO},
	{0x3f000000, 0x39000000, LINK_OTHER, 0, DATA0, ZERO, ZERO},
	{0x3f000000, 0x3d000000, LINK_OTHER, 0, ZERO, ZERO, ZERO},
	/* ... at a number of bytes. */
	{0xffe00000, 0xf8000000, STORE, IMM9, ZERO, R5, DATA0},
	{0xffe00000, 0xf8400000, LOAD, IMM9, DATA0, R5, ZERO},
	{0x3fe00000, 0x38000000, NO_ACCESS, IMM9, ZERO, R5, ZERO},
	{0x3f200000, 0x38000000, LOAD_PART, IMM9, DATA0, R5, ZERO},
	{0x3f200000, 0x3c000000, NO_ACCESS, IMM9, ZERO, R5, ZERO},
	/*
	 * What other loads and stores, and vector instructions, leave in fp and lr is no concern: hardly any
	 * code has those there.
	 */
	{0x0a000000, 0x08000000, LOSE_TWO, 0, R0, ZERO, R10},
	{0x0e000000, 0x0e000000, LOSE, 0, R0, ZERO, ZERO},
	{0x00000000, 0x00000000, LINK_OTHER, 0, ZERO, ZERO, ZERO},
};

/* Loads and stores at a register and a number: of one register, or of two side by side. */
static unsigned accesses(uint32_t insn, struct link_op *op)
{
	const bool load = op->op == LOAD, store = op->op == STORE;
	const bool pair = !(insn >> 28 & 1) && op->op != NO_ACCESS;
	const unsigned mode = field(insn, insn >> 28 & 1 ? 10 : 23, 2), reg = field(insn, 10, 5);
	struct link_op second = {.rs1 = op->rs1, .rs2 = reg == SP ? ZERO : (uint8_t)reg, .imm = 8};

	second.rd = store ? ZERO : second.rs2;
	op->op = second.op = load ? LINK_LOAD : store ? LINK_STORE : LINK_OTHER;
	return link_access(op, pair ? &second : NULL, mode != 1, mode & 1);
}

static unsigned decode(const uint8_t *bytes, size_t n, struct link_op op[LINK_OPS])
{
	uint32_t insn;
	unsigned n_ops = 1;

	if (n < INSN)
		return 0;
	memcpy(&insn, bytes, INSN);
	link_decode(shapes, numbers, insn, op);
	if (op->op == LINK_CONST)
		op->imm = (int64_t)((uint64_t)op->imm << 16 * op->rs2);
	if (op->op >= LOAD) {
		n_ops = accesses(insn, op);
	} else if (op->op >= LOSE) {
		if (op->op == LOSE_TWO && op->rs2 < FP)
			op[n_ops++] = (struct link_op){.rd = op->rs2};
		op->op = LINK_OTHER;
		op->rd = op->rd < FP ? op->rd : ZERO;
	}
	op->size = INSN;
	return n_ops;
}

/* System registers that matter. */
enum { ELR = 0x84020, SPSR = 0x84000, SP_EL0 = 0x84100 };

static struct handler_value *control(struct handler_run *run, int64_t number)
{
	switch (number) {
	case ELR:
		return &run->pc;
	case SPSR:
		return &run->status;
	case SP_EL0:
		return &run->other_sp;
	}
	return NULL;
}

static const struct link_code link_code = {
	.decode = decode,
	.unit = INSN,
	.zero = ZERO,
	.other_ra = RULE_NO_REGISTER,
	.ra_stays = true,
	/* AAPCS64, 6.1.1, and x30 */
	.call_changes = 0x4007ffff,
	.kept = 0x3ff80000,
	.control = control,
};

/* SPSR_EL1 (DDI 0487, C5.2.20): the interrupted mode, and its stack. */
#define SPSR_MODE 0x1fu
enum { MODE_EL0 = 0, MODE_EL1_SP0 = 4, MODE_EL1 = 5 };

static enum found interrupted(struct walk *walk, const struct row *trap, uint8_t *trust)
{
	const struct code *code = walk->in->code;
	struct handler_run run;
	uint64_t mode;
	uint32_t insn;

	if (!handler_run(&run, walk) || !run.pc.known || !run.status.known)
		return handler_end(walk, UNWIND_BROKEN);
	mode = run.status.is >> 36 ? SPSR_MODE : run.status.is & SPSR_MODE;
	/* Returns to a program: the kernel's stack is whole. */
	if (mode == MODE_EL0)
		return handler_end(walk, UNWIND_OUTERMOST);
	/* A thread of Linux's kernel could become a program, and is none yet. */
	if (!run.pc.is && code->read(code->ctx, 0, &insn, 4) != 4)
		return handler_end(walk, UNWIND_OUTERMOST);
	if (mode != MODE_EL1 && mode != MODE_EL1_SP0)
		return handler_end(walk, UNWIND_BROKEN);
	return handler_leave(&run, mode == MODE_EL1 ? run.x[SP] : run.other_sp, trust);
}

const struct unwind_isa unwind_arm64 = {
	LINK_ISA,
	.isa = ISA_ARM,
	.word = 8,
	.sp = SP,
	.fp = FP,
	.ra = LR,
	.fp_reserved = true,
	.call_max = INSN,
	.record = {.fp_at = 0, .ra_at = 8, .size = 16},
	.strip = arm64_strip,
};
