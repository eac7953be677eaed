/* SPDX-License-Identifier: BSD-3-Clause */
#include "unwind/arm_walk.h"

#include <stdlib.h>

#include "arch/arm_regs.h"
#include "unwind/arm_code.h"

struct arm_unwinder *arm_unwinder_new(void)
{
	struct arm_unwinder *unwinder = calloc(1, sizeof(*unwinder));

	if (unwinder)
		unwinder->scratch = arm_scratch_new();
	if (unwinder && !unwinder->scratch) {
		free(unwinder);
		unwinder = NULL;
	}
	return unwinder;
}

void arm_unwinder_free(struct arm_unwinder *unwinder)
{
	if (unwinder)
		arm_scratch_free(unwinder->scratch);
	free(unwinder);
}

/* Is this the row to go by? Those for exceptions do not say how a function begins and ends. */
static bool has_row(const struct arm_walk *walk, const struct arm_site *site)
{
	const struct row *row = site->table.row;

	return row && (row->kind == ROW_CALL ||
		       (row->kind == ROW_BODY && walk->walk.at.kind == FRAME_RETURN));
}

/* Linkers say of all code that has no tables that it is outermost: it must have called something. */
static bool may_end(const struct arm_walk *walk, const struct arm_site *site)
{
	const struct row *row = site->table.row;

	return row && row->kind == ROW_END && walk->walk.at.kind == FRAME_RETURN;
}

/*
 * Where the walk begins, that may be a function's first or last instructions:
 * tables say nothing of these, or not the truth. There the code says it best,
 * and behind calls the tables do.
 */
static enum found by_tables(struct arm_walk *walk, const struct arm_site *site, uint8_t *trust)
{
	const bool begins = walk->walk.at.kind == FRAME_PC;
	enum found found = FOUND_NONE;

	if (begins && site->table.row && (!site->has_start || site->known != ARM_FOLLOWED))
		found = arm_by_target(walk, site, trust);
	if (found == FOUND_NONE && begins && site->table.row && !walk->walk.beyond)
		found = arm_by_code(walk, site, trust);
	if (found != FOUND_NONE || walk->walk.beyond || !has_row(walk, site))
		return found;
	found = arm_by_row(walk, site, trust);
	if (begins)
		*trust = TRUST_GUESS;
	return found;
}

/* Code that was followed from a start that is known says it best, then the tables. */
static enum found by_code_and_tables(struct arm_walk *walk, const struct arm_site *site,
				     uint8_t *trust)
{
	const bool known = site->has_start && site->known == ARM_FOLLOWED;
	enum found found = FOUND_NONE;

	if (known)
		found = arm_by_code(walk, site, trust);
	if (found == FOUND_NONE && !walk->walk.beyond)
		found = by_tables(walk, site, trust);
	if (found == FOUND_NONE && !walk->walk.beyond && !site->has_start)
		found = arm_by_target(walk, site, trust);
	if (found == FOUND_NONE && !walk->walk.beyond && !known)
		found = arm_by_code(walk, site, trust);
	return found;
}

enum found arm_find_caller(struct arm_walk *walk, uint8_t *trust)
{
	const enum unwind_method method = walk->walk.in->method;
	enum found found = FOUND_NONE;
	struct arm_site site;

	walk->walk.beyond = false;
	if (!walk->walk.in->unwinder)
		return arm_by_record(walk);
	if (method == UNWIND_SCAN)
		return FOUND_NONE;
	/* A copy: looking up others may displace it. */
	site = *arm_site(walk);
	found = method == UNWIND_CFI ? by_tables(walk, &site, trust)
				     : by_code_and_tables(walk, &site, trust);
	if (found == FOUND_NONE && !walk->walk.beyond && may_end(walk, &site))
		found = arm_by_row(walk, &site, trust);
	/* What tables know of has no frame record that they do not know. */
	if (found != FOUND_NONE || walk->walk.beyond ||
	    (site.table.row && site.table.row->kind != ROW_END))
		return found;
	*trust = TRUST_GUESS;
	return arm_by_record(walk);
}

/* The search is for who asked for it, and not for code whose tables are known to say otherwise. */
static enum found find_or_search(struct arm_walk *walk, uint8_t *trust)
{
	const enum unwind_method method = walk->walk.in->method;
	enum found found = arm_find_caller(walk, trust);

	if (found != FOUND_NONE || walk->walk.beyond || !walk->walk.in->unwinder ||
	    (method != UNWIND_SCAN && (method != UNWIND_CFI || arm_site(walk)->table.row)))
		return found;
	*trust = TRUST_GUESS;
	return arm_by_scan(walk);
}

static bool climb(struct arm_walk *walk, struct frame *frames)
{
	struct unwind_result *out = walk->walk.out;
	const struct window *stack = walk->walk.stack;
	uint8_t trust = TRUST_GUESS;
	enum found found;

	found = find_or_search(walk, &trust);
	if (found == FOUND_NONE)
		out->end = walk->walk.beyond ? UNWIND_BYTES : UNWIND_BROKEN;
	if (found != FOUND_CALLER)
		return false;
	if (out->n == walk->walk.in->max_frames) {
		out->end = UNWIND_FRAMES;
		return false;
	}
	out->used = walk->walk.at.sp - stack->va;
	if (out->used > stack->len)
		out->used = stack->len;
	frames[out->n++] = (struct frame){walk->walk.at.addr, FRAME_RETURN, trust};
	return true;
}

void arm_unwind(const struct unwind_input *in, struct frame *frames, struct unwind_result *out)
{
	const struct regs *regs = in->regs;
	struct arm_walk walk = {
		.walk = {.in = in, .out = out, .stack = in->stack, .word = 4},
		.known = (uint16_t)regs->gp_valid,
		.thumb = regs->flags & ARM_PSTATE_T,
	};

	if (in->unwinder)
		site_begin(in->unwinder, in);
	walk.walk.at = (struct place){.addr = regs->pc,
				      .sp = in->stack->va,
				      .kind = FRAME_PC,
				      .first = true};
	for (unsigned reg = 0; reg < ARM_REGISTERS; reg++)
		walk.r[reg] = (uint32_t)regs->gp[reg];
	while (climb(&walk, frames))
		;
	if (out->end != UNWIND_BYTES)
		out->want = 0;
}
