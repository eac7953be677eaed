/* SPDX-License-Identifier: BSD-3-Clause */

/* From a frame of A64 code to its caller by a row of the image's tables. */

#include "arch/arm64_mmu.h"
#include "unwind/arm64_frame.h"

static bool get_register(void *ctx, unsigned n, uint64_t *value)
{
	const struct arm64_walk *walk = ctx;
	const struct place *at = &walk->walk.at;
	const struct regs *regs = walk->walk.in->regs;

	switch (n) {
	case ARM64_FP:
		*value = at->fp;
		return at->fp_known;
	case ARM64_LR:
		*value = walk->lr;
		return walk->lr_known;
	case ARM64_SP:
		*value = at->sp;
		return at->exact;
	}
	if (!at->first || n > ARM64_SP || !(regs->gp_valid >> n & 1))
		return false;
	*value = regs->gp[n];
	return true;
}

static bool get_word(void *ctx, uint64_t va, uint64_t *value)
{
	struct arm64_walk *walk = ctx;

	return walk_load(&walk->walk, va, value);
}

/* Only what has called nothing yet may have no frame. */
static bool is_frame(const struct walk *walk, const struct row_caller *caller)
{
	return !(caller->sp & 7) &&
	       (caller->sp > walk->at.sp || walk_is_elsewhere(walk->stack, caller->sp) ||
		(caller->sp == walk->at.sp && walk->at.kind == FRAME_PC && !caller->slot));
}

static enum found end(struct walk *walk)
{
	walk->out->end = UNWIND_OUTERMOST;
	return FOUND_END;
}

static enum found go(struct arm64_walk *arm64, const struct arm64_site *site,
		     const struct row_caller *caller, uint8_t *trust)
{
	struct walk *walk = &arm64->walk;
	uint64_t ret = arm64_strip(&walk->in->regs->mmu, caller->pc), target = 0;
	bool readable = true;

	if (!ret)
		return end(walk);
	if (!is_frame(walk, caller) ||
	    (!caller->trap && !arm64_is_return(arm64, ret, &target, &readable)))
		return FOUND_NONE;
	*trust = readable && (!target || !site->has_start || target == site->start) ? TRUST_SURE
										    : TRUST_GUESS;
	walk->at = (struct place){.addr = ret,
				  .sp = caller->sp,
				  .fp = caller->fp,
				  .kind = caller->trap ? FRAME_PC : FRAME_RETURN,
				  .exact = true,
				  .fp_known = caller->fp_known};
	arm64->lr_known = false;
	return FOUND_CALLER;
}

/* It has called something, and has kept no way back: it never returns. */
static bool keeps_no_way_back(const struct walk *walk, const struct row *row)
{
	return row->kind == ROW_CALL && row->ra_at == ROW_SAME && walk->at.kind == FRAME_RETURN;
}

enum found arm64_by_row(struct arm64_walk *walk, const struct arm64_site *site, uint8_t *trust)
{
	const struct row_env env = {.ctx = walk,
				    .reg = get_register,
				    .load = get_word,
				    .word = 8,
				    .fp = ARM64_FP,
				    .sp = ARM64_SP,
				    .ra = ARM64_LR};
	const struct row *row = site->table.row;
	struct row_caller caller;

	if (!row || site->table.rows->n_kept)
		return FOUND_NONE;
	if (row->kind == ROW_END || keeps_no_way_back(&walk->walk, row))
		return end(&walk->walk);
	if (rows_step(site->table.rows, row, &env, &caller))
		return go(walk, site, &caller, trust);
	if (caller.slot && !(caller.slot & 7))
		arm64_note_elsewhere(&walk->walk, caller.slot);
	return FOUND_NONE;
}
