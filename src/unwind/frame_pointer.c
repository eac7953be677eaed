/* SPDX-License-Identifier: BSD-3-Clause */
#include "unwind/unwind.h"

#include <string.h>

/* A record farther above the window than this is no part of the stack. */
#define REACH (1u << 20)

struct walk {
	const struct unwind_input *in;
	struct frame *frames;
	struct unwind_result *out;
	uint64_t word;
	uint64_t low; /* the next record may not lie below */
};

static uint64_t load(const struct walk *walk, uint64_t va)
{
	const uint8_t *bytes = walk->in->stack->bytes + (va - walk->in->stack->va);
	uint64_t wide;
	uint32_t narrow;

	if (walk->word == 4) {
		memcpy(&narrow, bytes, 4);
		return narrow;
	}
	memcpy(&wide, bytes, 8);
	return wide;
}

/* Is there a record of two words at `fp`? Else says why not. */
static bool record_at(struct walk *walk, uint64_t fp)
{
	const struct window *stack = walk->in->stack;
	uint64_t offset = fp - stack->va;

	if (fp % walk->word || fp < stack->va || offset >= REACH) {
		walk->out->end = UNWIND_BROKEN;
		return false;
	}
	if (fp < walk->low) {
		walk->out->end = UNWIND_LOOP;
		return false;
	}
	if (offset + 2 * walk->word > stack->len) {
		walk->out->end = stack->cut ? UNWIND_BYTES : UNWIND_BROKEN;
		if (stack->cut)
			walk->out->want = offset + 2 * walk->word;
		return false;
	}
	return true;
}

void unwind_frame_pointer(const struct unwind_input *in, struct frame *frames,
			  struct unwind_result *out)
{
	struct walk walk = {.in = in, .frames = frames, .out = out, .word = in->regs->word};
	uint64_t fp = in->regs->fp;

	frames[0] = (struct frame){.addr = in->regs->pc, .kind = FRAME_PC};
	*out = (struct unwind_result){.n = 1, .end = UNWIND_NO_STACK};
	if (!in->stack->len)
		return;
	walk.low = in->stack->va;
	while (record_at(&walk, fp)) {
		uint64_t next = load(&walk, fp), ret = load(&walk, fp + walk.word);

		out->end = UNWIND_OUTERMOST;
		if (!ret)
			return;
		if (out->n == in->max_frames) {
			out->end = UNWIND_FRAMES;
			return;
		}
		frames[out->n++] =
			(struct frame){.addr = ret, .kind = FRAME_RETURN, .trust = TRUST_GUESS};
		if (!next)
			return;
		walk.low = fp + 2 * walk.word;
		fp = next;
	}
}
