/* SPDX-License-Identifier: BSD-3-Clause */
#pragma once

/*
 * The steps from frames to their callers that were found lately, in the
 * shortest form: most stacks are made of steps that were all done before, and
 * these are done again in some dozen instructions each. A step is only done
 * again from the same address to the same return address.
 */

#include "unwind/unwind.h"
#include "unwind/walk.h"

#define STEP_CALLERS 8	/* return addresses that are cached for an address */
#define STEP_BITS    12 /* log 2 of the addresses that are kept, each in one slot */

struct step {
	uint64_t addr, key; /* of the frame; key: its address space, word and kind of frame */
	int32_t cfa;	    /* the CFA is sp or fp + cfa, */
	int32_t ra_at;	    /* the return address at the CFA + ra_at, */
	int32_t fp_at;	    /* and the caller's fp at the CFA + fp_at; 0: it is still in fp */
	bool by_fp;
	bool fp_lost;
	bool chained;		    /* see struct cursor, */
	int8_t ret_words, fp_words; /* as ret_at and fp_at there */
	uint8_t n;
	uint8_t trust[STEP_CALLERS];
	uint64_t ret[STEP_CALLERS];
};

struct step_cache {
	struct step step[1u << STEP_BITS];
	uint64_t space; /* address space, processor and word of this stack */
};

static inline struct step *step_at(struct step_cache *steps, uint64_t addr, uint64_t key)
{
	return &steps->step[((addr ^ key) * 0x9e3779b97f4a7c15ull) >> (64 - STEP_BITS)];
}

/*
 * Caches that the step from `from` led to `ret`. Of the step, only the members
 * from cfa to chained are read.
 */
void step_learn(struct unwinder *unwinder, const struct cursor *from, const struct step *step,
		uint64_t ret, uint8_t trust);

/*
 * Follows cached steps as far as they lead, and appends the frames. True: the
 * stack cache knew the chain to its end.
 */
bool steps_follow(struct walk *walk, struct frame *frames);

/*
 * The last walk of each stack. From one sample to the next most of a stack
 * stays as it was: as soon as a walk is at a frame where the last one was, and
 * the stack above has the same bytes, the rest of the chain is the same, too.
 * A deep stack so costs little more than the frames that have changed, also if
 * its chain ends where no caller can be found.
 *
 * Stacks are known by the address where they end, so that a thread's is known
 * again whichever vCPU it runs on, and however many others ran in between.
 *
 * Where the bytes differ, because variables between the frames do, the words
 * that lead from frame to frame may still be the same, and with them the chain.
 *
 * Everything of an entry is kept at the end of its array, the outermost frame
 * last, so that what stays does not have to be moved.
 */

#define STACK_CACHE_ENTRIES 256u
/* Longer chains, and stacks, are walked anew each time. */
#define STACK_CACHE_FRAMES 1024u
#define STACK_CACHE_BYTES  (32u << 10)

struct stack_entry {
	size_t n;	     /* frames */
	uint64_t root;	     /* address space */
	uint8_t isa, word;   /* of the code */
	uint8_t end;	     /* enum unwind_end */
	uint64_t bottom;     /* first address of the stack whose contents are kept */
	uint64_t top;	     /* first address behind them: nothing above was read */
	bool missed;	     /* words were missing: other stacks, or more of this one, can matter */
	uint64_t extent;     /* valid for stacks of which nothing beyond this address is at hand */
	uint64_t window_end; /* end of the window up to which there was some; 0: there is more */
	struct cursor cursor[STACK_CACHE_FRAMES];
	struct frame frame[STACK_CACHE_FRAMES];
	uint32_t id[STACK_CACHE_FRAMES]; /* the caller's: see unwind_result.ids */
	uint8_t bytes[STACK_CACHE_BYTES];
};

struct stack_cache {
	unsigned n;				/* entries in use */
	uint64_t key[STACK_CACHE_ENTRIES];	/* ends of their stacks, in ascending order */
	uint16_t at[STACK_CACHE_ENTRIES];	/* index of the entry for each key */
	unsigned next;				/* entry to be replaced when all are in use */
	struct cursor walk[STACK_CACHE_FRAMES]; /* where the present walk was at each frame */
	struct stack_entry *entry[STACK_CACHE_ENTRIES]; /* allocated when first used */
};

void stack_cache_free(struct stack_cache *cache);

/* May be called once for each walk, before the first step. */
void stack_cache_begin(struct walk *walk);

/* Is it worth asking? The walk only goes up, and so does walk->entry_at. */
static inline bool stack_cache_may_end(struct walk *walk)
{
	const struct stack_entry *entry = walk->entry;
	size_t at = walk->entry_at;

	if (walk->at.sp < walk->ask_from)
		return false;
	while (at < STACK_CACHE_FRAMES && entry->cursor[at].sp < walk->at.sp)
		at++;
	walk->entry_at = at;
	return at < STACK_CACHE_FRAMES && entry->cursor[at].sp == walk->at.sp &&
	       entry->cursor[at].addr == walk->at.addr;
}

/* Frame `n` is where the walk is. */
static inline void stack_cache_note(struct walk *walk, size_t n)
{
	if (n < STACK_CACHE_FRAMES)
		walk->cache->walk[n] = walk->at;
}

/* The walk is done: keeps it, if it can be kept. */
void stack_cache_keep(struct walk *walk, const struct frame *frames);
