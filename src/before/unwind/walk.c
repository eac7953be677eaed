/* SPDX-License-Identifier: BSD-3-Clause */
#include "unwind/memo.h"

/* What is asked for beyond the frame that was out of the window, bytes. */
#define MARGIN 512

/* A word that is not in the window: it may be on another stack, from which nothing leads back. */
bool walk_load_outside(struct walk *walk, uint64_t va, uint64_t *value)
{
	const struct window *stack = walk->stack;
	uint64_t offset = va - stack->va;

	if (va >= walk->at.sp && !walk_is_elsewhere(stack, va)) {
		/* What is not at hand now could be the next time. */
		walk->top = UINT64_MAX;
		if (stack->cut) {
			walk->beyond = true;
			walk->out->want = offset + 2 * walk->word + MARGIN;
		}
		return false;
	}
	for (unsigned i = 0; i < walk->in->n_others; i++) {
		const struct window *other = &walk->in->others[i];

		if (walk->visited >> i & 1 || !in_window(other, va, walk->word))
			continue;
		walk->out->others |= 1u << i;
		read_word(walk, other, va - other->va, value);
		return true;
	}
	walk->missed = true;
	return false;
}

/* False: it is on no stack that is at hand, and walk->elsewhere or beyond says so. */
bool walk_settle(struct walk *walk)
{
	const struct place *at = &walk->at;
	uint64_t last = at->kind == FRAME_PC ? at->sp : at->sp - walk->word;

	if (in_window(walk->stack, last, walk->word))
		return true;
	for (unsigned i = 0; i < walk->in->n_others; i++) {
		if (walk->visited >> i & 1 || !in_window(&walk->in->others[i], last, walk->word))
			continue;
		walk->visited |= 1u << i;
		walk->out->others |= 1u << i;
		walk->memo_at = MEMO_FRAMES;
		walk->stack = &walk->in->others[i];
		return true;
	}
	if (at->kind == FRAME_RETURN)
		return true;
	/* Nothing was on the stack when it was interrupted. */
	if (!walk->stack->cut && last - walk->stack->va == walk->stack->len)
		return true;
	if (walk_is_elsewhere(walk->stack, last)) {
		walk->elsewhere = last;
		return false;
	}
	walk->beyond = true;
	walk->out->want = last - walk->stack->va + 2 * walk->word + MARGIN;
	return false;
}

/* The value of a register by its number in instructions, where the walk begins. */
static bool first_register(const struct walk *walk, uint8_t reg, uint64_t *value)
{
	static const uint8_t dwarf_64[8] = {0, 2, 1, 3, 7, 6, 4, 5};
	const struct regs *regs = walk->in->regs;
	unsigned n = walk->word == 8 && reg < 8 ? dwarf_64[reg] : reg;

	if (!walk->at.first || reg > 15 || !(regs->gp_valid >> n & 1))
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
	at->first = false;
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
