/* SPDX-License-Identifier: BSD-3-Clause */
#include "unwind/arm32/insn.h"

#define UNCONDITIONED 0xfu

static uint64_t branch_target(uint32_t code, uint64_t pc)
{
	return (uint32_t)(pc + 8 + (uint32_t)sign_extend(field(code, 0, 24), 24) * 4);
}

/* ldm, stm. */
static void multiple(uint32_t code, struct arm_state *state)
{
	const bool before = code >> 24 & 1, up = code >> 23 & 1, moves = code >> 21 & 1;
	const uint16_t list = (uint16_t)code;
	const int32_t size = 4 * __builtin_popcount(list);
	struct arm_access access = {.rn = (uint8_t)field(code, 16, 4),
				    .load = code >> 20 & 1,
				    .list = list};

	access.offset = up ? (before ? 4 : 0) : (before ? -size : 4 - size);
	access.moves = !moves ? 0 : up ? size : -size;
	arm_access(state, &access);
}

/* ldr, str and the like, one register or two; followed: of whole words at an immediate offset. */
static void transfer(uint32_t code, struct arm_state *state, bool load, bool two, bool followed,
		     int32_t by)
{
	const bool before = code >> 24 & 1, up = code >> 23 & 1, moves = !before || code >> 21 & 1;
	const unsigned rt = field(code, 12, 4), rn = field(code, 16, 4);
	struct arm_access access = {.rn = (uint8_t)rn, .load = load};

	if (!up)
		by = -by;
	if (!followed) {
		if (moves)
			arm_overwrite(state, rn);
		if (load)
			arm_overwrite(state, rt);
		return;
	}
	access.list = (uint16_t)((two ? 3u : 1u) << rt);
	access.offset = before ? by : 0;
	access.moves = moves ? by : 0;
	arm_access(state, &access);
}

/* Halfwords, signed bytes, ldrd and strd. */
static void extra_transfer(uint32_t code, struct arm_state *state)
{
	const bool two = !(code >> 20 & 1) && code >> 6 & 1, immediate = code >> 22 & 1;
	const bool load = code >> 20 & 1 || (two && !(code >> 5 & 1));

	transfer(code, state, load, two, two && immediate,
		 (int32_t)(field(code, 8, 4) << 4 | field(code, 0, 4)));
}

static int32_t rotated(uint32_t code)
{
	const unsigned by = 2 * field(code, 8, 4);
	const uint32_t value = field(code, 0, 8);

	return (int32_t)(by ? value >> by | value << (32 - by) : value);
}

/* Data processing with an immediate or a register. */
static void process(uint32_t code, struct arm_state *state)
{
	enum { SUB = 2, ADD = 4, TST = 8, CMN = 11, MOV = 13 };
	const bool immediate = code >> 25 & 1, plain = !field(code, 4, 8);
	const unsigned op = field(code, 21, 4), rd = field(code, 12, 4), rn = field(code, 16, 4);

	if (op >= TST && op <= CMN)
		return;
	if (op == MOV && !immediate && plain)
		arm_set(state, rd, field(code, 0, 4), 0);
	else if (op == ADD && immediate)
		arm_set(state, rd, rn, rotated(code));
	else if (op == SUB && immediate)
		arm_set(state, rd, rn, -(int64_t)rotated(code));
	else
		arm_overwrite(state, rd);
}

/* Instructions in the encoding space of comparisons that set no flags. */
static void miscellaneous(uint32_t code, struct arm_state *state)
{
	const bool halfword_multiply = code >> 7 & 1 && !(code >> 25 & 1);

	/* movt, msr and hints; bx and blx are dealt with before. */
	if (code >> 25 & 1) {
		if (!(code >> 21 & 1))
			arm_overwrite(state, field(code, 12, 4));
	} else if (halfword_multiply) {
		arm_overwrite(state, field(code, 16, 4));
	} else if (!field(code, 4, 4) ? !(code >> 21 & 1) : field(code, 4, 4) != 7) {
		arm_overwrite(state, field(code, 12, 4));
	}
}

static void apply_registers(uint32_t code, struct arm_state *state)
{
	const bool multiplies = (code & 0x0f0000f0) == 0x00000090,
		   exclusive = (code & 0x0f0000f0) == 0x01000090;

	if (multiplies) {
		arm_overwrite(state, field(code, 16, 4));
		if (code >> 23 & 1)
			arm_overwrite(state, field(code, 12, 4));
	} else if (exclusive) {
		arm_overwrite(state, field(code, 12, 4));
	} else if ((code & 0x0e000090) == 0x00000090) {
		extra_transfer(code, state);
	} else if ((code & 0x01900000) == 0x01000000) {
		miscellaneous(code, state);
	} else {
		process(code, state);
	}
}

/* Loads and stores of other registers, and moves from those. */
static void coprocessor(uint32_t code, struct arm_state *state)
{
	const int32_t by = (int32_t)field(code, 0, 8) * 4;

	if ((code & 0x0fe00000) == 0x0c400000) {
		if (code >> 20 & 1) {
			arm_overwrite(state, field(code, 12, 4));
			arm_overwrite(state, field(code, 16, 4));
		}
	} else if ((code & 0x0e000000) == 0x0c000000) {
		if (code >> 21 & 1)
			arm_set(state, field(code, 16, 4), field(code, 16, 4),
				code >> 23 & 1 ? by : -by);
	} else if ((code & 0x0f100010) == 0x0e100010 && field(code, 12, 4) != ARM_PC) {
		arm_overwrite(state, field(code, 12, 4));
	}
}

static void media(uint32_t code, struct arm_state *state)
{
	/* smlad, udiv and the like have their result elsewhere. */
	const bool high = (code & 0x01800000) == 0x01000000;

	arm_overwrite(state, field(code, high ? 16 : 12, 4));
	if (high && code >> 22 & 1)
		arm_overwrite(state, field(code, 12, 4));
}

static void apply(uint32_t code, struct arm_state *state)
{
	switch (field(code, 25, 3)) {
	case 0:
		apply_registers(code, state);
		break;
	case 1:
		if ((code & 0x01900000) == 0x01000000)
			miscellaneous(code, state);
		else
			process(code, state);
		break;
	case 2:
		transfer(code, state, code >> 20 & 1, false, !(code >> 22 & 1),
			 (int32_t)field(code, 0, 12));
		break;
	case 3:
		if (code >> 4 & 1)
			media(code, state);
		else
			transfer(code, state, code >> 20 & 1, false, false, 0);
		break;
	case 4:
		multiple(code, state);
		break;
	default:
		coprocessor(code, state);
	}
}

/* Does it write pc, other than a direct branch? */
static bool writes_pc(uint32_t code)
{
	const unsigned rd = field(code, 12, 4), op = field(code, 21, 4);

	switch (field(code, 25, 3)) {
	case 0:
		/*
		 * bx; then instructions that are neither multiplication nor
		 * load, and have pc for their result.
		 */
		if ((code & 0x0ffffff0) == 0x012fff10)
			return true;
		return (code & 0x90) != 0x90 && rd == ARM_PC && (op < 8 || op > 11);
	case 1:
		return rd == ARM_PC && (op < 8 || op > 11);
	case 2:
	case 3:
		return (code & 0x0e000010) != 0x06000010 && code >> 20 & 1 && rd == ARM_PC;
	case 4:
		return code >> 20 & 1 && code >> 15 & 1;
	default:
		return false;
	}
}

/* True for returns through lr, or by a load from the stack. */
static bool returns(uint32_t code)
{
	const bool by_lr = (code & 0x0fffffff) == 0x012fff1e || (code & 0x0fffffff) == 0x01a0f00e;

	return by_lr || (field(code, 16, 4) == ARM_SP && field(code, 25, 3) >= 2);
}

static bool is_trap(uint32_t code)
{
	return (code & 0xfff000f0) == 0xe7f000f0 || (code & 0xfff000f0) == 0xe1200070;
}

/* Branches; false: it is none. */
static bool flow_of(const struct arm_insn *insn, struct arm_next *next)
{
	const uint32_t code = insn->code;

	if (code >> 28 == UNCONDITIONED)
		return false;
	if ((code & 0x0f000000) == 0x0a000000) {
		next->path = insn->condition < ARM_ALWAYS ? PATH_BRANCH : PATH_JUMP;
		next->target = branch_target(code, insn->pc);
	} else if (is_trap(code)) {
		next->path = PATH_END;
	} else if (writes_pc(code)) {
		next->path = arm_leaves(insn, !returns(code));
	} else {
		return false;
	}
	return true;
}

void arm_apply(const struct arm_insn *insn, struct arm_state *state, struct arm_next *next)
{
	uint64_t target;

	*next = (struct arm_next){.path = PATH_ON};
	if (flow_of(insn, next))
		return;
	if (arm_is_call(insn->code, insn->pc, &target)) {
		next->path = PATH_CALL;
		arm_called(state);
	} else if (insn->code >> 28 != UNCONDITIONED)
		apply(insn->code, state);
}

bool arm_is_call(uint32_t code, uint64_t pc, uint64_t *target)
{
	*target = 0;
	if (code >> 25 == 0x7d) {
		*target = branch_target(code, pc) + (code >> 23 & 2);
		return true;
	}
	if (code >> 28 == UNCONDITIONED)
		return false;
	if ((code & 0x0f000000) == 0x0b000000) {
		*target = branch_target(code, pc);
		return true;
	}
	return (code & 0x0ffffff0) == 0x012fff30;
}
