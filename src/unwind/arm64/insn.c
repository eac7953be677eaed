/* SPDX-License-Identifier: BSD-3-Clause */
#include "unwind/arm64/insn.h"

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

enum { FP = 29, LR = 30, SP = 31 };

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

/* At sp + offset; with an index, sp moves before or after. */
static void apply_access(const struct arm64_access *access, struct arm64_state *state)
{
	const int32_t before = state->depth, offset = (int32_t)access->offset;
	const int32_t at = access->post ? before : before - offset;

	for (unsigned i = 0; i < access->n && access->whole; i++) {
		const int32_t slot = at - (int32_t)i * 8;

		if (access->load)
			loaded(state, access->reg[i], slot);
		else
			stored(state, access->reg[i], slot);
	}
	if (access->writes_back)
		state->depth = before - offset;
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

static void flow_of(uint32_t insn, uint64_t pc, enum path *path, uint64_t *target)
{
	*path = PATH_ON;
	if ((insn & 0xfc000000) == 0x14000000) {
		*path = PATH_JUMP;
		*target = pc + (uint64_t)(sign_extend(field(insn, 0, 26), 26) * 4);
	} else if ((insn & 0xff000000) == 0x54000000 || (insn & 0x7e000000) == 0x34000000) {
		*path = PATH_BRANCH;
		*target = pc + (uint64_t)(sign_extend(field(insn, 5, 19), 19) * 4);
	} else if ((insn & 0x7e000000) == 0x36000000) {
		*path = PATH_BRANCH;
		*target = pc + (uint64_t)(sign_extend(field(insn, 5, 14), 14) * 4);
	} else if ((insn & 0xfe000000) == 0xd6000000 && !(insn >> 21 & 1)) {
		/* br, ret, eret and their authenticated forms; blr has bit 21 set. */
		*path = PATH_END;
	} else if ((insn & 0xffe0001f) == 0xd4200000 || !(insn >> 16)) {
		*path = PATH_END; /* brk, udf */
	}
}

bool arm64_apply(uint32_t insn, uint64_t pc, struct arm64_state *state, enum path *path,
		 uint64_t *target)
{
	struct arm64_access access;

	flow_of(insn, pc, path, target);
	if (*path != PATH_ON)
		return true;
	if (arm64_access(insn, &access) && access.base == SP) {
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
