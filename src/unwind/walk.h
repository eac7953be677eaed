/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef UNIPROF_UNWIND_WALK_H
#define UNIPROF_UNWIND_WALK_H

/* Where a walk up the stack stands, and how it gets on: for frame_pointer.c and by_target.c. */

#include <string.h>

#include "unwind/site.h"

/* A frame farther above the window than this is no part of the stack. */
#define REACH (1u << 20)
/* Without symbols, a function is not expected to be larger. */
#define FUNCTION_MAX (1u << 16)

/* Where the walk stands. */
struct place {
	uint64_t addr;
	uint64_t sp; /* the frame's, after the return; or a lower bound of it */
	uint64_t fp;
	uint8_t kind;  /* enum frame_kind */
	bool exact;    /* sp is no mere lower bound */
	bool fp_known; /* fp is what the code saw there */
	bool chained;  /* fp was stored by a function that works with frame records */
};

struct walk {
	const struct unwind_input *in;
	struct unwind_result *out;
	const struct window *stack; /* the one that the walk is on */
	uint64_t word;
	struct place at;
	struct standing site; /* a copy: looking up others may displace it */
	bool beyond;	      /* a frame lies above the window: out->want is set */
};

enum found {
	FOUND_CALLER, /* walk->at is there, *trust is set */
	FOUND_NONE,   /* nothing has changed */
	FOUND_END     /* out->end says which */
};

static inline void read_word(const struct walk *walk, const struct window *from, uint64_t offset,
			     uint64_t *value)
{
	uint32_t narrow;

	if (walk->word == 8) {
		memcpy(value, from->bytes + offset, 8);
	} else {
		memcpy(&narrow, from->bytes + offset, 4);
		*value = narrow;
	}
}

static inline bool in_window(const struct window *window, uint64_t va, uint64_t word)
{
	uint64_t offset = va - window->va;

	return offset < window->len && window->len - offset >= word;
}

/* A word that is not in the window of this stack. */
bool walk_load_outside(struct walk *walk, uint64_t va, uint64_t *value);

/* Reads a word of the stack at or above the current sp; notes what lies above the window. */
static inline bool walk_load(struct walk *walk, uint64_t va, uint64_t *value)
{
	if (va & (walk->word - 1))
		return false;
	if (va < walk->at.sp || !in_window(walk->stack, va, walk->word))
		return walk_load_outside(walk, va, value);
	read_word(walk, walk->stack, va - walk->stack->va, value);
	return true;
}

/* Was the code followed to where the walk stands? */
static inline bool state_known(const struct standing *site)
{
	return site->has_flow && (site->flow == FLOW_FOUND || site->flow == FLOW_GUESSED);
}

/* Where a state says that the return address is, by sp or by fp; false if it does not. */
bool walk_slot_by_sp(const struct walk *walk, const struct x86_state *state, uint64_t *slot);

static inline bool walk_slot_by_fp(const struct walk *walk, const struct x86_state *state,
				   uint64_t *slot)
{
	*slot = walk->at.fp + (uint64_t)(int64_t)state->fp_at;
	return walk->at.fp_known && state->fp_at;
}

/* Goes to the caller: the return address `ret` stands at `slot`, the code is in this state. */
void walk_go_by_state(struct walk *walk, const struct x86_state *state, uint64_t slot,
		      uint64_t ret);

/*
 * Looks for a return address on the stack that proves itself: it follows a
 * call of a function, and following that function leads here, with the return
 * address in that very word. Where the function's code cannot be followed,
 * symbols that name it as the one that stands here will do.
 */
enum found walk_by_target(struct walk *walk, uint8_t *trust);

/*
 * Does the function that was called, `target`, jump to the one that stands
 * here, when the return address is in `slot`?
 */
bool walk_was_jumped_to(struct walk *walk, uint64_t slot, uint64_t target);

#endif
