/* SPDX-License-Identifier: BSD-3-Clause */
#include "unwind/memo.h"

#include <stdlib.h>

struct error *unwind_memo_new(struct memo **out)
{
	*out = calloc(1, sizeof(**out));
	return *out ? NULL : error_no_memory();
}

void unwind_memo_free(struct memo *memo)
{
	free(memo);
}

uint32_t *unwind_memo_ids(struct memo *memo, size_t n)
{
	return memo && n && n == memo->n ? memo->id + MEMO_FRAMES - n : NULL;
}

void unwind_memo_forget(struct memo *memo)
{
	memo->n = 0;
}

void memo_begin(struct walk *walk)
{
	const struct unwinder *unwinder = walk->in->unwinder;
	struct memo *memo = walk->in->memo;

	walk->memo_at = MEMO_FRAMES;
	if (!memo || !unwinder)
		return;
	if ((memo->missed && walk->in->n_others) || memo->root != unwinder->root ||
	    memo->word != unwinder->word || memo->age != unwinder->age)
		memo->n = 0;
	walk->memo = memo;
	walk->memo_at = MEMO_FRAMES - memo->n;
}

static bool same_place(const struct place *a, const struct place *b)
{
	return a->addr == b->addr && a->sp == b->sp && a->fp == b->fp && a->kind == b->kind &&
	       !a->first && !b->first && a->exact == b->exact && a->fp_known == b->fp_known &&
	       a->chained == b->chained;
}

/* Has the stack from where the walk stands the bytes that it had? */
static bool same_bytes(const struct walk *walk, const struct memo *memo)
{
	const struct window *stack = walk->stack;
	const uint64_t sp = walk->at.sp, len = memo->top - sp, offset = sp - stack->va;

	return sp >= memo->bottom && sp <= memo->top && offset <= stack->len &&
	       len <= stack->len - offset &&
	       !memcmp(stack->bytes + offset, memo->bytes + MEMO_BYTES - len, len);
}

bool memo_ends(struct walk *walk, struct frame *frames, size_t n)
{
	struct memo *memo = walk->memo;
	const size_t at = walk->memo_at, more = MEMO_FRAMES - 1 - at;

	/* How a frame was found has a say in how its caller is. */
	if (!same_place(&memo->place[at], &walk->at) ||
	    frames[n - 1].trust != memo->frame[at].trust || n + more > walk->in->max_frames ||
	    !same_bytes(walk, memo))
		return false;
	memcpy(frames + n, memo->frame + at + 1, more * sizeof(*frames));
	walk->common = more + 1;
	walk->missed = walk->missed || memo->missed;
	walk->at = memo->place[MEMO_FRAMES - 1];
	walk->out->n = n + more;
	walk->out->end = UNWIND_OUTERMOST;
	return true;
}

/*
 * Only whole chains on one stack are kept, of which all that was looked at is
 * at hand. Of those that ended as the last one did, only the beginning is new.
 */
void memo_keep(struct walk *walk, const struct frame *frames)
{
	const struct unwinder *unwinder = walk->in->unwinder;
	const struct window *stack = walk->in->stack;
	struct memo *memo = walk->memo;
	const size_t n = walk->out->n, fresh = n - walk->common, at = MEMO_FRAMES - n;
	const uint64_t known = walk->common ? memo->top : walk->at.sp;
	const uint64_t top = walk->top > known ? walk->top : known;
	uint64_t len = top - stack->va;

	if (walk->out->end != UNWIND_OUTERMOST || walk->out->others || n > MEMO_FRAMES ||
	    top < stack->va || top - stack->va > stack->len || top - stack->va > MEMO_BYTES) {
		memo->n = 0;
		return;
	}
	/* The place where the chains meet is the same in both. */
	memcpy(memo->place + at, unwinder->places, fresh * sizeof(*memo->place));
	memcpy(memo->frame + at, frames, fresh * sizeof(*frames));
	if (walk->common && top == memo->top)
		len = memo->place[MEMO_FRAMES - walk->common].sp - stack->va;
	memcpy(memo->bytes + MEMO_BYTES - (top - stack->va), stack->bytes, len);
	memo->n = n;
	memo->root = unwinder->root;
	memo->word = unwinder->word;
	memo->age = unwinder->age;
	memo->bottom = stack->va;
	memo->top = top;
	memo->missed = walk->missed;
	walk->out->common = walk->common;
}
