/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The unwinder's A64 part. Exception handlers run on the stack of the code that
 * they have interrupted, or on their own; return addresses may be signed.
 */
#include "unwind/arm64/insn.h"

#include "arch/arm/arm.h"
#include "unwind/isa.h"

#define INSN 4 /* bytes */

/* DWARF numbers (AADWARF64, 4.1). In instructions, 31 is SP or zero. */
enum { FP = 29, LR = 30, SP = 31, ZERO = 32 };

static bool pair(uint32_t insn, struct arm64_access *access)
{
	const unsigned opc = field(insn, 30, 2), mode = field(insn, 23, 2);
	const bool vector = insn >> 26 & 1;
	const unsigned size = vector ? 4u << opc : opc & 2 ? 8 : 4;

	/* Not where tags are stored as well, whose offset is scaled otherwise. */
	if ((insn & 0x3a000000) != 0x28000000 || opc == 3 || (insn & 0xfe400000) == 0x68000000)
		return false;
	*access =
		(struct arm64_access){.load = insn >> 22 & 1,
				      .whole = !vector && opc == 2,
				      .writes_back = mode & 1,
				      .post = mode == 1,
				      .offset = sign_extend(field(insn, 15, 7), 7) * (int64_t)size,
				      .n = vector ? 0 : 2,
				      .base = field(insn, 5, 5),
				      .reg = {field(insn, 0, 5), field(insn, 10, 5)}};
	return true;
}

static bool single(uint32_t insn, struct arm64_access *access)
{
	const unsigned opc = field(insn, 22, 2), mode = field(insn, 10, 2);
	const bool vector = insn >> 26 & 1, scaled = insn >> 24 & 1;
	const unsigned shift = vector && opc & 2 ? 4 : field(insn, 30, 2);

	if ((insn & 0x3a000000) != 0x38000000 || (!scaled && insn >> 21 & 1))
		return false;
	*access = (struct arm64_access){.load = vector ? opc & 1 : opc,
					.whole = !vector && shift == 3 && opc < 2,
					.writes_back = !scaled && mode & 1,
					.post = !scaled && mode == 1,
					.offset = scaled ? (int64_t)field(insn, 10, 12) << shift
							 : sign_extend(field(insn, 12, 9), 9),
					.n = !vector,
					.base = field(insn, 5, 5),
					.reg = {field(insn, 0, 5)}};
	return true;
}

bool arm64_access(uint32_t insn, struct arm64_access *access)
{
	return pair(insn, access) || single(insn, access);
}

/* Operations beside those of link.h: registers below fp are lost, */
enum {
	LOSE = LINK_BEGIN + 1, /* rd, */
	LOSE_TWO,	       /* and rs2 */
};

/* Registers by their lowest bit; data: there is no SP among these, but one that is 0. */
enum { R0 = LINK_FIELD, R5, R10, DATA0, DATA16 };
enum { IMM26 = DATA16 + 1, IMM19, IMM14, IMM12, IMM12_HIGH, IMM16, QUARTER, SYSTEM };

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
};

/* The first that fits is it (DDI 0487, C4.1); loads and stores of registers are told by arm64_access. */
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
	/*
	 * What other loads and stores, and vector instructions, leave in fp and lr is no concern: hardly any
	 * code has those there.
	 */
	{0x0a000000, 0x08000000, LOSE_TWO, 0, R0, ZERO, R10},
	{0x0e000000, 0x0e000000, LOSE, 0, R0, ZERO, ZERO},
	{0x00000000, 0x00000000, LINK_OTHER, 0, ZERO, ZERO, ZERO},
};

bool arm64_is_call(uint32_t insn, uint64_t pc, uint64_t *target)
{
	struct link_op op;

	link_decode(shapes, numbers, insn, &op);
	*target = 0;
	if (op.op == LINK_JUMP && op.rd == LR)
		*target = pc + (uint64_t)op.imm;
	return op.rd == LR && (op.op == LINK_JUMP || op.op == LINK_JALR);
}

static bool call_before(const uint8_t *bytes, size_t n, uint64_t ret, unsigned word,
			struct call *out)
{
	uint32_t insn;

	*out = (struct call){0};
	if (n < INSN || ret % INSN)
		return false;
	memcpy(&insn, bytes + n - INSN, INSN);
	if (!arm64_is_call(insn, ret - INSN, &out->target))
		return false;
	out->direct = insn >> 26 == 0x25; /* bl */
	out->indirect = !out->direct;
	return true;
}

/* A register that an instruction reads or writes as data: there is no SP among these. */
static uint8_t data(unsigned reg)
{
	return (uint8_t)(reg == SP ? ZERO : reg);
}

static unsigned decode_access(const struct arm64_access *access, struct link_op *op)
{
	const struct link_op moves = {.op = LINK_ADDI,
				      .rd = (uint8_t)access->base,
				      .rs1 = (uint8_t)access->base,
				      .imm = access->offset};
	const int64_t at = access->post ? 0 : access->offset;
	unsigned n = 0;

	for (unsigned i = 0; i < access->n; i++) {
		const uint8_t reg = data(access->reg[i]);

		if (!access->whole && !access->load)
			continue;
		op[n++] = (struct link_op){.op = !access->whole ? LINK_OTHER
						 : access->load ? LINK_LOAD
								: LINK_STORE,
					   .rd = access->load ? reg : ZERO,
					   .rs1 = (uint8_t)access->base,
					   .rs2 = reg,
					   .imm = at + 8 * i};
	}
	if (access->writes_back)
		op[n++] = moves;
	return n;
}

static unsigned decode(const uint8_t *bytes, size_t n, struct link_op op[LINK_OPS])
{
	const struct link_op none = {.rd = ZERO, .rs1 = ZERO, .rs2 = ZERO};
	struct arm64_access access;
	uint32_t insn;
	unsigned n_ops = 1;

	if (n < INSN)
		return 0;
	memcpy(&insn, bytes, INSN);
	if (arm64_access(insn, &access))
		n_ops = decode_access(&access, op);
	else
		link_decode(shapes, numbers, insn, op);
	if (!n_ops)
		*op = none;
	if (op->op == LINK_CONST)
		op->imm = (int64_t)((uint64_t)op->imm << 16 * op->rs2);
	if (op->op == LOSE_TWO && op->rs2 < FP) {
		op[1] = none;
		op[1].rd = op->rs2;
		n_ops = 2;
	}
	if (op->op >= LOSE) {
		op->op = LINK_OTHER;
		op->rd = op->rd < FP ? op->rd : ZERO;
	}
	op->size = INSN;
	return n_ops ? n_ops : 1;
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
