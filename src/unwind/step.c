/* SPDX-License-Identifier: BSD-3-Clause */
#include "unwind/step.h"

#include "unwind/memo.h"

/* Kinds are 0 and 1, words 4 and 8. */
static uint64_t key_of(const struct steps *steps, uint8_t kind)
{
	return steps->space | kind;
}

void steps_forget(struct steps *steps)
{
	memset(steps->step, 0, sizeof(steps->step));
}

void step_learn(struct unwinder *unwinder, const struct place *from, const struct step *step,
		uint64_t ret, uint8_t trust)
{
	uint64_t key = key_of(unwinder->steps_known, from->kind);
	struct step *known = step_at(unwinder->steps_known, from->addr, key);
	unsigned i;

	/* A step reads nothing above the return address. */
	if (step->saved_at < 0)
		return;
	if (known->addr != from->addr || known->key != key || known->at != step->at ||
	    known->saved_at != step->saved_at || known->by_fp != step->by_fp) {
		*known = *step;
		memset(known->ret, 0, sizeof(known->ret));
		known->addr = from->addr;
		known->key = key;
		known->n = 0;
	}
	i = known->n < STEP_CALLERS ? known->n++ : ret % STEP_CALLERS;
	known->ret[i] = ret;
	known->trust[i] = trust;
}

/* Which of the remembered callers of the step `ret` is; STEP_CALLERS if none. */
static inline unsigned known_caller(const struct step *step, uint64_t ret)
{
	if (step->ret[0] == ret)
		return 0;
	for (unsigned i = 1; i < STEP_CALLERS; i++)
		if (step->ret[i] == ret)
			return i;
	return STEP_CALLERS;
}

static inline uint64_t load(const uint8_t *bytes, uint64_t word)
{
	uint64_t wide;
	uint32_t narrow;

	if (word == 8) {
		memcpy(&wide, bytes, 8);
		return wide;
	}
	memcpy(&narrow, bytes, 4);
	return narrow;
}

static inline void stand(struct walk *walk, struct place *at, uint64_t sp, uint64_t fp)
{
	at->kind = FRAME_RETURN;
	at->first = false;
	at->sp = sp;
	at->fp = fp;
	walk->at = *at;
}

/* The memo knew the rest. */
#define ENDED SIZE_MAX

/*
 * The same as walk_by_state and walk_by_row would do; where they would do more
 * (another stack, a word that is not at hand), it is left to them. This is
 * where most frames are found: it works on offsets into the window, and is
 * compiled for each size of words, with and without a memo. Returns the number
 * of frames, or ENDED.
 */
static inline __attribute__((always_inline)) size_t
follow(struct walk *walk, struct frame *frames, size_t n, const uint64_t word, const bool remember)
{
	const struct steps *steps = walk->in->unwinder->steps_known;
	const uint8_t *bytes = walk->stack->bytes;
	const uint64_t va = walk->stack->va, last = walk->stack->len - word;
	const size_t max = walk->in->max_frames;
	struct place at = walk->at;
	uint64_t key = key_of(steps, at.kind), sp = at.sp - va, fp = at.fp - va;

	while (n < max) {
		const struct step *step = step_at((struct steps *)steps, at.addr, key);
		uint64_t slot = (step->by_fp ? fp : sp) + (uint64_t)(int64_t)step->at;
		uint64_t saved = slot - (uint64_t)(int64_t)step->saved_at, ret;
		unsigned i;

		if (remember && memo_may_end(walk) && memo_ends(walk, frames, n))
			return ENDED;
		if (step->addr != at.addr || step->key != key ||
		    !(step->by_fp ? at.fp_known : at.exact))
			break;
		/* Both are on the stack, and not below what is in use. */
		if (slot > last || slot < sp || saved > last || saved < sp ||
		    (slot | saved | va) & (word - 1))
			break;
		ret = load(bytes + slot, word);
		i = known_caller(step, ret);
		if (i == STEP_CALLERS || !ret)
			break;
		if (step->saved_at) {
			fp = load(bytes + saved, word) - va;
			at.fp_known = true;
			at.chained = step->chained;
		} else if (step->fp_lost) {
			at.fp_known = false;
		}
		at.addr = ret;
		at.exact = true;
		sp = slot + word;
		key = key_of(steps, FRAME_RETURN);
		if (remember) {
			stand(walk, &at, sp + va, fp + va);
			memo_note(walk, n);
		}
		frames[n++] = (struct frame){ret, FRAME_RETURN, step->trust[i]};
	}
	if (n == walk->out->n)
		return n;
	stand(walk, &at, sp + va, fp + va);
	return n;
}

bool steps_follow(struct walk *walk, struct frame *frames)
{
	struct unwind_result *out = walk->out;
	size_t n;

	if (walk->stack->len < walk->word)
		return false;
	if (walk->word == 8)
		n = walk->memo ? follow(walk, frames, out->n, 8, true)
			       : follow(walk, frames, out->n, 8, false);
	else
		n = walk->memo ? follow(walk, frames, out->n, 4, true)
			       : follow(walk, frames, out->n, 4, false);
	if (n == ENDED)
		return true;
	out->n = n;
	return false;
}
