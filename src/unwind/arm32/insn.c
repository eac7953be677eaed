/* SPDX-License-Identifier: BSD-3-Clause */
#include "unwind/arm32/insn.h"

#include <string.h>

/* Operations of whole instructions beside those of link.h: they are taken apart. */
enum {
	BY_LIST = LINK_BEGIN + 1, /* ldm and stm of A32 */
	BY_LIST_THUMB,		  /* ... of T32, where those that begin before the base go down */
	ACCESS,	      /* a word at rs1 + imm, before or after which rs1 may move: to rd, or rs2 */
	ACCESS_PAIR,  /* ... two words */
	ACCESS_PART,  /* ... as ACCESS, but not of a word */
	ACCESS_AT,    /* ... at an offset in a register */
	LOSE_TWO,     /* rd and rs2 have values that are not told */
	ADD_ROTATED,  /* rd = rs1 + an immediate of A32 (A5.2.4) */
	ADD_EXPANDED, /* ... of T32 (A6.3.2) */
	JUMP_FAR,     /* b and bl of T32, whose offset has two bits turned over (A8.8.18) */
	AS_A32,	      /* encoded as in A32 */
};

/* Registers by their lowest bit; those of three bits, and two of four in parts, are T16's. */
enum { R0 = LINK_FIELD, R8, R12, R16, LOW0, LOW3, LOW8, HIGH0, HIGH3 };
/* Lists of registers. */
enum { LIST = HIGH3 + 1, LOW_LIST, PUSH_LIST, POP_LIST };
/* Numbers of A32, some of which are T32's as well; of T16; and of T32. */
enum { BRANCH24 = POP_LIST + 1, BLX24, SPLIT8, IMM12, WORDS8 };
enum { CBZ = WORDS8 + 1, BRANCH8, BRANCH11, IMM3, IMM8, WORDS5, WORDS7, WORDS8_UP };
enum { BRANCH21 = WORDS8_UP + 1, BRANCH25, PARTS12, IMM12_UP, SHORT8 };

static const struct link_number numbers[] = {
	[R0 - LINK_FIELD] = {.piece = {{0, 4, 0}}},
	[R8 - LINK_FIELD] = {.piece = {{8, 4, 0}}},
	[R12 - LINK_FIELD] = {.piece = {{12, 4, 0}}},
	[R16 - LINK_FIELD] = {.piece = {{16, 4, 0}}},
	[LOW0 - LINK_FIELD] = {.piece = {{0, 3, 0}}},
	[LOW3 - LINK_FIELD] = {.piece = {{3, 3, 0}}},
	[LOW8 - LINK_FIELD] = {.piece = {{8, 3, 0}}},
	[HIGH0 - LINK_FIELD] = {.piece = {{0, 3, 0}, {7, 1, 3}}},
	[HIGH3 - LINK_FIELD] = {.piece = {{3, 4, 0}}},
	[LIST - LINK_FIELD] = {.piece = {{0, 16, 0}}},
	[LOW_LIST - LINK_FIELD] = {.piece = {{0, 8, 0}}},
	[PUSH_LIST - LINK_FIELD] = {.piece = {{0, 8, 0}, {8, 1, ARM_LR}}},
	[POP_LIST - LINK_FIELD] = {.piece = {{0, 8, 0}, {8, 1, ARM_PC}}},
	[BRANCH24 - LINK_FIELD] = {.sign = 26, .piece = {{0, 24, 2}}},
	[BLX24 - LINK_FIELD] = {.sign = 26, .piece = {{0, 24, 2}, {24, 1, 1}}},
	[SPLIT8 - LINK_FIELD] = {.up = 23, .piece = {{8, 4, 4}, {0, 4, 0}}},
	[IMM12 - LINK_FIELD] = {.up = 23, .piece = {{0, 12, 0}}},
	[WORDS8 - LINK_FIELD] = {.up = 23, .piece = {{0, 8, 2}}},
	[CBZ - LINK_FIELD] = {.piece = {{9, 1, 6}, {3, 5, 1}}},
	[BRANCH8 - LINK_FIELD] = {.sign = 9, .piece = {{0, 8, 1}}},
	[BRANCH11 - LINK_FIELD] = {.sign = 12, .piece = {{0, 11, 1}}},
	[IMM3 - LINK_FIELD] = {.down = 9, .piece = {{6, 3, 0}}},
	[IMM8 - LINK_FIELD] = {.down = 11, .piece = {{0, 8, 0}}},
	[WORDS5 - LINK_FIELD] = {.piece = {{6, 5, 2}}},
	[WORDS7 - LINK_FIELD] = {.down = 7, .piece = {{0, 7, 2}}},
	[WORDS8_UP - LINK_FIELD] = {.piece = {{0, 8, 2}}},
	[BRANCH21 - LINK_FIELD] =
		{21, .piece = {{26, 1, 20}, {11, 1, 19}, {13, 1, 18}, {16, 6, 12}, {0, 11, 1}}},
	[BRANCH25 - LINK_FIELD] =
		{25, .piece = {{26, 1, 24}, {13, 1, 23}, {11, 1, 22}, {16, 10, 12}, {0, 11, 1}}},
	[PARTS12 - LINK_FIELD] = {.down = 23, .piece = {{26, 1, 11}, {12, 3, 8}, {0, 8, 0}}},
	[IMM12_UP - LINK_FIELD] = {.piece = {{0, 12, 0}}},
	[SHORT8 - LINK_FIELD] = {.up = 9, .piece = {{0, 8, 0}}},
};

#define NO ARM_REGISTERS /* no register */

/* The first that fits is it, in each of the tables. */
static const struct link_shape a32[] = {
	/* Unconditional instructions: blx, and others that are no concern. */
	{0xfe000000, 0xfa000000, LINK_JUMP, BLX24, ARM_LR, NO, NO},
	{0xf0000000, 0xf0000000, LINK_OTHER, 0, NO, NO, NO},
	{0x0f000000, 0x0a000000, LINK_JUMP, BRANCH24, NO, NO, NO},
	{0x0f000000, 0x0b000000, LINK_JUMP, BRANCH24, ARM_LR, NO, NO},
	/* udf, bkpt; bx lr and mov pc, lr; bx, blx */
	{0xfff000f0, 0xe7f000f0, LINK_STOP, 0, NO, NO, NO},
	{0xfff000f0, 0xe1200070, LINK_STOP, 0, NO, NO, NO},
	{0x0fffffff, 0x012fff1e, LINK_JALR, 0, NO, ARM_LR, NO},
	{0x0fffffff, 0x01a0f00e, LINK_JALR, 0, NO, ARM_LR, NO},
	{0x0ffffff0, 0x012fff10, LINK_JALR, 0, NO, R0, NO},
	{0x0ffffff0, 0x012fff30, LINK_JALR, 0, ARM_LR, R0, NO},
	/* Multiplications, the long ones of which have two results; exclusive loads and stores. */
	{0x0f8000f0, 0x00000090, LINK_OTHER, 0, R16, NO, NO},
	{0x0f8000f0, 0x00800090, LOSE_TWO, 0, R16, NO, R12},
	{0x0f0000f0, 0x01000090, LINK_OTHER, 0, R12, NO, NO},
	/* ldrd and strd; other loads and stores of less than a word: strh, and the loads. */
	{0x0e5000f0, 0x004000d0, ACCESS_PAIR, SPLIT8, R12, R16, NO},
	{0x0e5000f0, 0x004000f0, ACCESS_PAIR, SPLIT8, NO, R16, R12},
	{0x0e5000f0, 0x000000d0, ACCESS_AT, 0, R12, R16, NO},
	{0x0e500090, 0x00400090, ACCESS_PART, SPLIT8, NO, R16, R12},
	{0x0e500090, 0x00500090, ACCESS_PART, SPLIT8, R12, R16, NO},
	{0x0e100090, 0x00000090, ACCESS_AT, 0, NO, R16, R12},
	{0x0e100090, 0x00100090, ACCESS_AT, 0, R12, R16, NO},
	/* Halfword multiplications, msr, mrs, clz and bkpt, in place of comparisons that set no flags; movw, movt. */
	{0x0f900080, 0x01000080, LINK_OTHER, 0, R16, NO, NO},
	{0x0fb000f0, 0x01200000, LINK_OTHER, 0, NO, NO, NO},
	{0x0f9000f0, 0x01000070, LINK_OTHER, 0, NO, NO, NO},
	{0x0f900000, 0x01000000, LINK_OTHER, 0, R12, NO, NO},
	{0x0fb00000, 0x03000000, LINK_OTHER, 0, R12, NO, NO},
	/* Comparisons; jumps by a computed address; mov, add and sub; all else that computes. */
	{0x0d800000, 0x01000000, LINK_OTHER, 0, NO, NO, NO},
	{0x0c00f000, 0x0000f000, LINK_JALR, 0, NO, NO, NO},
	{0x0fe00ff0, 0x01a00000, LINK_ADDI, 0, R12, R0, NO},
	{0x0fe00000, 0x02800000, ADD_ROTATED, IMM12, R12, R16, NO},
	{0x0fe00000, 0x02400000, ADD_ROTATED, IMM12, R12, R16, NO},
	{0x0c000000, 0x00000000, LINK_OTHER, 0, R12, NO, NO},
	/* smlad, udiv and their like, whose result is elsewhere; other instructions for media. */
	{0x0fc00010, 0x07400010, LOSE_TWO, 0, R16, NO, R12},
	{0x0f800010, 0x07000010, LINK_OTHER, 0, R16, NO, NO},
	{0x0e000010, 0x06000010, LINK_OTHER, 0, R12, NO, NO},
	/* Loads of pc, off the stack or elsewhere; other loads and stores. */
	{0x0c1ff000, 0x041df000, LINK_JALR, 0, NO, ARM_LR, NO},
	{0x0c10f000, 0x0410f000, LINK_JALR, 0, NO, NO, NO},
	{0x0e500000, 0x04000000, ACCESS, IMM12, NO, R16, R12},
	{0x0e500000, 0x04100000, ACCESS, IMM12, R12, R16, NO},
	{0x0e500000, 0x04400000, ACCESS_PART, IMM12, NO, R16, R12},
	{0x0e500000, 0x04500000, ACCESS_PART, IMM12, R12, R16, NO},
	{0x0e100000, 0x06000000, ACCESS_AT, 0, NO, R16, R12},
	{0x0e100000, 0x06100000, ACCESS_AT, 0, R12, R16, NO},
	{0x0e1f8000, 0x081d8000, LINK_JALR, 0, NO, ARM_LR, NO},
	{0x0e108000, 0x08108000, LINK_JALR, 0, NO, NO, NO},
	{0x0e000000, 0x08000000, BY_LIST, LIST, NO, R16, NO},
	/* Two registers from a coprocessor; its loads and stores, which may move the base; one register from it. */
	{0x0ff00000, 0x0c500000, LOSE_TWO, 0, R12, NO, R16},
	{0x0ff00000, 0x0c400000, LINK_OTHER, 0, NO, NO, NO},
	{0x0e200000, 0x0c200000, LINK_ADDI, WORDS8, R16, R16, NO},
	{0x0f10f010, 0x0e10f010, LINK_OTHER, 0, NO, NO, NO},
	{0x0f100010, 0x0e100010, LINK_OTHER, 0, R12, NO, NO},
	{0x00000000, 0x00000000, LINK_OTHER, 0, NO, NO, NO},
};

static const struct link_shape t16[] = {
	/* Shifts, add and sub, immediates; tst, cmp and cmn; mov. */
	{0xfc00, 0x1c00, LINK_ADDI, IMM3, LOW0, LOW3, NO},
	{0xe000, 0x0000, LINK_OTHER, 0, LOW0, NO, NO},
	{0xf800, 0x2000, LINK_OTHER, 0, LOW8, NO, NO},
	{0xf800, 0x2800, LINK_OTHER, 0, NO, NO, NO},
	{0xf000, 0x3000, LINK_ADDI, IMM8, LOW8, LOW8, NO},
	{0xffc0, 0x4200, LINK_OTHER, 0, NO, NO, NO},
	{0xff80, 0x4280, LINK_OTHER, 0, NO, NO, NO},
	{0xfc00, 0x4000, LINK_OTHER, 0, LOW0, NO, NO},
	/* bx, add and mov to pc, by lr or not; blx; cmp */
	{0xfff8, 0x4770, LINK_JALR, 0, NO, ARM_LR, NO},
	{0xff80, 0x4700, LINK_JALR, 0, NO, NO, NO},
	{0xff87, 0x4780, LINK_JALR, 0, ARM_LR, NO, NO},
	{0xfdff, 0x44f7, LINK_JALR, 0, NO, ARM_LR, NO},
	{0xfd87, 0x4487, LINK_JALR, 0, NO, NO, NO},
	{0xff00, 0x4400, LINK_OTHER, 0, HIGH0, NO, NO},
	{0xff00, 0x4600, LINK_ADDI, 0, HIGH0, HIGH3, NO},
	{0xfc00, 0x4400, LINK_OTHER, 0, NO, NO, NO},
	/* Loads, and stores: by an address near pc, by a register, of less than a word, by sp. */
	{0xf800, 0x4800, LINK_OTHER, 0, LOW8, NO, NO},
	{0xfe00, 0x5600, LINK_OTHER, 0, LOW0, NO, NO},
	{0xf800, 0x5800, LINK_OTHER, 0, LOW0, NO, NO},
	{0xf800, 0x6000, LINK_STORE, WORDS5, NO, LOW3, LOW0},
	{0xf800, 0x6800, LINK_LOAD, WORDS5, LOW0, LOW3, NO},
	{0xf800, 0x7800, LINK_OTHER, 0, LOW0, NO, NO},
	{0xf800, 0x8800, LINK_OTHER, 0, LOW0, NO, NO},
	{0xf800, 0x9000, LINK_STORE, WORDS8_UP, NO, ARM_SP, LOW8},
	{0xf800, 0x9800, LINK_LOAD, WORDS8_UP, LOW8, ARM_SP, NO},
	{0xf800, 0xa000, LINK_OTHER, 0, LOW8, NO, NO},
	{0xf800, 0xa800, LINK_ADDI, WORDS8_UP, LOW8, ARM_SP, NO},
	/* add and sub of sp; cbz; extensions; push, pop; rev */
	{0xff00, 0xb000, LINK_ADDI, WORDS7, ARM_SP, ARM_SP, NO},
	{0xf500, 0xb100, LINK_BRANCH, CBZ, NO, NO, NO},
	{0xff00, 0xb200, LINK_OTHER, 0, LOW0, NO, NO},
	{0xfe00, 0xb400, BY_LIST_THUMB, PUSH_LIST, NO, ARM_SP, NO},
	{0xff00, 0xba00, LINK_OTHER, 0, LOW0, NO, NO},
	{0xff00, 0xbd00, LINK_JALR, 0, NO, ARM_LR, NO},
	{0xfe00, 0xbc00, BY_LIST_THUMB, POP_LIST, NO, ARM_SP, NO},
	{0xf000, 0xc000, BY_LIST_THUMB, LOW_LIST, NO, LOW8, NO},
	/* udf, svc, branches */
	{0xff00, 0xde00, LINK_STOP, 0, NO, NO, NO},
	{0xff00, 0xdf00, LINK_OTHER, 0, NO, NO, NO},
	{0xf000, 0xd000, LINK_BRANCH, BRANCH8, NO, NO, NO},
	{0xf800, 0xe000, LINK_JUMP, BRANCH11, NO, NO, NO},
	{0x0000, 0x0000, LINK_OTHER, 0, NO, NO, NO},
};

static const struct link_shape t32[] = {
	/* udf; hints, msr and mrs; branches and calls */
	{0xfff0f000, 0xf7f0a000, LINK_STOP, 0, NO, NO, NO},
	{0xfb80d000, 0xf3808000, LINK_OTHER, 0, NO, NO, NO},
	{0xf800d000, 0xf0008000, LINK_BRANCH, BRANCH21, NO, NO, NO},
	{0xf800d000, 0xf0009000, JUMP_FAR, BRANCH25, NO, NO, NO},
	{0xf800c000, 0xf000c000, JUMP_FAR, BRANCH25, ARM_LR, NO, NO},
	/* Loads of pc, off the stack or elsewhere; tbb */
	{0xfff0ffe0, 0xe8d0f000, LINK_JALR, 0, NO, NO, NO},
	{0xfe7ff000, 0xf85df000, LINK_JALR, 0, NO, ARM_LR, NO},
	{0xfe70f000, 0xf850f000, LINK_JALR, 0, NO, NO, NO},
	{0xfe5f8000, 0xe81d8000, LINK_JALR, 0, NO, ARM_LR, NO},
	{0xfe508000, 0xe8108000, LINK_JALR, 0, NO, NO, NO},
	{0x1e400000, 0x08000000, BY_LIST_THUMB, LIST, NO, R16, NO},
	/* Exclusive loads and stores; ldrd and strd */
	{0x1f700000, 0x08500000, LINK_OTHER, 0, R12, NO, NO},
	{0x1ff00000, 0x08c00000, LINK_OTHER, 0, R0, NO, NO},
	{0x1ff00000, 0x08400000, LINK_OTHER, 0, R8, NO, NO},
	{0x1e500000, 0x08400000, ACCESS_PAIR, WORDS8, NO, R16, R12},
	{0x1e500000, 0x08500000, ACCESS_PAIR, WORDS8, R12, R16, NO},
	/* mov; comparisons, and what else computes from registers */
	{0x1fef70f0, 0x0a4f0000, LINK_ADDI, 0, R8, R0, NO},
	{0x1e000f00, 0x0a000f00, LINK_OTHER, 0, NO, NO, NO},
	{0x1e000000, 0x0a000000, LINK_OTHER, 0, R8, NO, NO},
	{0xfc000000, 0xec000000, AS_A32, 0, NO, NO, NO},
	/* Immediates: comparisons, and what else computes from them; add, sub, addw, subw. */
	{0x18008f00, 0x10000f00, LINK_OTHER, 0, NO, NO, NO},
	{0x1be08000, 0x11000000, ADD_EXPANDED, PARTS12, R8, R16, NO},
	{0x1be08000, 0x11a00000, ADD_EXPANDED, PARTS12, R8, R16, NO},
	{0x1be08000, 0x12000000, LINK_ADDI, PARTS12, R8, R16, NO},
	{0x1be08000, 0x12a00000, LINK_ADDI, PARTS12, R8, R16, NO},
	{0x18008000, 0x10000000, LINK_OTHER, 0, R8, NO, NO},
	/* Hints of what will be loaded; loads by an address near pc; of words, and of others. */
	{0x1e1ff000, 0x181ff000, LINK_OTHER, 0, NO, NO, NO},
	{0x1e1f0000, 0x181f0000, LINK_OTHER, 0, R12, NO, NO},
	{0x1e0f0000, 0x180f0000, LINK_OTHER, 0, NO, NO, NO},
	{0x1ef00000, 0x18c00000, LINK_STORE, IMM12_UP, NO, R16, R12},
	{0x1ef00000, 0x18d00000, LINK_LOAD, IMM12_UP, R12, R16, NO},
	{0x1ef00800, 0x18400800, ACCESS, SHORT8, NO, R16, R12},
	{0x1ef00800, 0x18500800, ACCESS, SHORT8, R12, R16, NO},
	{0x1e900800, 0x18000800, ACCESS_PART, SHORT8, NO, R16, R12},
	{0x1e90f800, 0x1810f800, ACCESS_PART, SHORT8, NO, R16, R12},
	{0x1e900800, 0x18100800, ACCESS_PART, SHORT8, R12, R16, NO},
	{0x1e10f000, 0x1810f000, LINK_OTHER, 0, NO, NO, NO},
	{0x1e100000, 0x18100000, LINK_OTHER, 0, R12, NO, NO},
	{0x1e000000, 0x18000000, LINK_OTHER, 0, NO, NO, NO},
	/* Shifts, extensions, and multiplications, the long ones of which have two results. */
	{0x1f800000, 0x1b800000, LOSE_TWO, 0, R8, NO, R12},
	{0x1e000000, 0x1a000000, LINK_OTHER, 0, R8, NO, NO},
	{0x00000000, 0x00000000, LINK_OTHER, 0, NO, NO, NO},
};

/* Do the bits of an access say so? At these places in A32 and in T32's pairs; in other loads and stores of T32. */
static bool flag(uint32_t code, unsigned at, unsigned at_short)
{
	return code >> (code >> 28 == 0xf ? at_short : at) & 1;
}

static struct link_op word(const struct link_op *access, unsigned reg, int64_t offset)
{
	const bool load = access->rd != NO;

	return (struct link_op){.op = load ? LINK_LOAD : LINK_STORE,
				.rd = (uint8_t)(load ? reg : NO),
				.rs1 = access->rs1,
				.rs2 = (uint8_t)(load ? NO : reg),
				.imm = offset};
}

/* Loads and stores of one register or two. */
static unsigned accesses(uint32_t code, struct link_op *op)
{
	const bool before = flag(code, 24, 10), moves = !before || flag(code, 21, 8);
	const struct link_op access = *op;
	const unsigned first = access.rd != NO ? access.rd : access.rs2;
	/* A32's pairs are of neighbours. */
	const unsigned second = code >> 27 & 1 ? field(code, 8, 4) : first + 1;
	const struct link_op other = word(&access, second, 4);
	const bool pair = access.op == ACCESS_PAIR && second < NO;
	unsigned n;

	*op = word(&access, first, access.imm);
	if (access.op == ACCESS_PART || access.op == ACCESS_AT)
		op->op = LINK_OTHER;
	n = link_access(op, pair ? &other : NULL, before, moves);
	if (access.op == ACCESS_AT && moves)
		op[n - 1].op = LINK_OTHER;
	return n;
}

/* Registers in ascending order; the base, if it is among them, when it is no longer needed. */
static unsigned by_list(uint32_t code, struct link_op *op)
{
	const struct link_op all = *op;
	const uint16_t list = (uint16_t)all.imm;
	const bool wide = code >> 16, load = code >> (wide ? 20 : 11) & 1;
	const bool before = wide ? code >> 24 & 1 : all.rs1 == ARM_SP && !load;
	const bool up = all.op == BY_LIST ? code >> 23 & 1 : !before;
	const bool moves = wide ? code >> 21 & 1 : !load || !(list >> all.rs1 & 1);
	const int64_t size = 4 * __builtin_popcount(list), by = moves ? (up ? size : -size) : 0;
	const struct link_op access = {.rd = load ? 0 : NO, .rs1 = all.rs1};
	int64_t at = up ? (before ? 4 : 0) : before ? -size : 4 - size, base_at = 0;
	unsigned n = 0;

	for (unsigned reg = 0; reg < NO; reg++) {
		if (!(list >> reg & 1))
			continue;
		if (reg == all.rs1)
			base_at = at;
		else
			op[n++] = word(&access, reg, at);
		at += 4;
	}
	if (moves)
		op[n++] =
			(struct link_op){.op = LINK_ADDI, .rd = all.rs1, .rs1 = all.rs1, .imm = by};
	if (list >> all.rs1 & 1)
		op[n++] = word(&access, all.rs1, base_at - by);
	return n;
}

static int32_t rotated(uint32_t number)
{
	const unsigned by = 2 * field(number, 8, 4);
	const uint32_t value = field(number, 0, 8);

	return (int32_t)(by ? value >> by | value << (32 - by) : value);
}

/* ThumbExpandImm (DDI 0406C, A6.3.2). */
static int32_t expanded(uint32_t number)
{
	const uint32_t low = field(number, 0, 8), turned = low | 0x80;
	const unsigned by = number >> 7;

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

static unsigned take_apart(uint32_t code, struct link_op *op)
{
	const uint32_t number = (uint32_t)(op->imm < 0 ? -op->imm : op->imm);
	int64_t value;

	switch (op->op) {
	case BY_LIST:
	case BY_LIST_THUMB:
		return by_list(code, op);
	case ACCESS:
	case ACCESS_PAIR:
	case ACCESS_PART:
	case ACCESS_AT:
		return accesses(code, op);
	case LOSE_TWO:
		op[0].op = op[1].op = LINK_OTHER;
		op[1].rd = op->rs2;
		return 2;
	case ADD_ROTATED:
	case ADD_EXPANDED:
		value = op->op == ADD_ROTATED ? rotated(number) : expanded(number);
		op->imm = op->imm < 0 ? -value : value;
		op->op = LINK_ADDI;
		break;
	case JUMP_FAR:
		op->imm ^= op->imm < 0 ? 0 : 3 << 22;
		op->op = LINK_JUMP;
		break;
	}
	return 1;
}

bool arm_fetch(const uint8_t *bytes, size_t n, bool thumb, struct arm_insn *insn)
{
	uint16_t half[2] = {0};

	memcpy(half, bytes, n < 4 ? 2 : 4);
	insn->thumb = thumb;
	insn->len = !thumb || half[0] >= 0xe800 ? 4 : 2;
	insn->code = half[0];
	if (insn->len == 4)
		insn->code = thumb ? (uint32_t)half[0] << 16 | half[1]
				   : (uint32_t)half[1] << 16 | half[0];
	insn->condition = thumb ? ARM_ALWAYS : (uint8_t)(insn->code >> 28);
	return insn->len <= n;
}

unsigned arm_decode(const struct arm_insn *insn, struct link_op op[ARM_OPS])
{
	const struct link_shape *shapes = !insn->thumb ? a32 : insn->len == 2 ? t16 : t32;

	link_decode(shapes, numbers, insn->code, op);
	if (op->op == AS_A32)
		link_decode(a32, numbers, insn->code, op);
	return take_apart(insn->code, op);
}

uint64_t arm_target(const struct arm_insn *insn, const struct link_op *op)
{
	/* blx of T32 leads to A32: its offset counts from a multiple of 4. */
	const bool aligned = insn->thumb && op->rd == ARM_LR && !(insn->code & 0x1000);
	const uint64_t pc = aligned ? insn->pc & ~3ull : insn->pc;

	return (uint32_t)(pc + (insn->thumb ? 4 : 8) + (uint64_t)op->imm);
}
