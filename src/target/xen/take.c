/* SPDX-License-Identifier: BSD-3-Clause */

/* One pause, and the copies of stacks: everything that a guest can feel. */

#include "target/xen/xen.h"

#include <errno.h>

#include "base/clock.h"
#include "target/xen/vcpu_regs.h"

/* How often letting the guest go is tried again. */
#define GO_AGAIN 3

/* The same, of those that its stack leads to. */
static bool copy_others(struct xen_target *xt, struct vcpu_sample *vcpu, const struct physmem *mem)
{
	bool whole = true;
	uint64_t gfn;

	for (unsigned i = 0; vcpu->leads_on && i < UNWIND_OTHERS; i++) {
		const struct other_stack *other = &vcpu->other[i];

		vcpu->others[i].len = 0;
		if (other->want &&
		    !window_copy_at(xt->base.info.arch, &vcpu->regs, other->va, other->want, mem,
				    other->buffer, &vcpu->others[i], &gfn))
			whole = whole && frames_refused(xt->frames, gfn);
	}
	return whole;
}

/*
 * A vCPU's own stack. Trails are for what finds frames and does no more: others
 * look at the time, or want to see each frame.
 */
static bool copy_stack(struct xen_target *xt, uint32_t id, struct vcpu_sample *vcpu,
		       const struct physmem *mem, uint64_t *gfn)
{
	const struct arch *arch = xt->base.info.arch;
	const struct regs *regs = &vcpu->regs;

	if (mem->frame != frames_find && mem->frame != frames_bring)
		return window_copy(arch, regs, vcpu->want, mem, vcpu->buffer, &vcpu->stack, gfn);
	if (xt->clearings != frames_clearings(xt->frames)) {
		for (uint32_t i = 0; i < xt->vcpus.n; i++)
			xt->trails[i].pages = 0;
		xt->clearings = frames_clearings(xt->frames);
	}
	return window_copy_again(arch, regs, vcpu->want, mem, &xt->trails[id], vcpu->buffer,
				 &vcpu->stack, gfn);
}

/*
 * Copies the stacks of one vCPU; false if a frame was missing that could
 * perhaps be mapped. One that cannot be is where the stack ends for us.
 */
static bool copy_vcpu(struct xen_target *xt, uint32_t id, struct vcpu_sample *vcpu,
		      const struct physmem *mem)
{
	uint64_t gfn;

	if (!copy_stack(xt, id, vcpu, mem, &gfn)) {
		vcpu->stack.cut = false;
		if (!frames_refused(xt->frames, gfn))
			return false;
	}
	return copy_others(xt, vcpu, mem);
}

bool xen_copy_stacks(struct xen_target *xt, struct sample *sample, const struct physmem *mem)
{
	const struct xen_vcpus *vcpus = &xt->vcpus;
	bool whole = true;

	xt->hurry.over = false;
	for (uint32_t i = 0; i < vcpus->read.n; i++) {
		const uint32_t id = vcpus->read.id[i];
		struct vcpu_sample *vcpu = &sample->vcpu[id];

		vcpu->online = vcpus->now[id].status == 0;
		if (!vcpu->online)
			continue;
		xen_regs_for_copy(xt->context, vcpus->now[id].context, &vcpu->regs);
		if (copy_vcpu(xt, id, vcpu, mem))
			continue;
		vcpu->hurried = xt->hurry.over;
		whole = whole && vcpu->hurried;
	}
	return whole;
}

/* Finds frames as long as there is time. */
static const void *find_in_time(void *ctx, uint64_t gfn)
{
	struct xen_target *xt = ctx;
	struct hurry *hurry = &xt->hurry;

	hurry->over = hurry->over || clock_now_ns() >= hurry->until_ns;
	return hurry->over ? NULL : frames_find(xt->frames, gfn);
}

/*
 * With a bound on its length, only some contexts are read in one pause, as
 * many as have lately fitted in; who is left out this time comes next time.
 */
static void fit_in(struct xen_target *xt, struct sample *sample)
{
	if (xt->vcpus.read.n > xt->fit)
		xen_vcpus_limit(&xt->vcpus, sample, xt->fit);
}

void xen_expect_fit(struct xen_target *xt, const struct sample *sample, uint64_t took_ns)
{
	const uint64_t n = xt->vcpus.online.n ? xt->vcpus.online.n : 1;
	const uint64_t fit = sample->max_pause_ns / 2 / (took_ns / n + 1);

	xt->fit = fit < 1 ? 1 : fit < n ? (uint32_t)fit : (uint32_t)n;
}

static void adapt_fit(struct xen_target *xt, const struct sample *sample)
{
	if (sample->paused_ns > sample->max_pause_ns)
		xt->fit = xt->fit > 1 ? xt->fit / 2 : 1;
	else if (sample->paused_ns < sample->max_pause_ns / 4 * 3 && xt->fit < xt->vcpus.n)
		xt->fit++;
}

/* What is done while the guest stands still; the contexts are here. */
static bool read_stopped(struct xen_target *xt, struct sample *sample, const struct physmem *mem,
			 uint64_t start_ns)
{
	const struct physmem in_time = {find_in_time, xt};

	/* The way out takes its time, too. */
	xt->hurry.until_ns = start_ns + sample->max_pause_ns / 4 * 3;
	return xen_copy_stacks(xt, sample, sample->max_pause_ns ? &in_time : mem);
}

/*
 * Nothing is known to refuse this but for a domain that is gone; if something
 * does, the guest must not stand still until we end.
 */
static int let_go(struct xen_target *xt)
{
	int rc = xen_if_go(xt->xi);

	for (unsigned again = 0; rc && rc != -ESRCH && again < GO_AGAIN; again++)
		rc = xen_if_go(xt->xi);
	return rc;
}

int xen_take(struct xen_target *xt, struct sample *sample, const struct physmem *mem, bool *whole)
{
	const struct xen_ids *read = &xt->vcpus.read;
	uint64_t start;
	int rc;

	if (sample->max_pause_ns)
		fit_in(xt, sample);
	start = clock_now_ns();
	guard_set(xt->guard_page, GUARD_MAYBE);
	rc = xen_if_batch(xt->xi,
			  &(struct xen_batch){.pause = true,
					      .contexts = read->id,
					      .n_contexts = read->n},
			  xt->vcpus.now);
	if (rc) {
		guard_set(xt->guard_page, GUARD_RUNNING);
		return rc;
	}
	guard_set(xt->guard_page, GUARD_STOPPED);
	*whole = read_stopped(xt, sample, mem, start);
	guard_set(xt->guard_page, GUARD_MAYBE);
	rc = let_go(xt);
	/* Should this ever fail, the guard tries once more when we end. */
	if (!rc || rc == -ESRCH)
		guard_set(xt->guard_page, GUARD_RUNNING);
	sample->paused_ns = clock_now_ns() - start;
	if (sample->max_pause_ns)
		adapt_fit(xt, sample);
	return rc;
}
