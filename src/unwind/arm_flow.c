/* SPDX-License-Identifier: BSD-3-Clause */
#include "unwind/arm_flow.h"

#include <stdlib.h>
#include <string.h>

/* Places that are still to be followed; of a function with more branches open some are not. */
#define OPEN_MAX 128

/* Places are counted in halfwords from the function's start. */
#define HALVES (ARM_FUNCTION_MAX / 2)

struct open {
	uint32_t at;
	struct arm_state state;
};

struct arm_scratch {
	uint16_t code[HALVES];
	uint8_t seen[HALVES / 8];
	struct open open[OPEN_MAX];
	unsigned n;
	bool thumb;
	uint64_t start;
	uint32_t size, goal;
	const struct arm_query *query;
	bool scattered; /* a jump to unknown places was seen, in this state: */
	struct arm_state at_jump;
};

struct arm_scratch *arm_scratch_new(void)
{
	return malloc(sizeof(struct arm_scratch));
}

void arm_scratch_free(struct arm_scratch *scratch)
{
	free(scratch);
}

static bool is_seen(const struct arm_scratch *scratch, uint32_t at)
{
	return scratch->seen[at / 8] >> at % 8 & 1;
}

static void see(struct arm_scratch *scratch, uint32_t at, unsigned len)
{
	for (uint32_t half = at; half < at + len / 2; half++)
		scratch->seen[half / 8] |= (uint8_t)(1u << half % 8);
}

/* False: the code ends here. */
static bool decode(const struct arm_scratch *scratch, uint32_t at, struct arm_insn *insn)
{
	const uint16_t *code = scratch->code;
	const bool wide = !scratch->thumb || (at < scratch->size && thumb_is_wide(code[at]));

	if (at + (wide ? 2u : 1u) > scratch->size)
		return false;
	insn->pc = scratch->start + at * 2ull;
	insn->len = wide ? 4 : 2;
	if (!wide)
		insn->code = code[at];
	else if (scratch->thumb)
		insn->code = (uint32_t)code[at] << 16 | code[at + 1];
	else
		insn->code = (uint32_t)code[at + 1] << 16 | code[at];
	insn->condition = scratch->thumb ? ARM_ALWAYS : (uint8_t)(insn->code >> 28);
	return true;
}

static void push(struct arm_scratch *scratch, uint64_t target, const struct arm_state *state)
{
	const uint64_t at = (target - scratch->start) / 2;

	/* Jumps out of the function are tail calls. */
	if (target < scratch->start || at >= scratch->size || scratch->n == OPEN_MAX)
		return;
	scratch->open[scratch->n++] = (struct open){.at = (uint32_t)at, .state = *state};
}

static void note(struct arm_scratch *scratch, const struct arm_next *next,
		 const struct arm_state *state)
{
	if (next->flow == ARM_BRANCH || next->flow == ARM_JUMP)
		push(scratch, next->target, state);
	if (next->anywhere && !scratch->scattered) {
		scratch->scattered = true;
		scratch->at_jump = *state;
	}
}

/* DDI 0406C, A8.3. */
static bool holds(unsigned condition, uint32_t flags)
{
	const bool n = flags >> 31, z = flags >> 30 & 1, c = flags >> 29 & 1, v = flags >> 28 & 1;
	const bool base[] = {z, c, n, v, c && !z, n == v, n == v && !z, true};

	return base[condition >> 1 & 7] != (condition & 1);
}

/* As T32 code has it from IT; *it becomes what the next instruction has. */
static void take_condition(struct arm_insn *insn, uint8_t *it)
{
	if (!(*it & 15))
		return;
	insn->condition = *it >> 4;
	*it = *it & 7 ? (uint8_t)((*it & 0xe0) | (*it << 1 & 0x1f)) : 0;
}

/*
 * Where instructions stand in a row that depend on the same condition there
 * are two states. Such a row ends a function early, if it changes the stack
 * at all: what comes after it is in the state without them.
 */
struct row_state {
	uint8_t condition; /* ARM_ALWAYS: there is no such row */
	struct arm_state executed;
};

static void apply(struct arm_scratch *scratch, const struct arm_insn *insn, struct row_state *row,
		  struct arm_state *state, struct arm_next *next)
{
	struct arm_state *applied = state;

	if (insn->condition >= ARM_ALWAYS) {
		row->condition = ARM_ALWAYS;
	} else {
		if (row->condition != insn->condition)
			row->executed = *state;
		row->condition = insn->condition;
		applied = &row->executed;
	}
	(scratch->thumb ? thumb_apply : arm_apply)(insn, applied, next);
	note(scratch, next, applied);
}

static bool is_executed(const struct arm_query *query, const struct row_state *row)
{
	return row->condition < ARM_ALWAYS &&
	       (!query->by_flags || holds(row->condition, query->flags));
}

/* From a place on, until the path ends, is known, or stands at the goal. */
static bool run(struct arm_scratch *scratch, uint32_t at, struct arm_state *state)
{
	struct row_state row = {.condition = ARM_ALWAYS};
	struct arm_insn insn;
	struct arm_next next;
	uint8_t it = 0;

	for (;; at += insn.len / 2) {
		if (at == scratch->goal) {
			if (is_executed(scratch->query, &row))
				*state = row.executed;
			return true;
		}
		if (!decode(scratch, at, &insn) || is_seen(scratch, at))
			return false;
		see(scratch, at, insn.len);
		take_condition(&insn, &it);
		apply(scratch, &insn, &row, state, &next);
		if (next.flow == ARM_JUMP || next.flow == ARM_END)
			return false;
		if (next.it)
			it = next.it;
	}
}

static bool run_open(struct arm_scratch *scratch, struct arm_state *state)
{
	while (scratch->n) {
		const struct open *from = &scratch->open[--scratch->n];

		*state = from->state;
		if (run(scratch, from->at, state))
			return true;
	}
	return false;
}

/*
 * What no branch leads to is reached by a jump by table: from the first such
 * place before the goal on, all of it has the state of that jump.
 */
static bool run_scattered(struct arm_scratch *scratch, struct arm_state *state)
{
	const uint32_t unit = scratch->thumb ? 1 : 2;
	uint32_t at = scratch->goal;

	if (!scratch->scattered)
		return false;
	while (at >= unit && !is_seen(scratch, at - unit))
		at -= unit;
	for (; at <= scratch->goal; at += unit) {
		if (at < scratch->goal && is_seen(scratch, at))
			continue;
		*state = scratch->at_jump;
		if (run(scratch, at, state) || run_open(scratch, state))
			return true;
	}
	return false;
}

enum arm_known arm_follow(struct arm_scratch *scratch, const struct code *code,
			  const struct arm_query *query, struct arm_state *state)
{
	const uint64_t size = query->end - query->start, align = query->thumb ? 1 : 3;
	size_t got;

	if ((query->start | query->pc | query->entry) & align || query->pc < query->start ||
	    query->pc >= query->end || query->entry < query->start || query->entry >= query->end ||
	    size > ARM_FUNCTION_MAX)
		return ARM_UNKNOWN;
	got = code->read(code->ctx, query->start, scratch->code, size & ~1ull);
	scratch->query = query;
	scratch->thumb = query->thumb;
	scratch->start = query->start;
	scratch->size = (uint32_t)(got / 2);
	scratch->goal = (uint32_t)((query->pc - query->start) / 2);
	if (scratch->goal >= scratch->size)
		return ARM_UNKNOWN;
	scratch->scattered = false;
	memset(scratch->seen, 0, sizeof(scratch->seen));
	scratch->open[0] = (struct open){.at = (uint32_t)((query->entry - query->start) / 2),
					 .state = arm_state_at_entry};
	scratch->n = 1;
	if (run_open(scratch, state))
		return ARM_FOLLOWED;
	return run_scattered(scratch, state) ? ARM_GUESSED : ARM_UNKNOWN;
}
