/* SPDX-License-Identifier: BSD-3-Clause */
#include "target/xen/xen.h"

#include <errno.h>
#include <string.h>

#include "base/clock.h"
#include "target/window.h"
#include "target/xen/vcpu_regs.h"

/*
 * A sample is taken again when memory was missing, with that memory brought
 * meanwhile. A guest that keeps changing its tables could keep us busy, so
 * after this many takes what there is must do.
 */
#define MAX_TAKES 4

/*
 * Copies the stacks of one vCPU; false if a frame was missing that could
 * perhaps be mapped. One that cannot be is where the stack ends for us.
 */
static bool copy_vcpu(struct xen_target *xt, struct vcpu_sample *vcpu, const struct physmem *mem)
{
	const struct arch *arch = xt->base.info.arch;
	const struct regs *regs = &vcpu->regs;
	uint64_t gfn;

	vcpu->other.len = 0;
	if (!window_copy(arch, regs, vcpu->want, mem, vcpu->buffer, &vcpu->stack, &gfn)) {
		vcpu->stack.cut = false;
		if (!frames_refused(xt->frames, gfn))
			return false;
	}
	if (!vcpu->other_want)
		return true;
	return window_copy_at(arch, regs, vcpu->other_va, vcpu->other_want, mem, vcpu->other_buffer,
			      &vcpu->other, &gfn) ||
	       frames_refused(xt->frames, gfn);
}

static bool copy_stacks(struct xen_target *xt, struct sample *sample, const struct physmem *mem)
{
	bool whole = true;

	for (uint32_t i = 0; i < sample->vcpus; i++) {
		struct vcpu_sample *vcpu = &sample->vcpu[i];

		vcpu->online = xt->vcpus[i].status == 0;
		if (!vcpu->online)
			continue;
		xen_regs_for_copy(xt->context, xt->vcpus[i].context, &vcpu->regs);
		whole &= copy_vcpu(xt, vcpu, mem);
	}
	return whole;
}

/* One take: everything between stop and go is this and what it calls. */
int xen_take(struct xen_target *xt, struct sample *sample, const struct physmem *mem, bool *whole)
{
	uint64_t start = clock_now_ns();
	int rc;

	guard_set(xt->guard_page, GUARD_MAYBE);
	rc = xen_if_stop(xt->xi, xt->vcpus);
	if (rc) {
		guard_set(xt->guard_page, GUARD_RUNNING);
		return rc;
	}
	guard_set(xt->guard_page, GUARD_STOPPED);
	*whole = copy_stacks(xt, sample, mem);
	guard_set(xt->guard_page, GUARD_MAYBE);
	rc = xen_if_go(xt->xi);
	/* Should this ever fail, the guard tries once more when we end. */
	if (!rc || rc == -ESRCH)
		guard_set(xt->guard_page, GUARD_RUNNING);
	sample->time_ns = start;
	sample->paused_ns = clock_now_ns() - start;
	return rc;
}

/* Maps what the copies of the last take would have needed; the guest runs meanwhile. */
static void bring(struct xen_target *xt, struct sample *sample)
{
	const struct physmem mem = {frames_bring, xt->frames};

	for (uint32_t i = 0; i < sample->vcpus; i++)
		if (sample->vcpu[i].online)
			(void)copy_vcpu(xt, &sample->vcpu[i], &mem);
}

/*
 * A vCPU that wants to run and has run since the last sample counts as
 * running, even if it is not on a CPU at this very moment: on a machine with
 * one CPU it is we who have just taken its place.
 */
static enum vcpu_state state_of(const struct xen_target *xt, uint32_t i)
{
	const struct xen_vcpu *vcpu = &xt->vcpus[i];

	if (vcpu->running)
		return VCPU_RUNNING;
	if (vcpu->blocked)
		return VCPU_BLOCKED;
	return !xt->first && vcpu->cpu_ns != xt->cpu_ns[i] ? VCPU_RUNNING : VCPU_RUNNABLE;
}

void xen_finish(struct xen_target *xt, struct sample *sample)
{
	for (uint32_t i = 0; i < sample->vcpus; i++) {
		struct vcpu_sample *vcpu = &sample->vcpu[i];

		vcpu->state = state_of(xt, i);
		xt->cpu_ns[i] = xt->vcpus[i].cpu_ns;
		if (vcpu->online)
			xen_regs_full(xt->context, xt->vcpus[i].context, &vcpu->regs);
	}
	xt->first = false;
	frames_tick(xt->frames);
}

struct error *xen_failed(const struct xen_target *xt, int rc)
{
	if (rc == -ESRCH)
		return error_new(ERR_ENDED, "domain %u is gone", xt->domain.domid);
	return error_errno(ERR_FAILED, -rc, "cannot sample domain %u", xt->domain.domid);
}

struct error *xen_sample(struct target *target, struct sample *sample)
{
	struct xen_target *xt = (struct xen_target *)target;
	const struct physmem mem = {frames_find, xt->frames};
	bool whole = false;

	sample->retakes = 0;
	sample->stolen_ns = 0;
	for (;;) {
		int rc = xen_take(xt, sample, &mem, &whole);

		if (rc)
			return xen_failed(xt, rc);
		if (whole || sample->retakes + 1 == MAX_TAKES)
			break;
		sample->retakes++;
		sample->stolen_ns += sample->paused_ns;
		bring(xt, sample);
	}
	xen_finish(xt, sample);
	return NULL;
}
