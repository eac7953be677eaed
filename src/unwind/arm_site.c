/* SPDX-License-Identifier: BSD-3-Clause */

/* What is known of a place in A32 or T32 code, found out once and kept. */

#include "unwind/arm_site.h"

/* Rows that are looked at to find where a function starts, and ends. */
#define ROWS_OF_FUNCTION 256

static uint8_t condition_flags(const struct arm_walk *walk)
{
	const uint32_t flags = (uint32_t)walk->walk.in->regs->flags;

	return walk->walk.at.kind == FRAME_PC ? (uint8_t)(flags >> 28) : 0;
}

/* A call is entered in the state of the code before it. */
static uint64_t standing(const struct arm_walk *walk)
{
	const struct place *at = &walk->walk.at;
	struct arm_return call;

	if (at->kind == FRAME_PC || !arm_believe(walk, at->addr | walk->thumb, &call))
		return at->addr;
	return at->addr - call.len;
}

enum arm_known arm_site_follow(const struct arm_walk *walk, const struct arm_range *range,
			       struct arm_state *state)
{
	struct unwinder *unwinder = walk->walk.in->unwinder;
	const struct arm_query query = {.thumb = walk->thumb,
					.start = range->start,
					.end = range->end,
					.entry = range->entry,
					.pc = standing(walk),
					.by_flags = walk->walk.at.kind == FRAME_PC,
					.flags = (uint32_t)walk->walk.in->regs->flags};

	if (!walk->walk.in->code->read || range->end <= range->start ||
	    range->end - range->start > ARM_FUNCTION_MAX || unwinder->steps < ARM_FUNCTION_MAX)
		return ARM_UNKNOWN;
	unwinder->steps -= (unsigned)(range->end - range->start);
	return arm_follow(unwinder->arm->scratch, walk->walk.in->code, &query, state);
}

/* Tables say where functions start, too: the last that does so before the row, and the next. */
static bool find_range(const struct tabled *table, struct arm_range *range)
{
	const struct rows *rows = table->rows;
	const struct row *row = table->row, *last = rows->row + rows->n - 1;
	const struct row *next = row < last ? row + 1 : NULL;

	for (unsigned i = 0; i < ROWS_OF_FUNCTION && !row->begins && row > rows->row; i++)
		row--;
	for (unsigned i = 0;
	     i < ROWS_OF_FUNCTION && next && next->kind != ROW_NONE && !next->begins; i++)
		next = next < last ? next + 1 : NULL;
	if (!row->begins || !next)
		return false;
	*range = (struct arm_range){.entry = table->base + row->start,
				    .start = table->base + row->start,
				    .end = table->base + next->start};
	return true;
}

static void fill(const struct arm_walk *walk, struct arm_site *site)
{
	struct unwinder *unwinder = walk->walk.in->unwinder;
	const struct code *code = walk->walk.in->code;
	const struct place *at = &walk->walk.at;
	struct arm_range range = {0};

	*site = (struct arm_site){.addr = at->addr,
				  .root = unwinder->root,
				  .age = unwinder->age,
				  .kind = at->kind,
				  .flags = condition_flags(walk),
				  .thumb = walk->thumb,
				  .known = ARM_UNKNOWN,
				  .filled = true};
	if (code->rows && walk->walk.in->method != UNWIND_FP)
		site_find_row(code, at->addr, (enum frame_kind)at->kind, &site->table);
	site->has_start = code->function &&
			  code->function(code->ctx, standing(walk), &range.start, &range.end);
	range.entry = range.start;
	if (!site->has_start && site->table.row && site->table.rows->n_kept &&
	    find_range(&site->table, &range))
		site->has_start = site->table.row->kind == ROW_CALL;
	else if (!site->has_start)
		return;
	site->start = range.start;
	site->known = (uint8_t)arm_site_follow(walk, &range, &site->state);
}

const struct arm_site *arm_site(const struct arm_walk *walk)
{
	const struct unwinder *unwinder = walk->walk.in->unwinder;
	const struct place *at = &walk->walk.at;
	const uint8_t flags = condition_flags(walk);
	const uint64_t hash = ((at->addr ^ unwinder->root) + at->kind + ((uint64_t)flags << 32)) *
			      0x9e3779b97f4a7c15ull;
	struct arm_site *site = &unwinder->arm->site[hash >> (64 - ARM_SITE_BITS)];

	if (!site->filled || site->addr != at->addr || site->root != unwinder->root ||
	    site->kind != at->kind || site->flags != flags || site->thumb != walk->thumb ||
	    site->age != unwinder->age)
		fill(walk, site);
	return site;
}
