/* SPDX-License-Identifier: BSD-3-Clause */
#include "arch/arm64_mmu.h"
#include "unwind/arm64_frame.h"

/* Words above the stack pointer that are looked at. */
#define SCAN_WORDS 512

enum found arm64_by_scan(struct arm64_walk *arm64)
{
	struct walk *walk = &arm64->walk;
	const struct place before = walk->at;
	uint64_t slot = (before.sp + 7) & ~7ull, word, target;
	bool readable;

	for (unsigned i = 0; i < SCAN_WORDS && in_window(walk->stack, slot, 8); i++, slot += 8) {
		read_word(walk, walk->stack, slot - walk->stack->va, &word);
		word = arm64_strip(&walk->in->regs->mmu, word);
		if (!word || !walk_spend(walk) ||
		    !arm64_is_return(arm64, word, &target, &readable) || !readable)
			continue;
		walk->at = (struct place){.addr = word,
					  .kind = FRAME_RETURN,
					  .sp = slot + 8,
					  .fp = before.fp,
					  .exact = true,
					  .fp_known = before.fp_known && before.fp > slot};
		arm64->lr_known = false;
		return FOUND_CALLER;
	}
	return FOUND_NONE;
}
