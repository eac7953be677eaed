/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef UNIPROF_UNWIND_STEP_H
#define UNIPROF_UNWIND_STEP_H

/*
 * The steps from frames to their callers that were found lately, in the
 * shortest form: most stacks are made of steps that were all done before, and
 * these are done again in some dozen instructions each. A step is only done
 * again from the same place to the same return address.
 */

#include "unwind/unwind.h"

#define STEP_CALLERS 3	/* return addresses that are remembered for a place */
#define STEP_BITS    12 /* log 2 of the places that are kept, each in one spot */

struct step {
	uint64_t addr, key; /* the place; key: its address space, word and kind of frame */
	int32_t at;	    /* the return address is at sp or fp + at */
	int32_t saved_at;   /* the caller's fp is so far below it; 0: it is still in fp */
	bool by_fp;
	bool fp_lost;
	bool chained; /* see struct place */
	uint8_t n;
	uint8_t trust[STEP_CALLERS];
	uint64_t ret[STEP_CALLERS];
};

struct steps {
	struct step step[1u << STEP_BITS];
	uint64_t space; /* address space and word of this stack */
};

struct place;
struct walk;

/* To be called once for each stack. */
static inline void steps_begin(struct steps *steps, uint64_t root, uint8_t word)
{
	/* Tables are aligned to more than these bits. */
	steps->space = (root & ~(uint64_t)0xf) | word;
}

void steps_forget(struct steps *steps);

static inline struct step *step_at(struct steps *steps, uint64_t addr, uint64_t key)
{
	return &steps->step[((addr ^ key) * 0x9e3779b97f4a7c15ull) >> (64 - STEP_BITS)];
}

/* The step from `from` led to `ret`. addr, key and what follows chained are not read. */
void step_learn(struct unwinder *unwinder, const struct place *from, const struct step *step,
		uint64_t ret, uint8_t trust);

/*
 * Goes as far as known steps lead, and appends the frames. True: to the end of
 * the chain, by the memo of this stack.
 */
bool steps_follow(struct walk *walk, struct frame *frames);

#endif
