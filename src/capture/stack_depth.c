/* SPDX-License-Identifier: BSD-3-Clause */
#include "capture/capture.h"

/* Bytes of stacks to be copied: copying is most of what uniprof adds to the pause. */

#define STRETCH	      64   /* samples; see adapt_want */
#define MARGIN	      128u /* bytes */
#define LEAST	      256u /* bytes, */
#define LEAST_SEARCH  512u /* and where a caller has to be searched for */
#define OTHER_STRETCH 4	   /* samples of another stack: few lead there */

/* Bytes that are copied at first of another stack that a stack leads to. */
#define OTHER_WANT 4096u

/* Another stack that so many stacks have not led to is not copied any more. */
#define PATIENCE 64

/* Samples that show how much of another stack's beginning is never read. */
#define FRONT_SAMPLES 16

/*
 * Bytes between two frames from which on they are left out of the copy. What is above them is then
 * another stack's, whose copy costs as much as some 1,000 bytes.
 */
#define GAP 2048u
/* The frames above, at most: they are walked each time, as the stack cache knows whole stacks only. */
#define GAP_FRAMES 16
/* Registers that a function saves below its return address, bytes. */
#define GAP_SAVED 128

void stack_depth_begin(struct stack_depth *depth, bool pieces)
{
	*depth = (struct stack_depth){.own = {.stretch = STRETCH, .least = LEAST},
				      .gap_patience = 1,
				      .pieces = pieces};
}

/* Asks again for the beginning of a stack that was left out; false: it is not that of this one. */
static bool ask_for_front(struct stack_front *front, struct other_stack *other, uint64_t elsewhere)
{
	const uint64_t below = other->va - elsewhere;

	if (!other->want || front->samples < FRONT_SAMPLES || below > OTHER_WANT)
		return false;
	other->va = elsewhere;
	other->want += (uint32_t)below;
	if (other->want > OTHER_STACK_CAP)
		other->want = OTHER_STACK_CAP;
	return true;
}

/*
 * Asks for another stack, in place of the one that was of no use for longest;
 * those that led here, `used`, stay. What turned out to be none (the frame
 * pointer was something else) is not asked for again while it is here.
 */
static bool ask_for_other(struct stack_depth *depth, struct vcpu_sample *vcpu, uint32_t used,
			  uint64_t elsewhere)
{
	unsigned best = UNWIND_OTHERS;

	for (unsigned i = 0; i < UNWIND_OTHERS; i++) {
		if (vcpu->request.other[i].want && vcpu->request.other[i].va == elsewhere)
			return false;
		if (ask_for_front(&depth->front[i], &vcpu->request.other[i], elsewhere))
			return true;
		if (!(used >> i & 1) &&
		    (best == UNWIND_OTHERS || depth->idle[i] > depth->idle[best]))
			best = i;
	}
	if (best == UNWIND_OTHERS)
		return false;
	vcpu->request.other[best].va = elsewhere;
	vcpu->request.other[best].want = OTHER_WANT;
	vcpu->request.leads_on |= (uint8_t)(1u << best);
	depth->idle[best] = 0;
	depth->other[best] = (struct reach){.stretch = OTHER_STRETCH};
	depth->front[best] = (struct stack_front){.unread = UINT32_MAX};
	return true;
}

static void drop_idle_others(struct stack_depth *depth, struct vcpu_sample *vcpu, uint32_t used)
{
	if (!vcpu->request.leads_on)
		return;
	for (unsigned i = 0; i < UNWIND_OTHERS; i++) {
		depth->idle[i] = used >> i & 1 ? 0 : depth->idle[i] + 1;
		if (depth->idle[i] < PATIENCE)
			continue;
		vcpu->request.other[i].want = 0;
		vcpu->others[i].len = 0;
		vcpu->request.leads_on &= (uint8_t) ~(1u << i);
	}
}

/* Asks for the red zone where it has been left out. */
static bool ask_for_red_zone(struct stack_depth *depth, struct vcpu_sample *vcpu)
{
	if (vcpu->request.red_zone)
		return false;
	depth->idle_red_zone = 0;
	vcpu->request.red_zone = true;
	return true;
}

static void drop_idle_red_zone(struct stack_depth *depth, struct vcpu_sample *vcpu, bool used)
{
	depth->idle_red_zone = used ? 0 : depth->idle_red_zone + 1;
	if (depth->idle_red_zone >= PATIENCE)
		vcpu->request.red_zone = false;
}

static uint32_t with_margin(const struct reach *reach, uint64_t used, uint32_t cap)
{
	uint64_t want = (used + used / 8 + MARGIN) & ~63ull;

	if (want < reach->least)
		want = reach->least;
	return want < cap ? (uint32_t)want : cap;
}

/*
 * Copies what stacks needed lately, and some more. Two stretches of samples
 * count, so that a depth that was reached once is forgotten. True: one is over.
 */
static bool adapt_want(struct reach *reach, uint32_t *want, uint32_t cap, uint64_t used)
{
	if (used > reach->now)
		reach->now = used;
	if (++reach->samples < reach->stretch)
		return false;
	*want = with_margin(reach, reach->now > reach->before ? reach->now : reach->before, cap);
	reach->before = reach->now;
	reach->now = 0;
	reach->samples = 0;
	return true;
}

/* Leaves out, once it is known, what is never read at the beginning of another stack. */
static void adapt_front(struct stack_front *front, struct other_stack *other, struct reach *reach,
			uint32_t from)
{
	if (front->samples == FRONT_SAMPLES)
		return;
	if (from < front->unread)
		front->unread = from;
	if (++front->samples < FRONT_SAMPLES || front->unread >= other->want)
		return;
	front->unread &= ~7u;
	other->va += front->unread;
	other->want -= front->unread;
	reach->now -= reach->now < front->unread ? reach->now : front->unread;
	reach->before -= reach->before < front->unread ? reach->before : front->unread;
}

/* A margin does not begin another page, as long as that was never needed. */
static uint32_t other_cap(const struct reach *reach, const struct stack_front *front, uint64_t va,
			  uint32_t used)
{
	const uint32_t room = FRAME_SIZE - (va & (FRAME_SIZE - 1));

	return front->outgrown || front->samples < FRONT_SAMPLES || used > room ||
			       reach->now > room || reach->before > room
		       ? OTHER_STACK_CAP
		       : room;
}

static void adapt_others(struct stack_depth *depth, struct vcpu_sample *vcpu,
			 const struct unwind_result *out)
{
	for (unsigned i = 0; vcpu->request.leads_on && i < UNWIND_OTHERS; i++) {
		struct other_stack *other = &vcpu->request.other[i];
		const uint32_t used = out->others_used[i];

		if (!(out->others >> i & 1))
			continue;
		(void)adapt_want(&depth->other[i], &other->want,
				 other_cap(&depth->other[i], &depth->front[i], other->va, used),
				 used);
		adapt_front(&depth->front[i], other, &depth->other[i], out->others_from[i]);
	}
}

/* Asks for a stack as a whole: of one that is copied in two pieces, a third was needed. */
static bool ask_for_more(struct stack_depth *depth, struct vcpu_sample *vcpu, uint32_t cap,
			 uint64_t want)
{
	if (!vcpu->stack.cut || vcpu->request.want >= cap)
		return false;
	if (depth->apart && depth->gap_patience < UINT32_MAX / 2) {
		depth->gap_patience *= 2;
		depth->gap_wait = depth->gap_patience;
	}
	depth->apart = false;
	if (want < 4ull * vcpu->request.want)
		want = 4ull * vcpu->request.want;
	vcpu->request.want = want < cap ? (uint32_t)want : cap;
	return true;
}

/* Asks for all of a stack that the vCPU's own leads to. */
static bool ask_for_more_of(struct stack_depth *depth, struct vcpu_sample *vcpu,
			    const struct window *window)
{
	struct other_stack *other = &vcpu->request.other[window - vcpu->others];

	depth->front[window - vcpu->others].outgrown = true;
	if (!window->cut || other->want >= OTHER_STACK_CAP)
		return false;
	other->want = OTHER_STACK_CAP;
	return true;
}

/* Memory so far above the end of the copy is another stack's: no frame is that large. */
#define OTHER_GAP 65536u

/* True if the bytes that the walk lacked are too far above to be copied with all that is below them. */
static bool lies_apart(const struct vcpu_sample *vcpu, uint32_t cap,
		       const struct unwind_result *out)
{
	return out->want > cap &&
	       out->beyond - (vcpu->stack.va + vcpu->stack.len) - OTHER_GAP < UINT32_MAX;
}

/* Asks for what the walk lacked; false if there is no more of it. Out of line: few samples do. */
static __attribute__((noinline, cold)) bool ask(struct stack_depth *depth, struct vcpu_sample *vcpu,
						uint32_t cap, const struct unwind_result *out)
{
	if (out->elsewhere)
		return ask_for_other(depth, vcpu, out->others, out->elsewhere);
	if (out->red_zone && !vcpu->stack.below)
		return ask_for_red_zone(depth, vcpu);
	if (out->short_of)
		return ask_for_more_of(depth, vcpu, out->short_of);
	if (lies_apart(vcpu, cap, out))
		return ask_for_other(depth, vcpu, out->others, out->beyond);
	return ask_for_more(depth, vcpu, cap, out->want);
}

/* A search has ended with the window: more of the stack is copied from now on, and of this one, too. */
static __attribute__((noinline, cold)) bool ask_for_search(struct stack_depth *depth,
							   struct vcpu_sample *vcpu, uint32_t cap)
{
	const uint32_t least = LEAST_SEARCH < cap ? LEAST_SEARCH : cap;

	depth->own.least = LEAST_SEARCH;
	if (vcpu->request.want < least)
		vcpu->request.want = least;
	return vcpu->stack.cut && vcpu->stack.len < least;
}

/*
 * At the end of a stretch: copies a stack in two pieces, if the same large gap was in it a stretch
 * before. One that did not stay is waited for ever longer, as the stack is then copied twice.
 */
static __attribute__((noinline, cold)) void leave_out_gap(struct stack_depth *depth,
							  struct vcpu_sample *vcpu, uint32_t cap,
							  const struct unwind_result *out)
{
	struct stack_gap gap;

	if (!depth->pieces || vcpu->request.want < GAP || !unwinder_gap(out, GAP_FRAMES, &gap) ||
	    gap.to - gap.from < GAP)
		return;
	if (gap.to != depth->gap || depth->gap_wait) {
		depth->gap = gap.to;
		depth->gap_wait -= depth->gap_wait > 0;
		return;
	}
	if (!ask_for_other(depth, vcpu, out->others, gap.to - GAP_SAVED))
		return;
	depth->apart = true;
	depth->own.before = gap.from - vcpu->stack.va;
	vcpu->request.want = with_margin(&depth->own, depth->own.before, cap);
}

void stack_depth_adapt(struct stack_depth *depth, struct vcpu_sample *vcpu, uint32_t cap,
		       const struct unwind_result *out)
{
	vcpu->request.again = false;
	drop_idle_others(depth, vcpu, out->others);
	drop_idle_red_zone(depth, vcpu, out->red_zone);
	if (out->end == UNWIND_BYTES && !vcpu->hurried)
		vcpu->request.again = ask(depth, vcpu, cap, out);
	if (out->searched && depth->own.least < LEAST_SEARCH)
		vcpu->request.again |= ask_for_search(depth, vcpu, cap) && !vcpu->hurried;
	if (adapt_want(&depth->own, &vcpu->request.want, cap,
		       out->short_of || lies_apart(vcpu, cap, out) || out->used > out->want
			       ? out->used
			       : out->want))
		leave_out_gap(depth, vcpu, cap, out);
	adapt_others(depth, vcpu, out);
}
