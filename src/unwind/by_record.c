/* SPDX-License-Identifier: BSD-3-Clause */
#include "unwind/walk.h"

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
enum found walk_by_record(struct walk *walk, bool blind, uint8_t *trust)
{
	uint64_t fp = walk->at.fp, next, ret;

	if (!walk->at.fp_known || (!blind && state_known(&walk->site)))
		return FOUND_NONE;
	if (!walk_load(walk, fp, &next) || !walk_load(walk, fp + walk->word, &ret))
		return FOUND_NONE;
	if (!ret) {
		/* Zeros stand behind any pointer to the stack that code without frames keeps there. */
		if (!walk->at.chained && !blind)
			return FOUND_NONE;
		walk->out->end = UNWIND_OUTERMOST;
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
