/* SPDX-License-Identifier: BSD-3-Clause */
#include "unwind/arm_code.h"

/* Words above the stack pointer that are looked at. */
#define SCAN_WORDS 512

/* A caller is taken if from it so many frames follow that are sure, or the outermost. */
#define LOOK_AHEAD 2

/* Does the walk go on well from where it stands? It is there again afterwards. */
static bool goes_on(struct arm_walk *walk)
{
	const struct arm_walk before = *walk;
	const struct unwind_result out = *walk->walk.out;
	enum found found = FOUND_CALLER;
	uint8_t trust = TRUST_SURE;
	bool good;

	for (unsigned i = 0; i < LOOK_AHEAD && found == FOUND_CALLER && trust == TRUST_SURE; i++)
		found = arm_find_caller(walk, &trust);
	good = found == FOUND_CALLER
		       ? trust == TRUST_SURE
		       : found == FOUND_END && walk->walk.out->end == UNWIND_OUTERMOST;
	*walk = before;
	*walk->walk.out = out;
	return good;
}

enum found arm_by_scan(struct arm_walk *walk)
{
	const struct arm_walk before = *walk;
	const struct window *stack = walk->walk.stack;
	const bool any = walk->walk.in->method == UNWIND_SCAN;
	uint64_t slot = walk->walk.at.sp & ~3ull, word;

	for (unsigned i = 0; i < SCAN_WORDS && in_window(stack, slot, 4); i++, slot += 4) {
		struct arm_return ret;

		read_word(&walk->walk, stack, slot - stack->va, &word);
		if (!word || !walk_spend(&walk->walk) || !arm_believe(walk, word, &ret) ||
		    !ret.readable)
			continue;
		arm_go(walk, &ret, slot + 4);
		if (any || goes_on(walk))
			return FOUND_CALLER;
		*walk = before;
	}
	return FOUND_NONE;
}
