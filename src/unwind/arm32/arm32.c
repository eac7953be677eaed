/* SPDX-License-Identifier: BSD-3-Clause */
#include "unwind/arm32/arm32.h"

#include "arch/arm/arm.h"

/* Rows that are searched for a function's start and end at most. */
#define ROWS_OF_FUNCTION 256

enum flow_result arm_follow_to_pc(struct walk *walk, const struct arm_range *range,
				  struct rule *rule)
{
	struct unwinder *unwinder = walk->in->unwinder;
	const struct flow_query query = {.word = walk->isa->word,
					 .start = range->start,
					 .end = range->end,
					 .entry = range->entry,
					 .addr = walk->at.addr,
					 .kind = walk->at.kind,
					 .mode = arm_mode(walk)};

	if (!walk->in->code->read || !unwinder->scratch || unwinder->steps < walk->isa->flow_steps)
		return FLOW_UNKNOWN;
	return arm_follow(&query, &unwinder->reader, unwinder->scratch, &unwinder->steps, rule);
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

/* Follows the code from the start that symbols or the table give, once. */
static void explore(struct walk *walk, struct pc_info *info)
{
	struct frame_state *state = &info->state;
	struct arm_range range = {state->start, state->start, state->end};

	if (info->explored || walk->in->unwinder->steps < walk->isa->flow_steps)
		return;
	info->explored = true;
	if (!state->has_start) {
		if (!info->table.row || !info->table.whole->n_kept ||
		    !find_range(&info->table, &range))
			return;
		state->has_start = info->table.row->kind == ROW_CALL;
		state->start = range.start;
	}
	state->flow = arm_follow_to_pc(walk, &range, &state->rule);
	state->has_flow = true;
}

static void find_info(struct walk *walk)
{
	const struct cursor *at = &walk->at;
	struct pc_info *info =
		pc_info_in_mode(walk->in->unwinder, at->addr, at->kind, arm_mode(walk));

	explore(walk, info);
	walk->state = info->state;
	walk->table = info->table;
	walk->readable = info->readable;
}

/* Was the code followed from a start that is known? */
static bool is_followed(const struct walk *walk)
{
	return walk->state.has_start && walk->state.has_flow && walk->state.flow == FLOW_FOUND;
}

/* Is this the row to go by? Those for exceptions do not say how a function begins and ends. */
static bool has_row(const struct walk *walk)
{
	const struct row *row = walk->table.row;

	return row &&
	       (row->kind == ROW_CALL || (row->kind == ROW_BODY && walk->at.kind == FRAME_RETURN));
}

/* Linkers say of all code that has no tables that it is outermost: it must have called something. */
static bool may_end(const struct walk *walk)
{
	const struct row *row = walk->table.row;

	return row && row->kind == ROW_END && walk->at.kind == FRAME_RETURN;
}

/*
 * The walk may begin at a function's first or last instructions, of which
 * tables say nothing, or something wrong: the code is asked first there, and
 * the tables behind calls.
 */
static enum found rule_tables(struct walk *walk, uint8_t *trust)
{
	const bool begins = walk->at.kind == FRAME_PC;
	enum found found = FOUND_NONE;

	if (begins && walk->table.row && !is_followed(walk))
		found = arm_rule_target(walk, trust);
	if (found == FOUND_NONE && begins && walk->table.row && !walk->beyond)
		found = arm_rule_code(walk, trust);
	if (found != FOUND_NONE || walk->beyond || !has_row(walk))
		return found;
	found = arm_rule_table(walk, trust);
	if (begins)
		*trust = TRUST_GUESS;
	return found;
}

/* Code that was followed from a known start comes first, then the tables. */
static enum found rule_code_and_tables(struct walk *walk, uint8_t *trust)
{
	const bool followed = is_followed(walk);
	enum found found = FOUND_NONE;

	if (followed)
		found = arm_rule_code(walk, trust);
	if (found == FOUND_NONE && !walk->beyond)
		found = rule_tables(walk, trust);
	if (found == FOUND_NONE && !walk->beyond && !walk->state.has_start)
		found = arm_rule_target(walk, trust);
	if (found == FOUND_NONE && !walk->beyond && !followed)
		found = arm_rule_code(walk, trust);
	return found;
}

static enum found find_caller(struct walk *walk, uint8_t *trust)
{
	const enum unwind_method method = walk->in->method;
	const struct row *row;
	enum found found;

	*trust = TRUST_GUESS;
	walk->beyond = false;
	if (!walk->in->unwinder)
		return arm_rule_record(walk);
	if (method == UNWIND_SCAN)
		return FOUND_NONE;
	find_info(walk);
	row = walk->table.row;
	found = method == UNWIND_CFI ? rule_tables(walk, trust) : rule_code_and_tables(walk, trust);
	if (found == FOUND_NONE && !walk->beyond && may_end(walk))
		found = arm_rule_table(walk, trust);
	/* Code that a table knows has no frame record that the table does not know. */
	if (found != FOUND_NONE || walk->beyond || (row && row->kind != ROW_END))
		return found;
	*trust = TRUST_GUESS;
	return arm_rule_record(walk);
}

static void begin(struct walk *walk)
{
	const struct regs *regs = walk->in->regs;

	/* No register is the frame pointer of all code. */
	walk->at.fp_known = false;
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
	.call_max = 4,
	.flow_steps = PATHS_SIZE_MAX,
	.scratch_new = paths_scratch_new,
	.call_before = arm_call_before,
	.follow = arm_follow,
	.begin = begin,
	.find_caller = find_caller,
	.try_return = arm_try_return,
};
