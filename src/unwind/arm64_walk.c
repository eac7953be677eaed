/* SPDX-License-Identifier: BSD-3-Clause */
#include "unwind/arm64_walk.h"

#include <stdlib.h>

#include "arch/arm64_mmu.h"

enum { LR = 30 };

struct arm64_unwinder *arm64_unwinder_new(void)
{
	struct arm64_unwinder *unwinder = calloc(1, sizeof(*unwinder));

	if (unwinder)
		unwinder->scratch = arm64_scratch_new();
	if (unwinder && !unwinder->scratch) {
		free(unwinder);
		unwinder = NULL;
	}
	return unwinder;
}

void arm64_unwinder_free(struct arm64_unwinder *unwinder)
{
	if (unwinder)
		arm64_scratch_free(unwinder->scratch);
	free(unwinder);
}

static bool function_of(const struct code *code, uint64_t addr, uint64_t *start, uint64_t *end)
{
	return code->function && code->function(code->ctx, addr, start, end);
}

/* A call does not change the state, so that of a return address is its call's. */
static uint64_t site_address(const struct place *at)
{
	return at->kind == FRAME_RETURN ? at->addr - 4 : at->addr;
}

static void fill(struct unwinder *unwinder, const struct code *code, const struct place *at,
		 struct arm64_site *site)
{
	const uint64_t pc = site_address(at);
	uint64_t end;

	*site = (struct arm64_site){.addr = at->addr,
				    .root = unwinder->root,
				    .age = unwinder->age,
				    .kind = at->kind,
				    .filled = true};
	site->has_start = function_of(code, pc, &site->start, &end);
	if (!site->has_start || !code->read || unwinder->steps < ARM64_FUNCTION_MAX / 4)
		return;
	unwinder->steps -=
		(unsigned)(end - site->start < 4 * ARM64_FUNCTION_MAX ? (end - site->start) / 16
								      : 1);
	site->followed = arm64_follow(unwinder->arm64->scratch, code, site->start, end, pc,
				      &site->state) == ARM64_FOLLOWED;
}

static const struct arm64_site *site_of(struct walk *walk)
{
	struct unwinder *unwinder = walk->in->unwinder;
	const struct place *at = &walk->at;
	const uint64_t hash = ((at->addr ^ unwinder->root) + at->kind) * 0x9e3779b97f4a7c15ull;
	struct arm64_site *site = &unwinder->arm64->site[hash >> (64 - ARM64_SITE_BITS)];

	if (!site->filled || site->addr != at->addr || site->root != unwinder->root ||
	    site->kind != at->kind || site->age != unwinder->age)
		fill(unwinder, walk->in->code, at, site);
	return site;
}

/* Does a call stand before this return address? Unreadable code is believed, as a guess. */
static bool follows_call(struct walk *walk, uint64_t ret, uint64_t *target, bool *readable)
{
	const struct code *code = walk->in->code;
	uint32_t insn;

	*target = 0;
	*readable = code->read && code->read(code->ctx, ret - 4, &insn, 4) == 4;
	return !*readable || arm64_is_call(insn, ret - 4, target);
}

/* Takes `ret` for the return address; false: it is none. */
static bool believe(struct walk *walk, const struct arm64_site *site, uint64_t ret, uint8_t *trust)
{
	uint64_t target;
	bool readable;

	if (ret & 3 || !follows_call(walk, ret, &target, &readable))
		return false;
	*trust = readable && site && site->followed && (!target || target == site->start)
			 ? TRUST_SURE
			 : TRUST_GUESS;
	return true;
}

static enum found end(struct walk *walk, enum unwind_end why)
{
	walk->out->end = why;
	return FOUND_END;
}

/* The CFA of a frame whose code was followed; false: nothing says where it is. */
static bool cfa_of(const struct walk *walk, const struct arm64_state *state, uint64_t *cfa)
{
	if (!state->sp_lost)
		*cfa = walk->at.sp + (uint64_t)(int64_t)state->depth;
	else if (state->fp_set && walk->at.fp_known)
		*cfa = walk->at.fp + (uint64_t)(int64_t)state->fp_depth;
	else
		return false;
	return *cfa >= walk->at.sp && *cfa - walk->at.sp <= REACH;
}

static bool return_address(struct walk *walk, const struct arm64_state *state, uint64_t cfa,
			   uint64_t *ret)
{
	if (!state->lr_saved) {
		*ret = walk->in->regs->gp[LR];
		return walk->at.first && walk->in->regs->gp_valid >> LR & 1;
	}
	return walk_load(walk, cfa - (uint64_t)(int64_t)state->lr_at, ret);
}

static void go(struct walk *walk, const struct arm64_state *state, uint64_t cfa, uint64_t ret)
{
	struct place *at = &walk->at;
	uint64_t fp;

	if (state->fp_saved) {
		at->fp_known = walk_load(walk, cfa - (uint64_t)(int64_t)state->fp_at, &fp);
		at->fp = fp;
	} else if (state->fp_lost || state->fp_set) {
		at->fp_known = false;
	}
	at->addr = ret;
	at->kind = FRAME_RETURN;
	at->first = false;
	at->sp = cfa;
}

static enum found by_code(struct walk *walk, uint8_t *trust)
{
	const struct arm64_site *site = site_of(walk);
	const struct arm64_state *state = &site->state;
	uint64_t cfa, ret;

	if (!site->followed || !cfa_of(walk, state, &cfa))
		return FOUND_NONE;
	/* It has called something and has kept no way back: it never returns. */
	if (!state->lr_saved && !walk->at.first)
		return end(walk, UNWIND_OUTERMOST);
	if (!return_address(walk, state, cfa, &ret))
		return FOUND_NONE;
	if (!ret)
		return end(walk, UNWIND_OUTERMOST);
	ret = arm64_strip(&walk->in->regs->mmu, ret);
	if (!believe(walk, site, ret, trust))
		return FOUND_NONE;
	go(walk, state, cfa, ret);
	return FOUND_CALLER;
}

/*
 * A leaf has no record of its own: then the caller is still in the link
 * register, and the record is the caller's. In code that cannot be followed
 * that shows where it leads.
 */
static enum found by_link(struct walk *walk, uint64_t recorded, uint8_t *trust)
{
	const struct regs *regs = walk->in->regs;
	const struct code *code = walk->in->code;
	const uint64_t lr = arm64_strip(&regs->mmu, regs->gp[LR]);
	uint64_t start, other, end_of;

	if (!walk->at.first || !(regs->gp_valid >> LR & 1) || !lr || lr == recorded)
		return FOUND_NONE;
	if (!function_of(code, walk->at.addr, &start, &end_of) ||
	    !function_of(code, lr - 4, &other, &end_of) || start == other ||
	    !believe(walk, NULL, lr, trust))
		return FOUND_NONE;
	walk->at = (struct place){.addr = lr,
				  .kind = FRAME_RETURN,
				  .sp = walk->at.sp,
				  .fp = walk->at.fp,
				  .fp_known = walk->at.fp_known};
	return FOUND_CALLER;
}

static enum found by_frame_record(struct walk *walk, uint8_t *trust)
{
	const uint64_t fp = walk->at.fp;
	uint64_t next, ret;
	enum found found;

	if (!walk->at.fp_known)
		return FOUND_NONE;
	if (!fp)
		return end(walk, UNWIND_OUTERMOST);
	if (!walk_load(walk, fp, &next) || !walk_load(walk, fp + 8, &ret))
		return FOUND_NONE;
	ret = arm64_strip(&walk->in->regs->mmu, ret);
	found = by_link(walk, ret, trust);
	if (found != FOUND_NONE)
		return found;
	if (!ret)
		return end(walk, UNWIND_OUTERMOST);
	if (next && next <= fp)
		return end(walk, next == fp ? UNWIND_LOOP : UNWIND_BROKEN);
	if (!believe(walk, NULL, ret, trust))
		return FOUND_NONE;
	walk->at = (struct place){.addr = ret,
				  .kind = FRAME_RETURN,
				  .sp = fp + 16,
				  .fp = next,
				  .fp_known = true,
				  .chained = true};
	return FOUND_CALLER;
}

static bool climb(struct walk *walk, struct frame *frames)
{
	struct unwind_result *out = walk->out;
	uint8_t trust = TRUST_GUESS;
	enum found found;

	walk->beyond = false;
	found = walk->in->unwinder ? by_code(walk, &trust) : FOUND_NONE;
	if (found == FOUND_NONE && !walk->beyond)
		found = by_frame_record(walk, &trust);
	if (found == FOUND_NONE)
		out->end = walk->beyond ? UNWIND_BYTES : UNWIND_BROKEN;
	if (found != FOUND_CALLER)
		return false;
	if (out->n == walk->in->max_frames) {
		out->end = UNWIND_FRAMES;
		return false;
	}
	out->used = walk->at.sp - walk->stack->va;
	if (out->used > walk->stack->len)
		out->used = walk->stack->len;
	frames[out->n++] =
		(struct frame){.addr = walk->at.addr, .kind = walk->at.kind, .trust = trust};
	return true;
}

void arm64_unwind(const struct unwind_input *in, struct frame *frames, struct unwind_result *out)
{
	const struct regs *regs = in->regs;
	struct walk walk = {.in = in, .out = out, .stack = in->stack, .word = 8};

	if (in->unwinder)
		site_begin(in->unwinder, in);
	walk.at = (struct place){.addr = regs->pc,
				 .sp = in->stack->va,
				 .fp = regs->fp,
				 .kind = FRAME_PC,
				 .first = true,
				 .exact = true,
				 .fp_known = true};
	while (climb(&walk, frames))
		;
	if (out->end != UNWIND_BYTES)
		out->want = 0;
}
