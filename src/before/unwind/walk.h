/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef UNIPROF_UNWIND_WALK_H
#define UNIPROF_UNWIND_WALK_H

/* Where a walk up the stack stands, and the ways to get on, a file each. */

#include <string.h>

#include "unwind/site.h"
#include "unwind/step.h"

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
	bool first;    /* all registers are known */
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
	struct tabled table;  /* the same */
	struct row trap;      /* the same */
	bool readable;	      /* the code here */
	bool beyond;	      /* a frame lies above the window: out->want is set */
	uint64_t elsewhere; /* a word that was needed is on a stack that is not at hand; 0: none */
	uint32_t visited;   /* bit n: the walk is or was on in->others[n] */
	bool missed;	    /* a word was looked for on other stacks, in vain */
	struct memo *memo;  /* NULL: none to be used */
	size_t memo_at;	    /* frames of it before this one are passed */
	size_t common;	    /* frames at the end that are the same as the memo's */
	uint64_t top;	    /* nothing from here on was looked at */
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

/* Is this address on another stack? They may be close to each other, with unmapped pages between. */
static inline bool walk_is_elsewhere(const struct window *stack, uint64_t va)
{
	uint64_t offset = va - stack->va;

	return offset >= REACH || (offset >= stack->len && !stack->cut);
}

/* Takes the stack that the walk is on now, if it is another. */
bool walk_settle(struct walk *walk);

/* A word that is not in the window of this stack. */
bool walk_load_outside(struct walk *walk, uint64_t va, uint64_t *value);

/* Reads a word of the stack at or above the current sp; notes what lies above the window. */
static inline bool walk_load(struct walk *walk, uint64_t va, uint64_t *value)
{
	if (va & (walk->word - 1))
		return false;
	if (va < walk->at.sp || !in_window(walk->stack, va, walk->word))
		return walk_load_outside(walk, va, value);
	if (va + walk->word > walk->top)
		walk->top = va + walk->word;
	read_word(walk, walk->stack, va - walk->stack->va, value);
	return true;
}

/* To be asked for each word that is looked at in search of a return address. */
static inline bool walk_spend(struct walk *walk)
{
	unsigned *steps = &walk->in->unwinder->steps;

	*steps -= *steps > 0;
	return *steps;
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

/* Looks up what is known of where the walk stands; must be done before the ways below. */
void walk_look(struct walk *walk);

/*
 * By state: following the function's code to where it stands says where the
 * return address is; and that is one.
 */
enum found walk_by_state(struct walk *walk, uint8_t *trust);

/* By the row of the image's table. */
enum found walk_by_row(struct walk *walk, uint8_t *trust);

/* Does the row say that the return address is not `ret` in `slot`? */
bool walk_row_denies(struct walk *walk, uint64_t slot, uint64_t ret);

/* What was interrupted, where the code that comes next returns to it. */
enum found walk_by_iret(struct walk *walk, uint8_t *trust);

/* By frame record: what the frame pointer points to looks like one. */
enum found walk_by_record(struct walk *walk, bool blind, uint8_t *trust);

/*
 * By search: the first word that looks like a return address and from which
 * the walk goes on well. Always a guess.
 */
enum found walk_by_scan(struct walk *walk, uint8_t *trust);

/* All of them but the last, in the order of in->method. */
enum found walk_find_caller(struct walk *walk, uint8_t *trust);

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
