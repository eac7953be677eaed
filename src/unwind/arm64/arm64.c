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

/* Instructions (DDI 0487, C6.2). Those that move a register have it in the lowest bits. */
#define BL	0x94000000u
#define BL_MASK 0xfc000000u
#define ERET	0xd69f03e0u
#define ERETAA	0xd69f0bffu
#define ERETAB	0xd69f0fffu
#define NOP	0xd503201fu
#define PACIASP 0xd503233fu
#define PACIBSP 0xd503237fu
#define BTI	0xd503241fu

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

/* Does it write sp in another way: by a register, or rounded down? */
static bool moves_sp(uint32_t insn)
{
	/* add, sub (extended register); and, orr, eor (immediate), but not tst. */
	return field(insn, 0, 5) == SP &&
	       ((insn & 0xbfe00000) == 0x8b200000 ||
		((insn & 0x9f800000) == 0x92000000 && field(insn, 29, 2) != 3));
}

/* ret, retaa, retab, by x30 */
static bool is_return(uint32_t insn)
{
	return insn == 0xd65f03c0 || (insn & 0xfffffbff) == 0xd65f0bff;
}

/* br, braa and its like */
static bool is_jump(uint32_t insn)
{
	return (insn & 0xfffffc1f) == 0xd61f0000 || (insn & 0xfefff800) == 0xd61f0800;
}

bool arm64_is_call(uint32_t insn, uint64_t pc, uint64_t *target)
{
	*target = 0;
	if ((insn & 0xfc000000) == 0x94000000) {
		*target = pc + (uint64_t)(sign_extend(field(insn, 0, 26), 26) * 4);
		return true;
	}
	/* blr, and blraa and its like. */
	return (insn & 0xfffffc1f) == 0xd63f0000 || (insn & 0xfefff800) == 0xd63f0800;
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
	out->direct = (insn & BL_MASK) == BL;
	out->indirect = !out->direct;
	return true;
}

/* A register that an instruction reads or writes as data: there is no SP among these. */
static uint8_t data(unsigned reg)
{
	return (uint8_t)(reg == SP ? ZERO : reg);
}

static bool decode_jump(uint32_t insn, struct link_op *op)
{
	uint64_t target;

	if (arm64_is_call(insn, 0, &target)) {
		op->op = (insn & BL_MASK) == BL ? LINK_JUMP : LINK_JALR;
		op->rd = LR;
		op->imm = (int64_t)target;
	} else if ((insn & BL_MASK) == 0x14000000) {
		op->op = LINK_JUMP;
		op->imm = sign_extend(field(insn, 0, 26), 26) * 4;
	} else if ((insn & 0xff000000) == 0x54000000 || (insn & 0x7e000000) == 0x34000000) {
		op->op = LINK_BRANCH;
		op->imm = sign_extend(field(insn, 5, 19), 19) * 4;
	} else if ((insn & 0x7e000000) == 0x36000000) {
		op->op = LINK_BRANCH;
		op->imm = sign_extend(field(insn, 5, 14), 14) * 4;
	} else if (insn == ERET || insn == ERETAA || insn == ERETAB) {
		op->op = LINK_XRET;
	} else if ((insn & 0xfe000000) == 0xd6000000 && (is_return(insn) || is_jump(insn))) {
		op->op = LINK_JALR;
		op->rs1 = is_return(insn) ? LR : ZERO;
	} else if ((insn & 0xfe000000) == 0xd6000000 || (insn & 0xffe0001f) == 0xd4200000 ||
		   !(insn >> 16)) {
		op->op = LINK_STOP; /* brk, udf, and returns and jumps of other kinds */
	} else {
		return false;
	}
	return true;
}

/* add and sub of a number or of a register, where SP may be one; mov; movz and movk, of 64 bits. */
static bool decode_sum(uint32_t insn, struct link_op *op)
{
	const unsigned to = field(insn, 0, 5), quarter = field(insn, 21, 2);
	const bool minus = insn >> 30 & 1;
	const int64_t number = (int64_t)field(insn, 10, 12) << (insn >> 22 & 1 ? 12 : 0);

	op->rd = (uint8_t)to;
	op->rs1 = (uint8_t)field(insn, 5, 5);
	op->rs2 = data(field(insn, 16, 5));
	if ((insn & 0xbf800000) == 0x91000000) {
		op->op = LINK_ADDI;
		op->imm = minus ? -number : number;
		return true;
	}
	if ((insn & 0xbfe0fc00) == 0x8b206000) {
		op->op = minus ? LINK_SUB : LINK_ADD;
		return true;
	}
	op->rd = data(to);
	if ((insn & 0xffe0ffe0) == 0xaa0003e0) {
		op->op = LINK_ADDI;
		op->rs1 = op->rs2;
		return true;
	}
	op->op = (insn & 0xff800000) == 0xd2800000 ? LINK_CONST : LINK_INSERT;
	op->imm = (int64_t)((uint64_t)field(insn, 5, 16)
			    << (op->op == LINK_CONST ? 16 * quarter : 0));
	op->rs2 = (uint8_t)quarter;
	return op->op == LINK_CONST || (insn & 0xff800000) == 0xf2800000;
}

/* Moves of system registers (DDI 0487, C5.2), whose number is their encoding. */
static bool decode_special(uint32_t insn, struct link_op *op)
{
	const uint8_t reg = data(field(insn, 0, 5));
	const bool reads = (insn & 0xfff00000) == 0xd5300000;

	op->op = reads ? LINK_READ : LINK_WRITE;
	op->rd = reads ? reg : ZERO;
	op->rs1 = reg;
	op->imm = (insn & 0xfffe0) ^ 0x80000;
	return reads || (insn & 0xfff00000) == 0xd5100000;
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

/*
 * All else that has a result. What other loads and stores, and vector instructions, leave in fp and lr is
 * no concern: hardly any code has those there.
 */
static unsigned decode_other(uint32_t insn, struct link_op *op)
{
	const unsigned kind = field(insn, 25, 4), to = field(insn, 0, 5);
	const bool access = (kind & 5) == 4, literal = (insn & 0xbf000000) == 0x18000000;
	const bool computes = (kind & 14) == 8 || (kind & 7) == 5;
	/* A signature does not change the address. */
	const bool signs = (insn & 0xffff0000) == 0xdac10000 && to == LR;

	op->rs1 = (uint8_t)field(insn, 5, 5);
	if (moves_sp(insn))
		op->rd = SP;
	else if (computes || literal)
		op->rd = signs ? ZERO : data(to);
	else if ((access || (kind & 7) == 7) && to < FP)
		op->rd = (uint8_t)to;
	if (!access || field(insn, 10, 5) >= FP)
		return 1;
	op[1] = *op;
	op[1].rd = (uint8_t)field(insn, 10, 5);
	return 2;
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
	*op = none;
	if (insn == NOP) {
		op->op = LINK_ADDI;
	} else if (insn == PACIASP || insn == PACIBSP || (insn & 0xffffff3f) == BTI) {
		op->op = LINK_BEGIN;
	} else if (arm64_access(insn, &access)) {
		n_ops = decode_access(&access, op);
	} else if (!decode_jump(insn, op) && !decode_sum(insn, op) && !decode_special(insn, op)) {
		*op = none;
		n_ops = decode_other(insn, op);
	}
	if (!n_ops)
		*op = none;
	op->size = INSN;
	return n_ops ? n_ops : 1;
}

/* Those that matter. */
enum { ELR = 0x4020, SPSR = 0x4000, SP_EL0 = 0x4100 };

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
	.isa = ISA_ARM,
	.word = 8,
	.sp = SP,
	.fp = FP,
	.ra = LR,
	.address = UINT64_MAX,
	.link = true,
	.fp_reserved = true,
	.searches = true,
	.call_max = INSN,
	.flow_steps = PATHS_SIZE_MAX / 16,
	.record = {.fp_at = 0, .ra_at = 8, .size = 16},
	.scratch_new = paths_scratch_new,
	.call_before = call_before,
	.begins_stack = link_begins_stack,
	.marking = 64,
	.sets_up_frame = link_sets_up_frame,
	.makes_frame = link_makes_frame,
	.follow = link_follow,
	.find_return = link_find_return,
	.link_code = &link_code,
	.interrupted = interrupted,
	.strip = arm64_strip,
};
