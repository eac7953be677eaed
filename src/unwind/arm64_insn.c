/* SPDX-License-Identifier: BSD-3-Clause */
#include "unwind/arm64_state.h"

#include <stddef.h>

enum { FP = 29, LR = 30, SP = 31 };

static int64_t sign_extend(uint64_t value, unsigned bits)
{
	const unsigned shift = 64 - bits;

	return (int64_t)(value << shift) >> shift;
}

static unsigned field(uint32_t insn, unsigned low, unsigned bits)
{
	return insn >> low & ((1u << bits) - 1);
}

/* A register of the caller's is stored at so many bytes below the CFA. */
static void stored(struct arm64_state *state, unsigned reg, int32_t at)
{
	if (state->sp_lost)
		return;
	/* Only the first time: later ones are spills of other values. */
	if (reg == LR && !state->lr_saved) {
		state->lr_saved = true;
		state->lr_at = at;
	} else if (reg == FP && !state->fp_saved && !state->fp_set) {
		state->fp_saved = true;
		state->fp_at = at;
	}
}

static void loaded(struct arm64_state *state, unsigned reg, int32_t at)
{
	if (reg == LR && state->lr_saved && (state->sp_lost || at == state->lr_at)) {
		state->lr_saved = false;
	} else if (reg == FP && state->fp_saved && (state->sp_lost || at == state->fp_at)) {
		state->fp_saved = false;
		state->fp_set = false;
		state->fp_lost = false;
	} else if (reg == FP) {
		state->fp_set = false;
		state->fp_lost = true;
	}
}

/* One or two registers of `size` bytes at sp + offset; with an index, sp moves before or after. */
struct access {
	bool load, vector, writes_back, post;
	int32_t offset;
	unsigned n, size, reg[2];
};

/* Load/store pair of general (x) and vector (d, q) registers; false: not one with sp as its base. */
static bool pair(uint32_t insn, struct access *access)
{
	const unsigned opc = field(insn, 30, 2),
		       mode = field(insn, 23, 2) /* 0: no allocate, 1: post, 2: offset, 3: pre */;
	const bool vector = insn >> 26 & 1;

	if ((insn & 0x3a000000) != 0x28000000 || field(insn, 5, 5) != SP)
		return false;
	if (vector ? opc == 3 : opc != 2)
		return false;
	access->size = vector ? 4u << opc : 8;
	access->vector = vector;
	access->load = insn >> 22 & 1;
	access->post = mode == 1;
	access->writes_back = mode == 1 || mode == 3;
	access->offset = (int32_t)sign_extend(field(insn, 15, 7), 7) * (int32_t)access->size;
	access->n = 2;
	access->reg[0] = field(insn, 0, 5);
	access->reg[1] = field(insn, 10, 5);
	return true;
}

/* Load/store of one register of 8 bytes, x or d, with an immediate. */
static bool single(uint32_t insn, struct access *access)
{
	const unsigned opc = field(insn, 22, 2), mode = field(insn, 10, 2);

	if (field(insn, 5, 5) != SP || (insn & 0xfa000000) != 0xf8000000 || opc > 1)
		return false;
	access->vector = insn >> 26 & 1;
	access->load = opc == 1;
	access->size = 8;
	access->n = 1;
	access->reg[0] = field(insn, 0, 5);
	if (insn >> 24 & 1) {
		access->offset = (int32_t)field(insn, 10, 12) * 8;
		access->post = access->writes_back = false;
		return true;
	}
	if (insn >> 21 & 1)
		return false;
	access->offset = (int32_t)sign_extend(field(insn, 12, 9), 9);
	access->post = mode == 1;
	access->writes_back = mode == 1 || mode == 3;
	return true;
}

static void apply_access(const struct access *access, struct arm64_state *state)
{
	const int32_t before = state->depth;
	const int32_t at = access->post ? before : before - access->offset;

	for (unsigned i = 0; i < access->n && !access->vector; i++) {
		const int32_t place = at - (int32_t)(i * access->size);

		if (access->load)
			loaded(state, access->reg[i], place);
		else
			stored(state, access->reg[i], place);
	}
	if (access->writes_back)
		state->depth = before - access->offset;
}

/* add and sub with an immediate, of 64 bits, where sp or x29 takes part. */
static bool arithmetic(uint32_t insn, struct arm64_state *state)
{
	const unsigned to = field(insn, 0, 5), from = field(insn, 5, 5);
	const bool subtract = insn >> 30 & 1;
	int32_t by = (int32_t)field(insn, 10, 12);

	if ((insn & 0xbf800000) != 0x91000000 || (to != SP && to != FP))
		return false;
	if (insn >> 22 & 1)
		by <<= 12;
	if (!subtract)
		by = -by;
	if (to == SP && from == SP) {
		state->depth += by;
	} else if (to == FP && from == SP) {
		state->fp_set = !state->sp_lost;
		state->fp_lost = state->sp_lost;
		state->fp_depth = state->depth + by;
	} else if (to == SP && from == FP) {
		state->sp_lost = !state->fp_set;
		state->depth = state->fp_depth + by;
	} else if (to == SP) {
		state->sp_lost = true;
	} else {
		state->fp_set = false;
		state->fp_lost = true;
	}
	return true;
}

/* Does it write sp in another way: by a register, or rounded down? */
static bool moves_sp_unknown(uint32_t insn)
{
	const unsigned to = field(insn, 0, 5);

	/* add, sub (extended register); and, orr, eor (immediate), but not tst. */
	return to == SP && ((insn & 0xbfe00000) == 0x8b200000 ||
			    ((insn & 0x9f800000) == 0x92000000 && field(insn, 29, 2) != 3));
}

/* Is x29 the target of a move or of arithmetic on other registers? */
static bool overwrites_fp(uint32_t insn)
{
	const bool data = (insn & 0x1c000000) == 0x10000000 || (insn & 0x0e000000) == 0x0a000000;

	return data && field(insn, 0, 5) == FP;
}

static void flow_of(uint32_t insn, uint64_t pc, enum arm64_flow *flow, uint64_t *target)
{
	*flow = ARM64_ON;
	if ((insn & 0xfc000000) == 0x14000000) {
		*flow = ARM64_JUMP;
		*target = pc + (uint64_t)(sign_extend(field(insn, 0, 26), 26) * 4);
	} else if ((insn & 0xff000000) == 0x54000000 || (insn & 0x7e000000) == 0x34000000) {
		*flow = ARM64_BRANCH;
		*target = pc + (uint64_t)(sign_extend(field(insn, 5, 19), 19) * 4);
	} else if ((insn & 0x7e000000) == 0x36000000) {
		*flow = ARM64_BRANCH;
		*target = pc + (uint64_t)(sign_extend(field(insn, 5, 14), 14) * 4);
	} else if ((insn & 0xfe000000) == 0xd6000000 && !(insn >> 21 & 1)) {
		/* br, ret, eret and their authenticated forms; blr has bit 21 set. */
		*flow = ARM64_END;
	} else if ((insn & 0xffe0001f) == 0xd4200000 || !(insn >> 16)) {
		*flow = ARM64_END; /* brk, udf */
	}
}

bool arm64_apply(uint32_t insn, uint64_t pc, struct arm64_state *state, enum arm64_flow *flow,
		 uint64_t *target)
{
	struct access access = {0};

	flow_of(insn, pc, flow, target);
	if (*flow != ARM64_ON)
		return true;
	if (pair(insn, &access) || single(insn, &access)) {
		apply_access(&access, state);
	} else if (arithmetic(insn, state)) {
		/* done */
	} else if (moves_sp_unknown(insn)) {
		state->sp_lost = true;
	} else if (overwrites_fp(insn)) {
		state->fp_set = false;
		state->fp_lost = true;
	}
	return state->depth >= -ARM64_FRAME_MAX && state->depth <= ARM64_FRAME_MAX;
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
