/* SPDX-License-Identifier: BSD-3-Clause */
#include "unwind/walk.h"

/* How far a return address is to be believed that was found by state; false: not at all. */
static bool believe(const struct standing *site, const struct x86_call *call, uint8_t *trust)
{
	if (call->direct && site->has_start && call->target == site->start)
		*trust = TRUST_SURE;
	else if (call->indirect)
		*trust = site->flow == FLOW_FOUND && !site->learned ? TRUST_SURE : TRUST_GUESS;
	else if (call->direct && !site->learned)
		*trust = TRUST_GUESS;
	else
		return false;
	return true;
}

/* The same step is to be done at once the next time. */
static void learn(struct walk *walk, uint64_t ret, bool by_fp, uint8_t trust)
{
	const struct x86_state *state = &walk->site.state;
	const struct step step = {.by_fp = by_fp,
				  .at = by_fp ? state->fp_at : state->depth,
				  .saved_at = state->saved_at,
				  .fp_lost = state->fp_lost,
				  .chained = state->fp_at != 0};

	if (walk->trap.kind == ROW_NONE && !state->copied && (by_fp || !state->fp_at))
		step_learn(walk->in->unwinder, &walk->at, &step, ret, trust);
}

static enum found try_slot(struct walk *walk, uint64_t slot, bool by_fp, uint8_t *trust)
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
	if (*trust == TRUST_SURE && walk_row_denies(walk, slot, ret))
		*trust = TRUST_GUESS;
	learn(walk, ret, by_fp, *trust);
	walk_go_by_state(walk, &site->state, slot, ret);
	return FOUND_CALLER;
}

enum found walk_by_state(struct walk *walk, uint8_t *trust)
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
		found = try_slot(walk, by_fp, true, trust);
	if (found != FOUND_NONE || walk->beyond || !walk_slot_by_sp(walk, state, &by_sp) ||
	    (fp_known && by_sp == by_fp))
		return found;
	found = try_slot(walk, by_sp, false, trust);
	/* They disagree: no caller here proves nothing. */
	return found == FOUND_END && fp_known ? FOUND_NONE : found;
}
