/* SPDX-License-Identifier: BSD-3-Clause */
#include "unwind/arm32/arm32.h"

#include <stdlib.h>

#include "arch/arm/arm.h"

/* Finds out the facts about an address of A32 or T32 code once, and caches them. */

/* Rows that are searched for a function's start and end at most. */
#define ROWS_OF_FUNCTION 256

static uint8_t condition_flags(const struct walk *walk)
{
	const uint32_t flags = (uint32_t)walk->in->regs->flags;

	return walk->at.kind == FRAME_PC ? (uint8_t)(flags >> 28) : 0;
}

/* A call is entered in the state of the code before it. */
static uint64_t insn_addr(const struct walk *walk)
{
	const struct cursor *at = &walk->at;
	struct arm_return call;

	if (at->kind == FRAME_PC || !arm_believe(walk, at->addr | walk->arm.thumb, &call))
		return at->addr;
	return at->addr - call.len;
}

enum flow_result arm_follow_to_pc(const struct walk *walk, const struct arm_range *range,
				  struct arm_state *state)
{
	struct unwinder *unwinder = walk->in->unwinder;
	struct arm_scratch *scratch = unwinder->scratch;
	const struct arm_query query = {.flow = {.start = range->start,
						 .end = range->end,
						 .entry = range->entry,
						 .addr = insn_addr(walk),
						 .kind = FRAME_PC},
					.thumb = walk->arm.thumb,
					.by_flags = walk->at.kind == FRAME_PC,
					.flags = (uint32_t)walk->in->regs->flags};

	if (!walk->in->code->read || range->end <= range->start ||
	    range->end - range->start > PATHS_SIZE_MAX || unwinder->steps < PATHS_SIZE_MAX)
		return FLOW_UNKNOWN;
	unwinder->steps -= (unsigned)(range->end - range->start);
	return arm_follow(&scratch->paths, walk->in->code, &query, state);
}

/* Tables say where functions start, too: the last that does so before the row, and the next. */
static bool find_range(const struct table_entry *entry, struct arm_range *range)
{
	const struct unwind_table *table = entry->whole;
	const struct row *row = entry->row, *last = table->row + table->n - 1;
	const struct row *next = row < last ? row + 1 : NULL;

	for (unsigned i = 0; i < ROWS_OF_FUNCTION && !row->begins && row > table->row; i++)
		row--;
	for (unsigned i = 0;
	     i < ROWS_OF_FUNCTION && next && next->kind != ROW_NONE && !next->begins; i++)
		next = next < last ? next + 1 : NULL;
	if (!row->begins || !next)
		return false;
	*range = (struct arm_range){.entry = entry->base + row->start,
				    .start = entry->base + row->start,
				    .end = entry->base + next->start};
	return true;
}

static void fill(const struct walk *walk, struct arm_pc_info *info)
{
	struct unwinder *unwinder = walk->in->unwinder;
	const struct code *code = walk->in->code;
	const struct cursor *at = &walk->at;
	struct arm_range range = {0};

	*info = (struct arm_pc_info){.addr = at->addr,
				     .root = unwinder->root,
				     .age = unwinder->age,
				     .kind = at->kind,
				     .flags = condition_flags(walk),
				     .thumb = walk->arm.thumb,
				     .known = FLOW_UNKNOWN,
				     .filled = true};
	if (code->table && walk->in->method != UNWIND_FP)
		find_table_entry(code, at->addr, (enum frame_kind)at->kind, &info->table);
	info->has_start = code->function &&
			  code->function(code->ctx, insn_addr(walk), &range.start, &range.end);
	range.entry = range.start;
	if (!info->has_start && info->table.row && info->table.whole->n_kept &&
	    find_range(&info->table, &range))
		info->has_start = info->table.row->kind == ROW_CALL;
	else if (!info->has_start)
		return;
	info->start = range.start;
	info->known = (uint8_t)arm_follow_to_pc(walk, &range, &info->state);
}

const struct arm_pc_info *arm_pc_info_at(const struct walk *walk)
{
	const struct unwinder *unwinder = walk->in->unwinder;
	const struct cursor *at = &walk->at;
	const uint8_t flags = condition_flags(walk);
	const uint64_t hash = ((at->addr ^ unwinder->root) + at->kind + ((uint64_t)flags << 32)) *
			      0x9e3779b97f4a7c15ull;
	struct arm_scratch *scratch = unwinder->scratch;
	struct arm_pc_info *info = &scratch->info[hash >> (64 - ARM_INFO_BITS)];

	if (!info->filled || info->addr != at->addr || info->root != unwinder->root ||
	    info->kind != at->kind || info->flags != flags || info->thumb != walk->arm.thumb ||
	    info->age != unwinder->age)
		fill(walk, info);
	return info;
}

/* Is this the row to go by? Those for exceptions do not say how a function begins and ends. */
static bool has_row(const struct walk *walk, const struct arm_pc_info *info)
{
	const struct row *row = info->table.row;

	return row &&
	       (row->kind == ROW_CALL || (row->kind == ROW_BODY && walk->at.kind == FRAME_RETURN));
}

/* Linkers say of all code that has no tables that it is outermost: it must have called something. */
static bool may_end(const struct walk *walk, const struct arm_pc_info *info)
{
	const struct row *row = info->table.row;

	return row && row->kind == ROW_END && walk->at.kind == FRAME_RETURN;
}

/*
 * The walk may begin at a function's first or last instructions, of which
 * tables say nothing, or something wrong: the code is asked first there, and
 * the tables behind calls.
 */
static enum found rule_tables(struct walk *walk, const struct arm_pc_info *info, uint8_t *trust)
{
	const bool begins = walk->at.kind == FRAME_PC;
	enum found found = FOUND_NONE;

	if (begins && info->table.row && (!info->has_start || info->known != FLOW_FOUND))
		found = arm_rule_target(walk, info, trust);
	if (found == FOUND_NONE && begins && info->table.row && !walk->beyond)
		found = arm_rule_code(walk, info, trust);
	if (found != FOUND_NONE || walk->beyond || !has_row(walk, info))
		return found;
	found = arm_rule_table(walk, info, trust);
	if (begins)
		*trust = TRUST_GUESS;
	return found;
}

/* Code that was followed from a known start comes first, then the tables. */
static enum found rule_code_and_tables(struct walk *walk, const struct arm_pc_info *info,
				       uint8_t *trust)
{
	const bool known = info->has_start && info->known == FLOW_FOUND;
	enum found found = FOUND_NONE;

	if (known)
		found = arm_rule_code(walk, info, trust);
	if (found == FOUND_NONE && !walk->beyond)
		found = rule_tables(walk, info, trust);
	if (found == FOUND_NONE && !walk->beyond && !info->has_start)
		found = arm_rule_target(walk, info, trust);
	if (found == FOUND_NONE && !walk->beyond && !known)
		found = arm_rule_code(walk, info, trust);
	return found;
}

static enum found find_caller(struct walk *walk, uint8_t *trust)
{
	const enum unwind_method method = walk->in->method;
	enum found found = FOUND_NONE;
	struct arm_pc_info info;

	*trust = TRUST_GUESS;
	walk->beyond = false;
	if (!walk->in->unwinder || !walk->in->unwinder->scratch)
		return arm_rule_record(walk);
	if (method == UNWIND_SCAN)
		return FOUND_NONE;
	/* A copy: looking up others may displace it. */
	info = *arm_pc_info_at(walk);
	walk->table = info.table;
	found = method == UNWIND_CFI ? rule_tables(walk, &info, trust)
				     : rule_code_and_tables(walk, &info, trust);
	if (found == FOUND_NONE && !walk->beyond && may_end(walk, &info))
		found = arm_rule_table(walk, &info, trust);
	/* Code that a table knows has no frame record that the table does not know. */
	if (found != FOUND_NONE || walk->beyond ||
	    (info.table.row && info.table.row->kind != ROW_END))
		return found;
	*trust = TRUST_GUESS;
	return arm_rule_record(walk);
}

static void *scratch_new(void)
{
	return calloc(1, sizeof(struct arm_scratch));
}

static void begin(struct walk *walk)
{
	const struct regs *regs = walk->in->regs;

	walk->arm.known = (uint16_t)regs->gp_valid;
	walk->arm.thumb = regs->flags & ARM_PSTATE_T;
	for (unsigned reg = 0; reg < ARM_REGISTERS; reg++)
		walk->arm.r[reg] = (uint32_t)regs->gp[reg];
}

/*
 * Finds callers by following the code of the function, whatever its frame looks
 * like and whether it has one; the link register counts only where that shows
 * that it is fresh. If the function's start is unknown, the image's table gives
 * the caller; tables may be wrong at the innermost frame, so there the caller
 * must be proven: by following the code from the call's target. Code that no
 * table knows is left to frame records, in each of the layouts that compilers
 * make.
 */
const struct unwind_isa unwind_arm32 = {
	.isa = ISA_ARM,
	.word = 4,
	.sp = ARM_SP,
	.fp = RULE_NO_REGISTER,
	.ra = ARM_LR,
	.link = true,
	.flow_steps = PATHS_SIZE_MAX,
	.scratch_new = scratch_new,
	.begin = begin,
	.find_caller = find_caller,
	.try_return = arm_try_return,
};
