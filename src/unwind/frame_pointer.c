/* SPDX-License-Identifier: BSD-3-Clause */
#include "unwind/unwind.h"

#include "unwind/walk.h"

/*
 * For each frame, the first of these rules that finds a caller:
 * - by state: following the function's code to where it stands says where its
 *   return address is, and that is one;
 * - by target: a word on the stack proves that it is (by_target.c);
 * - by record: what the frame pointer points to looks like a frame record.
 */

/* How far a return address is to be believed that was found by state; false: not at all. */
static bool believe(const struct standing *site, const struct x86_call *call, uint8_t *trust)
{
	if (call->direct && call->target == site->start)
		*trust = TRUST_SURE;
	else if (call->indirect)
		*trust = site->flow == FLOW_FOUND && !site->learned ? TRUST_SURE : TRUST_GUESS;
	else if (call->direct && !site->learned)
		*trust = TRUST_GUESS;
	else
		return false;
	return true;
}

static enum found try_slot(struct walk *walk, uint64_t slot, uint8_t *trust)
{
	const struct standing *site = &walk->site;
	struct x86_call call;
	uint64_t ret;

	if (!walk_load(walk, slot, &ret))
		return FOUND_NONE;
	if (!ret && site->flow == FLOW_FOUND) {
		walk->out->end = UNWIND_OUTERMOST;
		return FOUND_END;
	}
	call = site_at(walk->in->unwinder, ret, FRAME_RETURN)->call;
	if (!believe(site, &call, trust))
		return FOUND_NONE;
	if (*trust == TRUST_GUESS && call.direct && walk_was_jumped_to(walk, slot, call.target))
		*trust = TRUST_SURE;
	walk_go_by_state(walk, &site->state, slot, ret);
	return FOUND_CALLER;
}

static enum found by_state(struct walk *walk, uint8_t *trust)
{
	const struct x86_state *state = &walk->site.state;
	enum found found = FOUND_NONE;
	uint64_t by_sp, by_fp;
	bool fp_known;

	if (!state_known(&walk->site))
		return FOUND_NONE;
	/* What was allocated on the stack on some paths only, the frame pointer does not mind. */
	fp_known = walk_slot_by_fp(walk, state, &by_fp);
	if (fp_known)
		found = try_slot(walk, by_fp, trust);
	if (found != FOUND_NONE || walk->beyond || !walk_slot_by_sp(walk, state, &by_sp) ||
	    (fp_known && by_sp == by_fp))
		return found;
	found = try_slot(walk, by_sp, trust);
	/* They disagree: no caller here proves nothing. */
	return found == FOUND_END && fp_known ? FOUND_NONE : found;
}

/* May a record be believed whose return address follows this call? */
static bool record_fits(struct walk *walk, const struct x86_call *call)
{
	const struct standing *site = &walk->site;
	uint64_t target = call->target;
	struct x86_state state;

	if (call->indirect)
		return walk->at.kind == FRAME_RETURN || site->has_start ||
		       site_finds_frame(walk->in->unwinder,
					site_at(walk->in->unwinder, walk->at.addr, walk->at.kind));
	if (!call->direct)
		return false;
	if (site->has_start)
		return target == site->start;
	return walk->at.addr - target < FUNCTION_MAX &&
	       site_try_start(walk->in->unwinder,
			      site_at(walk->in->unwinder, walk->at.addr, walk->at.kind), target,
			      &state) == FLOW_UNKNOWN;
}

/* Only for code that cannot be followed; blind: nor even read. */
static enum found by_record(struct walk *walk, bool blind, uint8_t *trust)
{
	uint64_t fp = walk->at.fp, next, ret;

	if (!walk->at.fp_known || (!blind && state_known(&walk->site)))
		return FOUND_NONE;
	if (!walk_load(walk, fp, &next) || !walk_load(walk, fp + walk->word, &ret))
		return FOUND_NONE;
	if (!ret) {
		walk->out->end = walk->at.chained || blind ? UNWIND_OUTERMOST : UNWIND_BROKEN;
		return FOUND_END;
	}
	if (!blind) {
		struct x86_call call = site_at(walk->in->unwinder, ret, FRAME_RETURN)->call;

		if (!record_fits(walk, &call))
			return FOUND_NONE;
	}
	walk->at = (struct place){.addr = ret,
				  .kind = FRAME_RETURN,
				  .sp = fp + 2 * walk->word,
				  .exact = true,
				  .fp = next,
				  .fp_known = true,
				  .chained = true};
	*trust = TRUST_GUESS;
	return FOUND_CALLER;
}

/*
 * Does the frame pointer lead to another stack? Only if the code is known to
 * have set it up: in other code it can be anything.
 */
static bool leads_elsewhere(const struct walk *walk)
{
	const struct place *at = &walk->at;

	return at->fp_known && at->fp && !(at->fp & (walk->word - 1)) && state_known(&walk->site) &&
	       walk->site.state.fp_at && at->fp - walk->stack->va >= REACH;
}

/* No rule found a caller: why? */
static enum unwind_end reason(const struct walk *walk)
{
	const struct place *at = &walk->at;

	if (walk->beyond)
		return UNWIND_BYTES;
	if (leads_elsewhere(walk)) {
		walk->out->elsewhere = at->fp;
		return UNWIND_BYTES;
	}
	if (at->kind == FRAME_RETURN && walk->site.flow == FLOW_FOUND && state_known(&walk->site) &&
	    walk->site.state.entry)
		return UNWIND_OUTERMOST;
	if (at->chained && at->fp_known && !at->fp)
		return UNWIND_OUTERMOST;
	if (at->chained && at->fp_known && at->fp < at->sp && at->fp >= walk->stack->va)
		return UNWIND_LOOP;
	return UNWIND_BROKEN;
}

static enum found find_caller(struct walk *walk, uint8_t *trust)
{
	struct unwinder *unwinder = walk->in->unwinder;
	enum found found;
	bool blind = true;

	walk->beyond = false;
	if (unwinder) {
		struct site *site = site_at(unwinder, walk->at.addr, walk->at.kind);

		if (site->standing.has_start && !site->standing.has_flow)
			site_follow(unwinder, site);
		walk->site = site->standing;
		blind = !site->readable;
	}
	if (blind)
		return by_record(walk, true, trust);
	found = by_state(walk, trust);
	if (found != FOUND_NONE || walk->beyond)
		return found;
	found = walk_by_target(walk, trust);
	return found == FOUND_NONE ? by_record(walk, false, trust) : found;
}

void unwind_frame_pointer(const struct unwind_input *in, struct frame *frames,
			  struct unwind_result *out)
{
	const struct regs *regs = in->regs;
	struct walk walk = {.in = in, .out = out, .stack = in->stack, .word = regs->word};
	enum found found;
	uint8_t trust;

	frames[0] = (struct frame){.addr = regs->pc, .kind = FRAME_PC, .trust = TRUST_SURE};
	*out = (struct unwind_result){.n = 1, .end = UNWIND_NO_STACK};
	if (!in->stack->len || !regs->sp)
		return;
	if (in->unwinder)
		site_begin(in->unwinder, in);
	walk.at = (struct place){.addr = regs->pc,
				 .sp = in->stack->va,
				 .fp = regs->fp,
				 .kind = FRAME_PC,
				 .exact = regs->sp % walk.word == 0,
				 .fp_known = true};
	while ((found = find_caller(&walk, &trust)) == FOUND_CALLER) {
		if (out->n == in->max_frames) {
			out->end = UNWIND_FRAMES;
			return;
		}
		frames[out->n++] =
			(struct frame){.addr = walk.at.addr, .kind = FRAME_RETURN, .trust = trust};
		if (in->other && !in_window(walk.stack, walk.at.sp - walk.word, walk.word))
			walk.stack = in->other;
		if (walk.stack == in->stack)
			out->used = walk.at.sp - in->stack->va;
	}
	if (found == FOUND_NONE)
		out->end = reason(&walk);
	if (out->end != UNWIND_BYTES)
		out->want = 0;
}
