/* SPDX-License-Identifier: BSD-3-Clause */
#include "unwind/arm64_walk.h"

#include <stdlib.h>

#include "arch/arm64_mmu.h"
#include "unwind/arm64_frame.h"

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
	enum arm64_known known;
	uint64_t end = 0;

	*site = (struct arm64_site){.addr = at->addr,
				    .root = unwinder->root,
				    .age = unwinder->age,
				    .kind = at->kind,
				    .filled = true};
	if (code->rows && unwinder->method != UNWIND_FP)
		site_find_row(code, at->addr, (enum frame_kind)at->kind, &site->table);
	site->has_start = function_of(code, pc, &site->start, &end);
	if (code->read && unwinder->steps >= ARM64_ERET_STEPS) {
		unwinder->steps -= ARM64_ERET_STEPS;
		site->returns = arm64_leads_to_eret(code, at->addr, site->has_start ? end : 0);
	}
	if (!site->has_start || !code->read || unwinder->steps < ARM64_FUNCTION_MAX / 4)
		return;
	unwinder->steps -=
		(unsigned)(end - site->start < 4 * ARM64_FUNCTION_MAX ? (end - site->start) / 16
								      : 1);
	known = arm64_follow(unwinder->arm64->scratch, code, site->start, end, pc, &site->state);
	site->followed = known != ARM64_UNKNOWN;
	site->guessed = known == ARM64_GUESSED;
}

const struct arm64_site *arm64_site(struct arm64_walk *arm64)
{
	struct walk *walk = &arm64->walk;
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
bool arm64_is_return(const struct arm64_walk *walk, uint64_t ret, uint64_t *target, bool *readable)
{
	const struct code *code = walk->walk.in->code;
	uint32_t insn;

	*target = 0;
	*readable = code->read && code->read(code->ctx, ret - 4, &insn, 4) == 4;
	return !(ret & 3) && (!*readable || arm64_is_call(insn, ret - 4, target));
}

/* Takes `ret` for the return address; false: it is none. */
static bool believe(struct arm64_walk *walk, const struct arm64_site *site, uint64_t ret,
		    uint8_t *trust)
{
	uint64_t target;
	bool readable;

	if (!arm64_is_return(walk, ret, &target, &readable))
		return false;
	*trust = readable && site && site->followed &&
				 (target ? target == site->start : !site->guessed)
			 ? TRUST_SURE
			 : TRUST_GUESS;
	return true;
}

static enum found end(struct walk *walk, enum unwind_end why)
{
	walk->out->end = why;
	return FOUND_END;
}

/*
 * The CFA of a frame whose code was followed; false: nothing says where it is.
 * A frame pointer that the code has set up may lead to another stack.
 */
static bool cfa_of(const struct walk *walk, const struct arm64_state *state, uint64_t *cfa)
{
	if (!state->sp_lost)
		*cfa = walk->at.sp + (uint64_t)(int64_t)state->depth;
	else if (state->fp_set && walk->at.fp_known)
		*cfa = walk->at.fp + (uint64_t)(int64_t)state->fp_depth;
	else
		return false;
	return (*cfa >= walk->at.sp && *cfa - walk->at.sp <= REACH) ||
	       (state->sp_lost && walk_is_elsewhere(walk->stack, *cfa));
}

static bool return_address(struct arm64_walk *arm64, const struct arm64_state *state, uint64_t cfa,
			   uint64_t *ret)
{
	const uint64_t slot = cfa - (uint64_t)(int64_t)state->lr_at;

	*ret = arm64->lr;
	if (!state->lr_saved)
		return arm64->lr_known;
	if (walk_load(&arm64->walk, slot, ret))
		return true;
	if (!(slot & 7))
		arm64_note_elsewhere(&arm64->walk, slot);
	return false;
}

static void go(struct arm64_walk *arm64, const struct arm64_state *state, uint64_t cfa,
	       uint64_t ret)
{
	struct place *at = &arm64->walk.at;
	uint64_t fp;

	if (state->fp_saved) {
		at->fp_known = walk_load(&arm64->walk, cfa - (uint64_t)(int64_t)state->fp_at, &fp);
		at->fp = fp;
	} else if (state->fp_lost || state->fp_set) {
		at->fp_known = false;
	}
	at->addr = ret;
	at->kind = FRAME_RETURN;
	at->first = false;
	at->exact = true;
	at->sp = cfa;
	arm64->lr_known = false;
}

static enum found by_code(struct arm64_walk *arm64, const struct arm64_site *site, uint8_t *trust)
{
	struct walk *walk = &arm64->walk;
	const struct arm64_state *state = &site->state;
	uint64_t cfa, ret;

	if (!site->followed || !cfa_of(walk, state, &cfa))
		return FOUND_NONE;
	/* It has called something and has kept no way back: it never returns. */
	if (!state->lr_saved && walk->at.kind == FRAME_RETURN)
		return site->guessed ? FOUND_NONE : end(walk, UNWIND_OUTERMOST);
	if (!return_address(arm64, state, cfa, &ret))
		return FOUND_NONE;
	if (!ret)
		return site->guessed ? FOUND_NONE : end(walk, UNWIND_OUTERMOST);
	ret = arm64_strip(&walk->in->regs->mmu, ret);
	if (!believe(arm64, site, ret, trust))
		return FOUND_NONE;
	go(arm64, state, cfa, ret);
	return FOUND_CALLER;
}

/*
 * A leaf has no record of its own: then the caller is still in the link
 * register, and the record is the caller's. In code that cannot be followed
 * that shows where it leads.
 */
static enum found by_link(struct arm64_walk *arm64, uint64_t recorded, uint8_t *trust)
{
	struct walk *walk = &arm64->walk;
	const struct code *code = walk->in->code;
	const uint64_t lr = arm64_strip(&walk->in->regs->mmu, arm64->lr);
	uint64_t start, other, end_of;

	if (!arm64->lr_known || !lr || lr == recorded)
		return FOUND_NONE;
	if (!function_of(code, walk->at.addr, &start, &end_of) ||
	    !function_of(code, lr - 4, &other, &end_of) || start == other ||
	    !believe(arm64, NULL, lr, trust))
		return FOUND_NONE;
	walk->at = (struct place){.addr = lr,
				  .kind = FRAME_RETURN,
				  .sp = walk->at.sp,
				  .fp = walk->at.fp,
				  .exact = walk->at.exact,
				  .fp_known = walk->at.fp_known};
	arm64->lr_known = false;
	return FOUND_CALLER;
}

static enum found by_frame_record(struct arm64_walk *arm64, uint8_t *trust)
{
	struct walk *walk = &arm64->walk;
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
	found = by_link(arm64, ret, trust);
	if (found != FOUND_NONE)
		return found;
	if (!ret)
		return end(walk, UNWIND_OUTERMOST);
	if (next && next <= fp)
		return end(walk, next == fp ? UNWIND_LOOP : UNWIND_BROKEN);
	if (!believe(arm64, NULL, ret, trust))
		return FOUND_NONE;
	walk->at = (struct place){.addr = ret,
				  .kind = FRAME_RETURN,
				  .sp = fp + 16,
				  .fp = next,
				  .fp_known = true,
				  .chained = true};
	arm64->lr_known = false;
	return FOUND_CALLER;
}

/*
 * What code says that was followed from its start comes first, then the tables,
 * then what the cases of a jump by table would have.
 */
static enum found by_code_and_tables(struct arm64_walk *arm64, const struct arm64_site *site,
				     uint8_t *trust)
{
	struct walk *walk = &arm64->walk;
	enum found found = FOUND_NONE;

	if (site->returns)
		return arm64_by_eret(arm64, trust);
	if (walk->in->method != UNWIND_CFI && !site->guessed)
		found = by_code(arm64, site, trust);
	if (found == FOUND_NONE && !walk->beyond && !walk->elsewhere)
		found = arm64_by_row(arm64, site, trust);
	if (found == FOUND_NONE && !walk->beyond && !walk->elsewhere && site->guessed &&
	    walk->in->method != UNWIND_CFI)
		found = by_code(arm64, site, trust);
	return found;
}

static enum found find_caller(struct arm64_walk *arm64, uint8_t *trust)
{
	struct walk *walk = &arm64->walk;
	const enum unwind_method method = walk->in->method;
	enum found found = FOUND_NONE;
	struct arm64_site site;

	walk->beyond = false;
	walk->elsewhere = 0;
	*trust = TRUST_GUESS;
	if (!walk->in->unwinder)
		return by_frame_record(arm64, trust);
	if (method == UNWIND_SCAN)
		return arm64_by_scan(arm64);
	/* A copy: looking up others may displace it. */
	site = *arm64_site(arm64);
	found = by_code_and_tables(arm64, &site, trust);
	if (found != FOUND_NONE || walk->beyond || walk->elsewhere)
		return found;
	*trust = TRUST_GUESS;
	found = by_frame_record(arm64, trust);
	if (found != FOUND_NONE || walk->beyond || method != UNWIND_CFI || site.table.row)
		return found;
	*trust = TRUST_GUESS;
	return arm64_by_scan(arm64);
}

/* No rule found a caller: why? */
static enum unwind_end reason(const struct walk *walk)
{
	if (!walk->beyond && walk->elsewhere)
		walk->out->elsewhere = walk->elsewhere;
	return walk->beyond || walk->elsewhere ? UNWIND_BYTES : UNWIND_BROKEN;
}

/* How much of the first stack was needed. */
static void note_used(struct walk *walk)
{
	const struct window *stack = walk->in->stack;
	const uint64_t used = walk->at.sp - stack->va;

	if (walk->stack == stack)
		walk->out->used = used < stack->len ? used : stack->len;
}

static bool climb(struct arm64_walk *arm64, struct frame *frames)
{
	struct walk *walk = &arm64->walk;
	struct unwind_result *out = walk->out;
	uint8_t trust;
	const enum found found = find_caller(arm64, &trust);

	if (found == FOUND_NONE)
		out->end = reason(walk);
	if (found != FOUND_CALLER)
		return false;
	if (out->n == walk->in->max_frames) {
		out->end = UNWIND_FRAMES;
		return false;
	}
	frames[out->n++] =
		(struct frame){.addr = walk->at.addr, .kind = walk->at.kind, .trust = trust};
	if (walk_settle(walk)) {
		note_used(walk);
		return true;
	}
	out->end = UNWIND_BYTES;
	out->elsewhere = walk->elsewhere;
	return false;
}

void arm64_unwind(const struct unwind_input *in, struct frame *frames, struct unwind_result *out)
{
	const struct regs *regs = in->regs;
	struct arm64_walk arm64 = {
		.walk = {.in = in, .out = out, .stack = in->stack, .word = 8},
		.lr = regs->gp[ARM64_LR],
		.lr_known = regs->gp_valid >> ARM64_LR & 1,
	};

	if (in->unwinder)
		site_begin(in->unwinder, in);
	arm64.walk.at = (struct place){.addr = regs->pc,
				       .sp = in->stack->va,
				       .fp = regs->fp,
				       .kind = FRAME_PC,
				       .first = true,
				       .exact = true,
				       .fp_known = true};
	while (climb(&arm64, frames))
		;
	if (out->end != UNWIND_BYTES)
		out->want = 0;
}
