/* SPDX-License-Identifier: BSD-3-Clause */

/* From a frame of A32 or T32 code to its caller by a row of the image's tables. */

#include "unwind/arm_code.h"

static bool get_register(void *ctx, unsigned n, uint64_t *value)
{
	const struct arm_walk *walk = ctx;

	if (n >= ARM_REGISTERS || !(walk->known >> n & 1))
		return false;
	*value = walk->r[n];
	return true;
}

static bool get_word(void *ctx, uint64_t va, uint64_t *value)
{
	struct arm_walk *walk = ctx;

	return walk_load(&walk->walk, va, value);
}

static void restore(struct arm_walk *walk, const struct row_kept *kept, uint64_t cfa)
{
	for (unsigned i = 0; i < ROW_KEPT; i++) {
		const unsigned reg = ROW_KEPT_FIRST + i;
		const int16_t at = kept->at[i];
		uint64_t value;

		if (at == ROW_SAME)
			continue;
		walk->known &= (uint16_t) ~(1u << reg);
		if (at == ROW_LOST ||
		    !walk_load(&walk->walk, (uint32_t)(cfa + (uint64_t)(int64_t)at), &value))
			continue;
		walk->r[reg] = (uint32_t)value;
		walk->known |= (uint16_t)(1u << reg);
	}
}

/* Of a call into the function that stands here, or by its address? */
static bool calls_here(const struct arm_site *site, const struct arm_return *ret)
{
	const struct tabled *table = &site->table;

	if (!ret->target || (site->has_start && ret->target == site->start))
		return true;
	return !site->has_start && ret->target >= table->base + table->row->start;
}

static bool is_frame(const struct arm_walk *walk, const struct row_caller *caller)
{
	const uint64_t size = caller->sp - walk->walk.at.sp;

	/* Only what has called nothing yet may have no frame. */
	return size <= REACH && !(size & 3) && (size || walk->walk.at.kind == FRAME_PC);
}

/* It has called something all the same: it never returns. */
static bool keeps_no_way_back(const struct arm_walk *walk, const struct row *row)
{
	return row->kind == ROW_CALL && row->ra_at == ROW_SAME &&
	       walk->walk.at.kind == FRAME_RETURN;
}

static enum found end(struct arm_walk *walk)
{
	walk->walk.out->end = UNWIND_OUTERMOST;
	return FOUND_END;
}

enum found arm_by_row(struct arm_walk *walk, const struct arm_site *site, uint8_t *trust)
{
	const struct row_env env = {.ctx = walk,
				    .reg = get_register,
				    .load = get_word,
				    .word = 4,
				    .fp = ARM_REGISTERS,
				    .sp = ARM_SP,
				    .ra = ARM_LR};
	const struct tabled *table = &site->table;
	struct row_caller caller;
	struct arm_return ret;

	if (!table->row || !table->rows->n_kept)
		return FOUND_NONE;
	if (table->row->kind == ROW_END || keeps_no_way_back(walk, table->row))
		return end(walk);
	if (!rows_step(table->rows, table->row, &env, &caller) || !is_frame(walk, &caller))
		return FOUND_NONE;
	if (!caller.pc)
		return end(walk);
	if (!arm_believe(walk, caller.pc, &ret))
		return FOUND_NONE;
	*trust = ret.readable && calls_here(site, &ret) ? TRUST_SURE : TRUST_GUESS;
	restore(walk, &table->rows->kept[table->row->kept], caller.sp);
	arm_go(walk, &ret, caller.sp);
	return FOUND_CALLER;
}
