/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef UNIPROF_UNWIND_MEMO_H
#define UNIPROF_UNWIND_MEMO_H

/*
 * The last walk of a vCPU's stack. From one sample to the next most of a stack
 * stays as it was: as soon as a walk stands where the last one stood, and the
 * stack above has the same bytes, the rest of the chain is the same, too. A
 * deep stack so costs little more than the frames that have changed.
 *
 * Everything is kept at the end of its array, the outermost frame last, so
 * that what stays does not have to be moved.
 */

#include "unwind/walk.h"

/* Longer chains, and stacks, are walked anew each time. */
#define MEMO_FRAMES 1024u
#define MEMO_BYTES  (32u << 10)

struct memo {
	size_t n;	 /* frames; 0: nothing is known */
	uint64_t root;	 /* the address space and the size of its words, */
	uint8_t word;	 /* ... */
	uint32_t age;	 /* and what was known of the code: see struct unwinder */
	uint64_t bottom; /* the first address of the stack whose contents are kept, */
	uint64_t top;	 /* and the first behind them: nothing above was looked at */
	bool missed;	 /* other stacks than this could have had a say in it */
	struct place place[MEMO_FRAMES];
	struct frame frame[MEMO_FRAMES];
	uint32_t id[MEMO_FRAMES]; /* the caller's: see unwind_memo_ids */
	uint8_t bytes[MEMO_BYTES];
};

/* May be called once for each walk, before the first step. */
void memo_begin(struct walk *walk);

/*
 * If the rest of the chain is known from where the walk stands, appends it to
 * the `n` frames that are there, and true: the walk has ended.
 */
bool memo_ends(struct walk *walk, struct frame *frames, size_t n);

/* Is it worth asking? The walk only goes up, and so does walk->memo_at. */
static inline bool memo_may_end(struct walk *walk)
{
	const struct memo *memo = walk->memo;
	size_t at = walk->memo_at;

	while (at < MEMO_FRAMES && memo->place[at].sp < walk->at.sp)
		at++;
	walk->memo_at = at;
	return at < MEMO_FRAMES && memo->place[at].sp == walk->at.sp &&
	       memo->place[at].addr == walk->at.addr;
}

/* Frame `n` is where the walk stands. */
static inline void memo_note(struct walk *walk, size_t n)
{
	if (n < MEMO_FRAMES)
		walk->in->unwinder->places[n] = walk->at;
}

/* The walk is done: keeps it, if it can be kept. */
void memo_keep(struct walk *walk, const struct frame *frames);

#endif
