/* SPDX-License-Identifier: BSD-3-Clause */
#include "unwind/arm_code.h"

/* Words above the stack pointer that may be the return address. */
#define SEARCH_WORDS 64
/* What was called is the function that stands here, or jumped to it, and is no farther away, bytes. */
#define NEAR 8192ull
/* Code is followed so far behind what is known to belong to it, bytes. */
#define REACH_OF_JUMP 2048u

/* By the stack pointer, or by whatever register keeps a distance to it. */
static bool cfa_of(const struct arm_walk *walk, const struct arm_state *state, uint64_t *cfa)
{
	const unsigned usable = state->based & walk->known;
	unsigned reg;

	if (!usable)
		return false;
	reg = usable >> ARM_SP & 1 ? ARM_SP : (unsigned)__builtin_ctz(usable);
	*cfa = walk->r[reg] - (uint32_t)state->base[reg];
	return *cfa >= walk->walk.at.sp && *cfa - walk->walk.at.sp <= REACH && !(*cfa & 3);
}

static uint64_t slot(const struct arm_state *state, uint64_t cfa, unsigned reg)
{
	return (uint32_t)(cfa + (uint32_t)state->at[reg]);
}

static void restore(struct arm_walk *walk, const struct arm_state *state, uint64_t cfa)
{
	for (unsigned reg = 4; reg < ARM_IP; reg++) {
		const uint16_t bit = (uint16_t)(1u << reg);
		uint64_t value;

		if (state->saved & bit && walk_load(&walk->walk, slot(state, cfa, reg), &value)) {
			walk->r[reg] = (uint32_t)value;
			walk->known |= bit;
		} else if ((state->saved | state->lost) & bit) {
			walk->known &= (uint16_t)~bit;
		}
	}
}

/* Where a state says that the return address is: false if it does not, or that is not to be had. */
static bool return_word(struct arm_walk *walk, const struct arm_state *state, uint64_t cfa,
			uint64_t *word)
{
	*word = walk->r[ARM_LR];
	if (state->saved >> ARM_LR & 1)
		return walk_load(&walk->walk, slot(state, cfa, ARM_LR), word);
	return walk->known >> ARM_LR & 1;
}

/* Has the code kept no way back? */
static bool is_lost(const struct arm_walk *walk, const struct arm_state *state)
{
	return !(state->saved >> ARM_LR & 1) &&
	       (state->lost >> ARM_LR & 1 || walk->walk.at.kind == FRAME_RETURN);
}

static enum found end(struct arm_walk *walk)
{
	walk->walk.out->end = UNWIND_OUTERMOST;
	return FOUND_END;
}

/* May this have been called by its address, just now? */
static bool may_be_fresh(const struct arm_walk *walk)
{
	struct arm_return ret;

	return walk->known >> ARM_LR & 1 && arm_believe(walk, walk->r[ARM_LR], &ret) &&
	       ret.readable && !ret.target;
}

/*
 * What stands here may be another function than the one that was followed, and
 * have been reached by what looks like going on behind a call that never
 * returns, or by a jump to anywhere.
 */
static bool may_be(const struct arm_walk *walk, const struct arm_site *site,
		   const struct arm_return *ret)
{
	if (site->has_start)
		return true;
	if (!ret->readable || (ret->target && ret->target != site->start))
		return false;
	return site->known == ARM_FOLLOWED || (ret->target && !may_be_fresh(walk));
}

enum found arm_by_code(struct arm_walk *walk, const struct arm_site *site, uint8_t *trust)
{
	const struct arm_state *state = &site->state;
	const bool sure = site->known == ARM_FOLLOWED && site->has_start;
	struct arm_return ret;
	uint64_t cfa, word;

	if (site->known == ARM_UNKNOWN || !cfa_of(walk, state, &cfa))
		return FOUND_NONE;
	/* It has called something all the same: it never returns. */
	if (is_lost(walk, state))
		return sure ? end(walk) : FOUND_NONE;
	if (!return_word(walk, state, cfa, &word))
		return FOUND_NONE;
	if (!word)
		return site->has_start ? end(walk) : FOUND_NONE;
	if (!arm_believe(walk, word, &ret) || !may_be(walk, site, &ret))
		return FOUND_NONE;
	*trust = sure && ret.readable && (!ret.target || ret.target == site->start) ? TRUST_SURE
										    : TRUST_GUESS;
	restore(walk, state, cfa);
	arm_go(walk, &ret, cfa);
	return FOUND_CALLER;
}

/*
 * Following the code from `start`: is the return address one of a call of it?
 * It may have jumped to the function that stands here, from above or below.
 */
static bool prove(struct arm_walk *walk, const struct arm_site *site, uint64_t start)
{
	const uint64_t at = walk->walk.at.addr, least = site->start ? site->start : at;
	const struct arm_range range = {.entry = start,
					.start = start < least ? start : least,
					.end = (start < at ? at : start) + REACH_OF_JUMP};
	struct arm_state state;
	struct arm_return ret;
	uint64_t cfa, word;

	if (arm_site_follow(walk, &range, &state) != ARM_FOLLOWED || !cfa_of(walk, &state, &cfa) ||
	    is_lost(walk, &state) || !return_word(walk, &state, cfa, &word) ||
	    !arm_believe(walk, word, &ret) || !ret.readable || ret.target != start)
		return false;
	restore(walk, &state, cfa);
	arm_go(walk, &ret, cfa);
	return true;
}

/* Is this a return address of a call of something near? Then tries to prove that. */
static bool try_word(struct arm_walk *walk, const struct arm_site *site, uint64_t word)
{
	struct arm_return ret;

	return word && arm_believe(walk, word, &ret) && ret.readable && ret.target &&
	       ret.target - walk->walk.at.addr + NEAR < 2 * NEAR && prove(walk, site, ret.target);
}

enum found arm_by_target(struct arm_walk *walk, const struct arm_site *site, uint8_t *trust)
{
	const uint64_t sp = walk->walk.at.sp;
	uint64_t word;

	*trust = TRUST_SURE;
	if (walk->known >> ARM_LR & 1 && try_word(walk, site, walk->r[ARM_LR]))
		return FOUND_CALLER;
	for (unsigned i = 0; i < SEARCH_WORDS && walk_spend(&walk->walk); i++)
		if (in_window(walk->walk.stack, sp + 4 * i, 4) &&
		    walk_load(&walk->walk, sp + 4 * i, &word) && try_word(walk, site, word))
			return FOUND_CALLER;
	walk->walk.beyond = false;
	return FOUND_NONE;
}
