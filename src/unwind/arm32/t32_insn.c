/* SPDX-License-Identifier: BSD-3-Clause */
#include "unwind/arm32/insn.h"

static uint64_t target_of(uint64_t pc, int32_t by)
{
	return (uint32_t)(pc + 4 + (uint32_t)by);
}

/* push, pop, ldm and stm; before: addresses go down from the base. */
static void multiple(struct arm_state *state, unsigned rn, bool load, uint16_t list, bool before,
		     bool moves)
{
	const int32_t size = 4 * __builtin_popcount(list), by = before ? -size : size;
	const struct arm_access access = {.rn = (uint8_t)rn,
					  .load = load,
					  .list = list,
					  .offset = before ? by : 0,
					  .moves = moves ? by : 0};

	arm_access(state, &access);
}

static void one(struct arm_state *state, unsigned rn, bool load, unsigned rt, int32_t offset)
{
	const struct arm_access access = {.rn = (uint8_t)rn,
					  .load = load,
					  .list = (uint16_t)(1u << rt),
					  .offset = offset};

	arm_access(state, &access);
}

/* Shifts, add and subtract, and immediates. */
static void low_arithmetic(uint32_t code, struct arm_state *state)
{
	const unsigned op = field(code, 11, 5), rd = field(code, 8, 3);
	const int32_t small = (int32_t)field(code, 6, 3), by = (int32_t)field(code, 0, 8);

	if (op == 3 && code & 0x0400)
		arm_set(state, field(code, 0, 3), field(code, 3, 3),
			code & 0x0200 ? -small : small);
	else if (op < 4)
		arm_overwrite(state, field(code, 0, 3));
	else if (op == 4)
		arm_overwrite(state, rd);
	else if (op > 5)
		arm_set(state, rd, rd, op == 7 ? -by : by);
}

/* Data processing, and moves of any register. */
static void any_register(uint32_t code, struct arm_state *state)
{
	enum { TST = 8, CMP = 10, CMN = 11 };
	const unsigned op = field(code, 6, 4), rd = (code >> 4 & 8) | (code & 7);

	if (!(code & 0x0400)) {
		if (op != TST && op != CMP && op != CMN)
			arm_overwrite(state, field(code, 0, 3));
	} else if (field(code, 8, 2) == 2) {
		arm_set(state, rd, field(code, 3, 4), 0);
	} else if (field(code, 8, 2) == 0) {
		arm_overwrite(state, rd);
	}
}

/* Loads and stores of low registers by low registers. */
static void low_transfer(uint32_t code, struct arm_state *state)
{
	const unsigned rt = field(code, 0, 3), rn = field(code, 3, 3);
	const bool process_register = code >> 12 == 5;
	const bool load = process_register ? field(code, 9, 3) > 2 : code >> 11 & 1;

	if (code >> 12 == 6)
		one(state, rn, load, rt, (int32_t)field(code, 6, 5) * 4);
	else if (load)
		arm_overwrite(state, rt);
}

/* Adjust sp, push, pop, extend, reverse. */
static void various(uint32_t code, struct arm_state *state)
{
	const int32_t by = (int32_t)field(code, 0, 7) * 4;
	const uint16_t low = (uint16_t)field(code, 0, 8), more = (uint16_t)field(code, 8, 1);

	if ((code & 0xff00) == 0xb000)
		arm_set(state, ARM_SP, ARM_SP, code & 0x80 ? -by : by);
	else if ((code & 0xfe00) == 0xb400)
		multiple(state, ARM_SP, false, (uint16_t)(low | more << ARM_LR), true, true);
	else if ((code & 0xfe00) == 0xbc00)
		multiple(state, ARM_SP, true, (uint16_t)(low | more << ARM_PC), false, true);
	else if ((code & 0xff00) == 0xb200 || (code & 0xff00) == 0xba00)
		arm_overwrite(state, field(code, 0, 3));
}

static void apply_narrow(uint32_t code, struct arm_state *state)
{
	const unsigned top = code >> 12, rd = field(code, 8, 3);

	if (top < 4)
		low_arithmetic(code, state);
	else if (top == 4 && !(code & 0x0800))
		any_register(code, state);
	else if (top == 4)
		arm_overwrite(state, rd);
	else if (top < 9)
		low_transfer(code, state);
	else if (top == 9)
		one(state, ARM_SP, code & 0x0800, rd, (int32_t)field(code, 0, 8) * 4);
	else if (top == 10 && code & 0x0800)
		arm_set(state, rd, ARM_SP, (int32_t)field(code, 0, 8) * 4);
	else if (top == 10)
		arm_overwrite(state, rd);
	else if (top == 11)
		various(code, state);
	else if (top == 12)
		multiple(state, rd, code & 0x0800, (uint16_t)field(code, 0, 8), false,
			 !(code & 0x0800) || !(code >> rd & 1));
}

/* ThumbExpandImm (DDI 0406C, A6.3.2). */
static int32_t expanded(uint32_t code)
{
	const uint32_t low = field(code, 0, 8),
		       by = field(code, 26, 1) << 4 | field(code, 12, 3) << 1 | low >> 7;
	const uint32_t turned = low | 0x80;

	switch (by >> 1) {
	case 0:
		return (int32_t)low;
	case 1:
		return (int32_t)(low | low << 16);
	case 2:
		return (int32_t)(low << 8 | low << 24);
	case 3:
		return (int32_t)(low * 0x01010101u);
	default:
		return (int32_t)(turned >> by | turned << (32 - by));
	}
}

/* Data processing with an immediate, as it is or to be expanded. */
static void process_immediate(uint32_t code, struct arm_state *state)
{
	enum { ADD = 8, SUB = 13, ADDW = 0x10, SUBW = 0x15 };
	const bool plain = code >> 25 & 1;
	const unsigned op = field(code, 21, 4) | (plain ? 0x10 : 0), rd = field(code, 8, 4),
		       rn = field(code, 16, 4);
	const int32_t twelve =
		(int32_t)(field(code, 26, 1) << 11 | field(code, 12, 3) << 8 | field(code, 0, 8));

	if (rd == ARM_PC)
		return;
	if (op == ADD)
		arm_set(state, rd, rn, expanded(code));
	else if (op == SUB)
		arm_set(state, rd, rn, -(int64_t)expanded(code));
	else if (op == ADDW)
		arm_set(state, rd, rn, twelve);
	else if (op == SUBW)
		arm_set(state, rd, rn, -twelve);
	else
		arm_overwrite(state, rd);
}

/* Two registers, or exclusive. */
static void dual(uint32_t code, struct arm_state *state)
{
	const bool before = code >> 24 & 1, moves = code >> 21 & 1, load = code >> 20 & 1;
	const unsigned rt = field(code, 12, 4), other = field(code, 8, 4), rn = field(code, 16, 4);
	int32_t by = (int32_t)field(code, 0, 8) * 4;

	if (!before && !moves) {
		arm_overwrite(state, load ? rt : field(code, 23, 1) ? field(code, 0, 4) : other);
		return;
	}
	if (!(code >> 23 & 1))
		by = -by;
	one(state, rn, load, rt, before ? by : 0);
	one(state, rn, load, other, before ? by + 4 : 4);
	if (moves)
		arm_set(state, rn, rn, by);
}

static void single(uint32_t code, struct arm_state *state)
{
	const bool load = code >> 20 & 1, word = field(code, 21, 2) == 2;
	const unsigned rt = field(code, 12, 4), rn = field(code, 16, 4);
	const bool short_form = !(code >> 23 & 1) && code >> 11 & 1 && rn != ARM_PC,
		   before = code >> 10 & 1, moves = code >> 8 & 1;
	int32_t by = (int32_t)field(code, 0, 8);
	struct arm_access access = {.rn = (uint8_t)rn, .load = load, .list = (uint16_t)(1u << rt)};

	if (!(code >> 9 & 1))
		by = -by;
	if (short_form) {
		access.offset = before ? by : 0;
		access.moves = moves ? by : 0;
	} else {
		access.offset = (int32_t)field(code, 0, 12);
	}
	if (word && rn != ARM_PC && (short_form || code >> 23 & 1)) {
		arm_access(state, &access);
		return;
	}
	if (short_form && moves)
		arm_set(state, rn, rn, by);
	if (load && rt != ARM_PC)
		arm_overwrite(state, rt);
}

/* Coprocessor instructions are encoded as in A32. */
static void coprocessor(uint32_t code, struct arm_state *state)
{
	struct arm_next next;
	const struct arm_insn insn = {.code = (code & 0x0fffffff) | 0xe0000000,
				      .len = 4,
				      .condition = ARM_ALWAYS};

	if ((code & 0xef000000) != 0xef000000 && code >> 28 == 0xe)
		arm_apply(&insn, state, &next);
}

static void process_register(uint32_t code, struct arm_state *state)
{
	const bool moves =
		field(code, 21, 4) == 2 && field(code, 16, 4) == ARM_PC && !(code & 0x70f0);
	const unsigned rd = field(code, 8, 4);

	if (moves)
		arm_set(state, rd, field(code, 0, 4), 0);
	else if (rd != ARM_PC)
		arm_overwrite(state, rd);
}

/* Shifts, extensions, and multiplications, the long ones of which have two results. */
static void process_shifts(uint32_t code, struct arm_state *state)
{
	arm_overwrite(state, field(code, 8, 4));
	if (code >> 23 & 1 && code >> 24 & 1)
		arm_overwrite(state, field(code, 12, 4));
}

static void apply_wide(uint32_t code, struct arm_state *state)
{
	const unsigned kind = field(code, 25, 4);

	if (kind == 4 && !(code >> 22 & 1))
		multiple(state, field(code, 16, 4), code >> 20 & 1, (uint16_t)code, code >> 24 & 1,
			 code >> 21 & 1);
	else if (kind == 4)
		dual(code, state);
	else if (kind == 5)
		process_register(code, state);
	else if (kind == 6 || kind == 7 || kind == 14 || kind == 15)
		coprocessor(code, state);
	else if (kind < 12 && !(code >> 15 & 1))
		process_immediate(code, state);
	else if (kind == 12)
		single(code, state);
	else if (kind == 13)
		process_shifts(code, state);
}

static bool flow_narrow(const struct arm_insn *insn, struct arm_next *next)
{
	const uint32_t code = insn->code;
	const bool to_high = (code & 0xff87) == 0x4487 || (code & 0xff87) == 0x4687;

	if ((code & 0xf500) == 0xb100) {
		next->path = PATH_BRANCH;
		next->target = target_of(insn->pc, (int32_t)(field(code, 9, 1) << 6 |
							     field(code, 3, 5) << 1));
	} else if ((code & 0xf000) == 0xd000 && field(code, 8, 4) < 14) {
		next->path = PATH_BRANCH;
		next->target = target_of(insn->pc, sign_extend(field(code, 0, 8), 8) * 2);
	} else if ((code & 0xf800) == 0xe000) {
		next->path = insn->condition < ARM_ALWAYS ? PATH_BRANCH : PATH_JUMP;
		next->target = target_of(insn->pc, sign_extend(field(code, 0, 11), 11) * 2);
	} else if ((code & 0xff80) == 0x4700 || (code & 0xff00) == 0xbd00 || to_high) {
		next->path =
			arm_leaves(insn, (code & 0xff00) != 0xbd00 && field(code, 3, 4) != ARM_LR);
	} else if ((code & 0xff00) == 0xde00) {
		next->path = PATH_END;
	} else {
		return false;
	}
	return true;
}

/* The offset of a branch of 4 bytes: b<cond> has fewer bits. */
static int32_t wide_offset(uint32_t code, bool conditional)
{
	const uint32_t s = field(code, 26, 1), j1 = field(code, 13, 1), j2 = field(code, 11, 1);
	const uint32_t low = field(code, 0, 11) << 1;

	if (conditional)
		return sign_extend(s << 20 | j2 << 19 | j1 << 18 | field(code, 16, 6) << 12 | low,
				   21);
	return sign_extend(s << 24 | (s ^ j1 ^ 1) << 23 | (s ^ j2 ^ 1) << 22 |
				   field(code, 16, 10) << 12 | low,
			   25);
}

static bool flow_wide(const struct arm_insn *insn, struct arm_next *next)
{
	const uint32_t code = insn->code;
	const bool table = (code & 0xfff0ffe0) == 0xe8d0f000;
	const bool loads_pc = (code & 0xfe70f000) == 0xf850f000 && field(code, 21, 2) == 2,
		   pops_pc = (code & 0xfe508000) == 0xe8108000,
		   from_stack = field(code, 16, 4) == ARM_SP;

	if ((code & 0xf800d000) == 0xf0008000 && field(code, 22, 4) < 14) {
		next->path = PATH_BRANCH;
		next->target = target_of(insn->pc, wide_offset(code, true));
	} else if ((code & 0xf800d000) == 0xf0009000) {
		next->path = insn->condition < ARM_ALWAYS ? PATH_BRANCH : PATH_JUMP;
		next->target = target_of(insn->pc, wide_offset(code, false));
	} else if (table || loads_pc || pops_pc) {
		next->path = arm_leaves(insn, table || !from_stack);
	} else if ((code & 0xfff0f000) == 0xf7f0a000) {
		next->path = PATH_END; /* udf */
	} else {
		return false;
	}
	return true;
}

/* If-then (DDI 0406C, A8.8.55). */
static uint8_t if_then(const struct arm_insn *insn)
{
	const bool is = insn->len == 2 && (insn->code & 0xff00) == 0xbf00 && insn->code & 15;

	return is ? (uint8_t)insn->code : 0;
}

void thumb_apply(const struct arm_insn *insn, struct arm_state *state, struct arm_next *next)
{
	const bool wide = insn->len == 4;
	uint64_t target;

	*next = (struct arm_next){.path = PATH_ON, .it = if_then(insn)};
	if (wide ? flow_wide(insn, next) : flow_narrow(insn, next))
		return;
	if (thumb_is_call(insn->code, insn->len, insn->pc, &target)) {
		next->path = PATH_CALL;
		arm_called(state);
	} else if (wide)
		apply_wide(insn->code, state);
	else
		apply_narrow(insn->code, state);
}

bool thumb_is_call(uint32_t code, unsigned len, uint64_t pc, uint64_t *target)
{
	const bool stays = code & 0x1000;

	*target = 0;
	if (len == 2)
		return (code & 0xff87) == 0x4780;
	if ((code & 0xf800c000) != 0xf000c000)
		return false;
	/* blx switches to A32: its offset counts from a multiple of 4. */
	*target = target_of(stays ? pc : pc & ~3ull, wide_offset(code, false));
	return true;
}
