/* SPDX-License-Identifier: BSD-3-Clause */
#include "unwind/walk.h"

/* What is asked for beyond the frame that was out of the window, bytes. */
#define MARGIN 512

/* A word that is not in the window: it may be on the other stack, from which nothing leads back. */
bool walk_load_outside(struct walk *walk, uint64_t va, uint64_t *value)
{
	const struct window *stack = walk->stack, *other = walk->in->other;
	uint64_t offset = va - stack->va;

	if (va >= walk->at.sp && offset < REACH) {
		if (stack->cut) {
			walk->beyond = true;
			walk->out->want = offset + 2 * walk->word + MARGIN;
		}
		return false;
	}
	if (!other || stack == other || !in_window(other, va, walk->word))
		return false;
	read_word(walk, other, va - other->va, value);
	return true;
}

/* The value of a register by its number in instructions, where the walk begins. */
static bool first_register(const struct walk *walk, uint8_t reg, uint64_t *value)
{
	static const uint8_t dwarf_64[8] = {0, 2, 1, 3, 7, 6, 4, 5};
	const struct regs *regs = walk->in->regs;
	unsigned n = walk->word == 8 && reg < 8 ? dwarf_64[reg] : reg;

	if (walk->at.kind != FRAME_PC || reg > 15 || !(regs->gp_valid >> n & 1))
		return false;
	*value = regs->gp[n];
	return true;
}

/* Where a stack was before it was realigned: the address behind the true return address. */
static bool find_origin(struct walk *walk, const struct x86_state *state, uint64_t slot,
			uint64_t *origin)
{
	if (state->origin_at)
		return walk_load(walk, slot - (uint64_t)(int64_t)state->origin_at, origin);
	return first_register(walk, state->origin_reg, origin);
}

void walk_go_by_state(struct walk *walk, const struct x86_state *state, uint64_t slot, uint64_t ret)
{
	struct place *at = &walk->at;
	uint64_t origin, sp = slot + walk->word;

	at->exact = !state->copied;
	if (state->copied && find_origin(walk, state, slot, &origin) && origin > slot &&
	    !(origin & (walk->word - 1))) {
		sp = origin;
		at->exact = true;
	}
	if (state->saved_at) {
		at->fp_known = walk_load(walk, slot - (uint64_t)(int64_t)state->saved_at, &at->fp);
		at->chained = state->fp_at != 0;
	} else if (state->fp_lost) {
		at->fp_known = false;
	}
	at->addr = ret;
	at->kind = FRAME_RETURN;
	at->sp = sp;
}

bool walk_slot_by_sp(const struct walk *walk, const struct x86_state *state, uint64_t *slot)
{
	*slot = walk->at.sp + (uint64_t)(int64_t)state->depth;
	if (state->depth != X86_LOST)
		return walk->at.exact && state->depth >= 0;
	if (state->fp_at || !first_register(walk, state->origin_reg, slot))
		return false;
	*slot -= walk->word;
	return true;
}
