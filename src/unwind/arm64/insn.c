/* SPDX-License-Identifier: BSD-3-Clause */
#include "unwind/arm64/insn.h"

#include <string.h>

enum { FP = 29, LR = 30, SP = 31 };

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

bool arm64_computes(uint32_t insn, unsigned reg)
{
	const bool data = (insn & 0x1c000000) == 0x10000000 || (insn & 0x0e000000) == 0x0a000000;

	return data && field(insn, 0, 5) == reg;
}

/* movz and movk, of 64 bits. */
static bool moves_part(uint32_t insn, struct arm64_number *number)
{
	const unsigned reg = field(insn, 0, 5), shift = 16 * field(insn, 21, 2);
	const uint64_t part = (uint64_t)field(insn, 5, 16) << shift;
	const bool keeps = (insn & 0xff800000) == 0xf2800000;

	if (!keeps && (insn & 0xff800000) != 0xd2800000)
		return false;
	if (keeps && (!number->is || number->reg != reg))
		return false;
	if (keeps)
		number->value &= ~((uint64_t)0xffff << shift);
	*number = (struct arm64_number){true, (uint8_t)reg, part | (keeps ? number->value : 0)};
	return true;
}

bool arm64_number(uint32_t insn, struct arm64_number *number)
{
	struct arm64_access access;
	uint64_t target;

	if (moves_part(insn, number))
		return number->reg < FP;
	if (!number->is)
		return false;
	number->is = !arm64_computes(insn, number->reg) && !arm64_is_call(insn, 0, &target);
	if (!arm64_access(insn, &access))
		return false;
	for (unsigned i = 0; i < access.n && access.load; i++)
		number->is &= access.reg[i] != number->reg;
	return false;
}

bool arm64_sum(uint32_t insn, const struct arm64_number *number, struct arm64_sum *sum)
{
	*sum = (struct arm64_sum){.to = field(insn, 0, 5),
				  .from = field(insn, 5, 5),
				  .by = (int64_t)field(insn, 10, 12) << (insn >> 22 & 1 ? 12 : 0)};
	if ((insn & 0xbfe0fc00) == 0x8b206000 && number->is && field(insn, 16, 5) == number->reg &&
	    number->value <= ARM64_FRAME_MAX)
		sum->by = (int64_t)number->value;
	else if ((insn & 0xbf800000) != 0x91000000)
		return false;
	if (insn >> 30 & 1)
		sum->by = -sum->by;
	return true;
}

/* A register of the caller's is stored at so many bytes below the CFA. */
static void stored(struct arm64_state *state, unsigned reg, int32_t at)
{
	if (state->sp_lost) {
		state->lr_lost |= reg == LR && !state->lr_saved;
		return;
	}
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
	} else if (reg == LR) {
		state->lr_lost = false;
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

/* Sums of which sp or x29 is a part. */
static bool arithmetic(uint32_t insn, struct arm64_state *state)
{
	struct arm64_sum sum;

	if (!arm64_sum(insn, &state->number, &sum) || (sum.to != SP && sum.to != FP))
		return false;
	if (sum.to == SP && sum.from == SP) {
		state->depth -= (int32_t)sum.by;
	} else if (sum.to == FP && sum.from == SP) {
		state->fp_set = !state->sp_lost;
		state->fp_lost = state->sp_lost;
		state->fp_depth = state->depth - (int32_t)sum.by;
	} else if (sum.to == SP && sum.from == FP) {
		state->sp_lost = !state->fp_set;
		state->depth = state->fp_depth - (int32_t)sum.by;
	} else if (sum.to == SP) {
		state->sp_lost = true;
	} else {
		state->fp_set = false;
		state->fp_lost = true;
	}
	return true;
}

bool arm64_moves_sp(uint32_t insn)
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

void arm64_flow(uint32_t insn, uint64_t pc, enum path *path, uint64_t *target)
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
		*path = is_return(insn) ? PATH_RETURN : is_jump(insn) ? PATH_AWAY : PATH_END;
	} else if (arm64_is_call(insn, pc, target)) {
		*path = PATH_CALL;
	} else if ((insn & 0xffe0001f) == 0xd4200000 || !(insn >> 16)) {
		*path = PATH_END; /* brk, udf */
	}
}

bool arm64_apply(uint32_t insn, uint64_t pc, struct arm64_state *state, enum path *path,
		 uint64_t *target)
{
	struct arm64_access access;

	arm64_flow(insn, pc, path, target);
	if (*path != PATH_ON)
		return true;
	if (arm64_number(insn, &state->number)) {
		/* done */
	} else if (arm64_access(insn, &access) && access.base == SP) {
		apply_access(&access, state);
	} else if (arithmetic(insn, state)) {
		/* done */
	} else if (arm64_moves_sp(insn)) {
		state->sp_lost = true;
	} else if (arm64_computes(insn, FP)) {
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

/* To a return: where the code ahead takes from what its caller needs. */

#define INSN 4 /* bytes */

enum exit_is {
	EXIT_LOST,
	EXIT_KEPT,	/* what the register has at the beginning + at */
	EXIT_SP,	/* the stack pointer there + at */
	EXIT_LOADED,	/* the word at that */
	EXIT_LOADED_FP, /* the word at x29 there + at */
};

struct exit_value {
	int64_t at;
	uint8_t is; /* enum exit_is */
};

/* A register's value that the code ahead has stored itself, as what is called last does. */
struct exit_stored {
	int64_t at;
	bool is;
	struct exit_value what;
};

/* Registers from an instruction ahead to a return. */
struct arm64_exit {
	struct exit_value sp; /* EXIT_SP, EXIT_KEPT of x29, or EXIT_LOST */
	struct exit_value fp, lr;
	struct exit_stored stored_fp, stored_lr;
	struct arm64_number number;
};

static const struct exit_value lost;

static struct exit_value plus(struct exit_value value, int64_t by)
{
	if (value.is != EXIT_SP && value.is != EXIT_KEPT)
		return lost;
	value.at += by;
	return value.at < -ARM64_FRAME_MAX || value.at > ARM64_FRAME_MAX ? lost : value;
}

static struct exit_value *reg_of(struct arm64_exit *exit, unsigned reg)
{
	return reg == ARM64_SP	 ? &exit->sp
	       : reg == ARM64_FP ? &exit->fp
	       : reg == ARM64_LR ? &exit->lr
				 : NULL;
}

static void store(struct exit_stored *stored, struct exit_value to, struct exit_value what)
{
	if (to.is == EXIT_SP && !stored->is)
		*stored = (struct exit_stored){.at = to.at, .is = true, .what = what};
}

static struct exit_value load(struct exit_stored *stored, struct exit_value from)
{
	if (from.is == EXIT_SP && stored->is && stored->at == from.at) {
		stored->is = false;
		return stored->what;
	}
	if (from.is == EXIT_LOST)
		return lost;
	return (struct exit_value){from.at, from.is == EXIT_SP ? EXIT_LOADED : EXIT_LOADED_FP};
}

static void pass(struct arm64_exit *exit, const struct arm64_access *access, unsigned reg,
		 struct exit_value where)
{
	struct exit_stored *stored = reg == ARM64_FP ? &exit->stored_fp : &exit->stored_lr;
	struct exit_value *value = reg_of(exit, reg);

	if (reg != ARM64_FP && reg != ARM64_LR)
		return;
	if (!access->load)
		store(stored, where, *value);
	else
		*value = access->whole ? load(stored, where) : lost;
}

static void exit_access(struct arm64_exit *exit, const struct arm64_access *access)
{
	const struct exit_value *base = reg_of(exit, access->base);
	const struct exit_value at = base ? *base : lost;
	const struct exit_value moved = plus(at, access->offset);

	for (unsigned i = 0; i < access->n; i++)
		pass(exit, access, access->reg[i], plus(access->post ? at : moved, 8 * i));
	if (access->writes_back && base)
		*reg_of(exit, access->base) = moved;
}

static bool exit_arithmetic(struct arm64_exit *exit, uint32_t insn)
{
	struct arm64_sum sum;
	const struct exit_value *from;
	struct exit_value *to;

	if (!arm64_sum(insn, &exit->number, &sum))
		return false;
	from = reg_of(exit, sum.from);
	to = reg_of(exit, sum.to);
	/* A return address is no sum. */
	if (to)
		*to = from && to != &exit->lr ? plus(*from, sum.by) : lost;
	return true;
}

/* Any other instruction that has its result in one of these. */
static void overwrite(struct arm64_exit *exit, uint32_t insn)
{
	if (arm64_moves_sp(insn))
		exit->sp = lost;
	if (arm64_computes(insn, ARM64_FP))
		exit->fp = lost;
	if (arm64_computes(insn, ARM64_LR))
		exit->lr = lost;
}

static unsigned exit_apply(const uint8_t *bytes, size_t n, uint64_t pc, void *ctx, enum path *path,
			   uint64_t *target)
{
	struct arm64_exit *exit = ctx;
	struct arm64_access access;
	uint32_t insn;

	if (n < INSN)
		return 0;
	memcpy(&insn, bytes, INSN);
	arm64_flow(insn, pc, path, target);
	if (*path == PATH_CALL)
		exit->lr = lost;
	if (*path == PATH_AWAY && exit->lr.is <= EXIT_KEPT && exit->sp.at)
		*path = PATH_TABLE;
	if (arm64_number(insn, &exit->number) || *path != PATH_ON)
		return INSN;
	if (arm64_access(insn, &access))
		exit_access(exit, &access);
	else if (!exit_arithmetic(exit, insn))
		overwrite(exit, insn);
	return INSN;
}

#define NOP	0xd503201f
#define PACIASP 0xd503233f
#define PACIBSP 0xd503237f
#define BTI	0xd503241f

bool arm64_makes_frame(const uint8_t *bytes, size_t n)
{
	struct arm64_access access;
	uint32_t insn;

	if (n < INSN)
		return false;
	memcpy(&insn, bytes, INSN);
	if (arm64_access(insn, &access) && access.base == ARM64_SP && !access.load)
		return access.writes_back && !access.post && access.offset < 0;
	return (insn & 0xff8003ff) == 0xd10003ff;
}

bool arm64_begins(const uint8_t *bytes, size_t n, bool *called)
{
	uint32_t insn;

	if (n < INSN)
		return true;
	memcpy(&insn, bytes, INSN);
	*called = insn == NOP;
	return insn == PACIASP || insn == PACIBSP || (insn & 0xffffff3f) == BTI || !(insn >> 16) ||
	       arm64_makes_frame(bytes, n);
}

/* The word, as an offset from the CFA that the stack pointer has become; RULE_NOT: none. */
static int32_t loaded_at(const struct arm64_exit *exit, struct exit_value value)
{
	return value.is == (exit->sp.is == EXIT_SP ? EXIT_LOADED : EXIT_LOADED_FP)
		       ? (int32_t)(value.at - exit->sp.at)
		       : RULE_NOT;
}

/* Before a return: are the caller's stack pointer and return address known? */
static bool leaves(const void *ctx)
{
	const struct arm64_exit *exit = ctx;

	if (exit->sp.is == EXIT_LOST || (exit->sp.is == EXIT_SP && exit->sp.at < 0))
		return false;
	return exit->lr.is == EXIT_KEPT || loaded_at(exit, exit->lr) != RULE_NOT;
}

bool arm64_find_return(struct code_reader *reader, uint64_t va, enum frame_kind kind, void *scratch,
		       unsigned *steps, struct rule *out)
{
	static const struct paths paths = {.unit = INSN,
					   .state_size = sizeof(struct arm64_exit),
					   .apply = exit_apply,
					   .begins = arm64_begins};
	const struct paths_start from = {.va = va, .kind = (uint8_t)kind, .leaves = leaves};
	struct arm64_exit exit = {.sp = {.is = EXIT_SP},
				  .fp = {.is = EXIT_KEPT},
				  .lr = {.is = kind == FRAME_RETURN ? EXIT_LOST : EXIT_KEPT}};

	if (!paths_return(&paths, &from, reader, scratch, steps, &exit))
		return false;
	*out = (struct rule){.cfa_sp = exit.sp.is == EXIT_SP ? (int32_t)exit.sp.at : RULE_NOT,
			     .cfa_fp = exit.sp.is == EXIT_KEPT ? (int32_t)exit.sp.at : RULE_NOT,
			     .ra_at = exit.lr.is == EXIT_KEPT ? RULE_SAME
							      : loaded_at(&exit, exit.lr),
			     .fp_at = exit.fp.is == EXIT_KEPT && !exit.fp.at
					      ? RULE_SAME
					      : loaded_at(&exit, exit.fp),
			     .origin = RULE_NO_REGISTER};
	out->chained = out->cfa_fp != RULE_NOT && out->ra_at == 8 - out->cfa_fp &&
		       out->fp_at == -out->cfa_fp;
	return true;
}
