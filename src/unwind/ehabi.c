/* SPDX-License-Identifier: BSD-3-Clause */
#include "unwind/ehabi.h"

#include "unwind/arm32/insn.h"
#include "unwind/tables/expression.h"

/* A byte that names four registers has nothing above them. */
#define FOUR 0x0fu

struct running {
	struct dwarf_bytes in;
	uint8_t base;  /* the register that counts as the stack pointer, */
	int64_t sp;    /* bytes from it */
	uint16_t from; /* bit n: register n is at at[n], bytes from `base` */
	int64_t at[ARM_REGISTERS];
	bool finished;
};

static bool pop(struct running *run, unsigned list)
{
	for (unsigned reg = 0; reg < ARM_REGISTERS; reg++) {
		if (!(list >> reg & 1))
			continue;
		run->from |= (uint16_t)(1u << reg);
		run->at[reg] = run->sp;
		run->sp += 4;
	}
	/* A stack that goes on where a word of it says is more than a row can say. */
	return !(list >> ARM_SP & 1);
}

static bool skip(struct running *run, int64_t bytes)
{
	run->sp += bytes;
	return run->sp >= -ARM_FRAME_MAX && run->sp <= ARM_FRAME_MAX;
}

static bool next_byte(struct running *run, unsigned *byte)
{
	if (run->in.at == run->in.end)
		return false;
	*byte = *run->in.at++;
	return true;
}

/* Where another register counts as the stack pointer, nothing may have been popped before. */
static bool take_for_sp(struct running *run, unsigned reg)
{
	if (reg == ARM_SP || reg == ARM_PC || run->from)
		return false;
	run->base = (uint8_t)reg;
	run->sp = 0;
	return true;
}

static bool skip_much(struct running *run)
{
	uint64_t words;

	return dwarf_uleb(&run->in, &words) && words <= ARM_FRAME_MAX &&
	       skip(run, 0x204 + (int64_t)words * 4);
}

/* 1011xxxx */
static bool various(struct running *run, unsigned op)
{
	unsigned byte;

	switch (op) {
	case 0xb0:
		run->finished = true;
		return true;
	case 0xb1:
		return next_byte(run, &byte) && byte && byte <= FOUR && pop(run, byte);
	case 0xb2:
		return skip_much(run);
	case 0xb3: /* d registers as FSTMFDX has stored them */
		return next_byte(run, &byte) && skip(run, (byte & 15) * 8 + 12);
	case 0xb4: /* the return address's authentication code */
		return skip(run, 4);
	case 0xb5: /* it was made with this stack pointer */
		return true;
	}
	return op >= 0xb8 && skip(run, (op & 7) * 8 + 12);
}

/* 11xxxxxx: registers for vectors */
static bool vectors(struct running *run, unsigned op)
{
	unsigned byte;

	if (op <= 0xc5 || (op >= 0xd0 && op <= 0xd7))
		return skip(run, (op & 7) * 8 + 8);
	if (op != 0xc6 && op != 0xc7 && op != 0xc8 && op != 0xc9)
		return false;
	if (!next_byte(run, &byte))
		return false;
	if (op != 0xc7)
		return skip(run, (byte & 15) * 8 + 8);
	return byte && byte <= FOUR && skip(run, 4 * __builtin_popcount(byte));
}

static bool apply(struct running *run, unsigned op)
{
	unsigned list;

	switch (op >> 4) {
	case 0x8:
		if (!next_byte(run, &list))
			return false;
		list |= (op & 15) << 8;
		return list && pop(run, list << 4);
	case 0x9:
		return take_for_sp(run, op & 15);
	case 0xa:
		list = ((2u << (op & 7)) - 1) << 4;
		return pop(run, op & 8 ? list | 1u << ARM_LR : list);
	case 0xb:
		return various(run, op);
	default:
		if (op >= 0xc0)
			return vectors(run, op);
		return skip(run, op & 0x40 ? -(int64_t)(op & 0x3f) * 4 - 4
					   : (int64_t)(op & 0x3f) * 4 + 4);
	}
}

/* Where a register is, from the CFA. */
static bool place(const struct running *run, unsigned reg, int16_t *at)
{
	const int64_t offset = run->at[reg] - run->sp;

	*at = ROW_SAME;
	if (!(run->from >> reg & 1))
		return true;
	*at = (int16_t)offset;
	return offset > ROW_LOST && offset <= INT16_MAX;
}

bool ehabi_compile(const uint8_t *ops, size_t n, struct row *row, struct row_kept *kept)
{
	struct running run = {.in = {ops, ops + n}, .base = ARM_SP};
	bool good = true;
	unsigned op;

	while (good && !run.finished && next_byte(&run, &op))
		good = apply(&run, op);
	*row = (struct row){.kind = ROW_BODY,
			    .base = ROW_PLUS,
			    .cfa_reg = run.base,
			    .cfa_offset = (int32_t)run.sp,
			    .sp_at = ROW_SAME};
	for (unsigned i = 0; i < ROW_KEPT; i++)
		good = good && place(&run, ROW_KEPT_FIRST + i, &kept->at[i]);
	return good && place(&run, run.from >> ARM_PC & 1 ? ARM_PC : ARM_LR, &row->ra_at);
}
