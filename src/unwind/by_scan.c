/* SPDX-License-Identifier: BSD-3-Clause */
#include "unwind/walk.h"

/* Words above the stack pointer that are looked at. */
#define SCAN_WORDS 512

/* A caller is taken if from it so many frames follow that are sure, or the outermost. */
#define LOOK_AHEAD 2

static bool is_return_address(struct walk *walk, uint64_t addr)
{
	const struct site *site = site_at(walk->in->unwinder, addr, FRAME_RETURN);

	return site->call.direct || site->call.indirect;
}

static void go(struct walk *walk, uint64_t slot, uint64_t ret)
{
	const struct place before = walk->at;
	uint64_t sp = slot + walk->word;

	walk->at = (struct place){.addr = ret,
				  .sp = sp,
				  .fp = before.fp,
				  .kind = FRAME_RETURN,
				  .exact = true,
				  .fp_known = before.fp_known && before.fp >= sp &&
					      before.fp - sp < REACH};
}

/* Does the walk go on well from where it stands? It is there again afterwards. */
static bool goes_on(struct walk *walk)
{
	struct walk before = *walk;
	struct unwind_result out = *walk->out;
	enum found found = FOUND_CALLER;
	uint8_t trust = TRUST_SURE;
	bool good;

	for (unsigned i = 0; i < LOOK_AHEAD && found == FOUND_CALLER && trust == TRUST_SURE; i++) {
		found = walk_find_caller(walk, &trust);
		if (found == FOUND_CALLER && !walk_settle(walk))
			found = FOUND_NONE;
	}
	good = found == FOUND_CALLER ? trust == TRUST_SURE
				     : found == FOUND_END && walk->out->end == UNWIND_OUTERMOST;
	out.others = walk->out->others;
	before.missed = walk->missed;
	before.top = walk->top;
	*walk = before;
	*walk->out = out;
	return good;
}

enum found walk_by_scan(struct walk *walk, uint8_t *trust)
{
	const struct window *stack = walk->stack;
	const struct place before = walk->at;
	uint64_t slot = (before.sp + walk->word - 1) & ~(walk->word - 1), ret;
	bool any = walk->in->method == UNWIND_SCAN;

	*trust = TRUST_GUESS;
	for (unsigned i = 0; i < SCAN_WORDS && in_window(stack, slot, walk->word); i++) {
		read_word(walk, stack, slot - stack->va, &ret);
		if (ret && walk_spend(walk) && is_return_address(walk, ret)) {
			go(walk, slot, ret);
			if (any || goes_on(walk))
				return FOUND_CALLER;
			walk->at = before;
		}
		slot += walk->word;
	}
	return FOUND_NONE;
}
