/* SPDX-License-Identifier: BSD-3-Clause */
#include "target/xen/xen.h"

#include <errno.h>

#include "base/clock.h"
#include "target/xen/vcpu_regs.h"

/*
 * A sample is read without a pause as long as no vCPU that has to be read is
 * on a CPU: what does not run does not change, and if its CPU time is still
 * the same afterwards, then it did not run meanwhile. Only a vCPU that runs
 * has to be stopped, with all the domain. So the states are asked for first,
 * by a call of their own: which also leaves the way into the hypervisor warm
 * for the one that pauses.
 */

/*
 * A pause is repeated when memory was missing, with that memory brought
 * meanwhile. A guest that keeps changing its tables could keep us busy, so
 * after this many takes what there is must do.
 */
#define MAX_TAKES 4

/* What is mapped before the first sample, around each stack pointer, bytes. */
#define AHEAD_BELOW (2 * FRAME_SIZE)
#define AHEAD_ABOVE (8 * FRAME_SIZE)

static int ask_states_again(struct xen_target *xt)
{
	struct xen_vcpus *vcpus = &xt->vcpus;
	const struct xen_batch batch = {.states = vcpus->read.id, .n_states = vcpus->read.n};

	return xen_if_batch(xt->xi, &batch, vcpus->now);
}

static int ask_late(struct xen_target *xt)
{
	const struct xen_ids *late = &xt->vcpus.late;
	const struct xen_batch batch = {.contexts = late->id, .n_contexts = late->n};

	return late->n ? xen_if_batch(xt->xi, &batch, xt->vcpus.now) : 0;
}

/* Reads states of all on-line vCPUs, and the contexts that will probably be needed. */
static int ask(struct xen_target *xt)
{
	const struct xen_vcpus *vcpus = &xt->vcpus;
	const struct xen_batch batch = {.states = vcpus->online.id,
					.n_states = vcpus->online.n,
					.contexts = vcpus->ahead.id,
					.n_contexts = vcpus->ahead.n};

	return xen_if_batch(xt->xi, &batch, vcpus->now);
}

/* Maps what the copies of the last take would have needed; the guest runs meanwhile. */
static void bring(struct xen_target *xt, struct sample *sample)
{
	const struct physmem mem = {frames_bring, xt->frames};

	(void)xen_copy_stacks(xt, sample, &mem);
}

static int read_paused(struct xen_target *xt, struct sample *sample)
{
	const struct physmem mem = {frames_find, xt->frames};
	bool whole = false;

	for (;;) {
		int rc = xen_take(xt, sample, &mem, &whole);

		if (rc || whole || sample->retakes + 1 == MAX_TAKES)
			return rc;
		sample->retakes++;
		sample->stolen_ns += sample->paused_ns;
		bring(xt, sample);
	}
}

/* *torn: a vCPU that has to be read ran while it was. */
static int read_waiting(struct xen_target *xt, struct sample *sample, bool *torn)
{
	const struct physmem mem = {frames_bring, xt->frames};
	int rc;

	if (!xt->vcpus.read.n)
		return 0;
	rc = ask_late(xt);
	if (rc)
		return rc;
	(void)xen_copy_stacks(xt, sample, &mem);
	rc = ask_states_again(xt);
	*torn = !rc && !xen_vcpus_still(&xt->vcpus);
	return rc;
}

static void map_around(struct xen_target *xt, const struct regs *regs)
{
	const struct physmem mem = {frames_bring, xt->frames};
	uint64_t va = (regs->sp & ~(uint64_t)(FRAME_SIZE - 1)) - AHEAD_BELOW;

	for (unsigned done = 0; done < AHEAD_BELOW + AHEAD_ABOVE; done += FRAME_SIZE) {
		struct xlate at = {0};

		if (xt->base.info.arch->translate(&regs->mmu, va + done, &mem, &at) == XLATE_OK)
			(void)frames_bring(xt->frames, at.addr >> FRAME_SHIFT);
	}
}

/*
 * Maps tables and stacks of all vCPUs before the guest is first stopped: the
 * first foreign mapping of a process can take seconds.
 */
static int map_ahead(struct xen_target *xt, const struct sample *sample)
{
	struct xen_vcpus *vcpus = &xt->vcpus;
	const struct xen_batch batch = {.contexts = vcpus->online.id,
					.n_contexts = vcpus->online.n};
	const uint64_t start_ns = clock_now_ns();
	int rc = xen_if_batch(xt->xi, &batch, vcpus->now);

	xen_expect_fit(xt, sample, clock_now_ns() - start_ns);
	for (uint32_t i = 0; !rc && i < vcpus->online.n; i++) {
		const struct xen_vcpu *vcpu = &vcpus->now[vcpus->online.id[i]];
		struct regs regs;

		if (vcpu->status)
			continue;
		xen_regs_for_copy(xt->context, vcpu->context, &regs);
		map_around(xt, &regs);
	}
	return rc;
}

/* `now_ns`: the time, if it was read just now; else 0. */
static int read_all(struct xen_target *xt, struct sample *sample, uint64_t now_ns)
{
	const bool always = xt->base.always_pause;
	bool torn = false;
	int rc;

	xen_vcpus_expect(&xt->vcpus, sample, always || xt->vcpus.running);
	sample->time_ns = now_ns ? now_ns : clock_now_ns();
	rc = ask(xt);
	if (rc)
		return rc;
	xen_vcpus_note(&xt->vcpus, sample);
	if (!always && !xt->vcpus.running)
		rc = read_waiting(xt, sample, &torn);
	if (!rc && (always || xt->vcpus.running || torn))
		rc = read_paused(xt, sample);
	return rc;
}

void xen_finish_registers(const struct xen_target *xt, struct sample *sample)
{
	const struct xen_vcpus *vcpus = &xt->vcpus;

	for (uint32_t i = 0; i < vcpus->read.n; i++) {
		const uint32_t id = vcpus->read.id[i];
		struct vcpu_sample *vcpu = &sample->vcpu[id];

		if (vcpu->online)
			xen_regs_full(xt->context, vcpus->now[id].context, &vcpu->regs);
	}
}

void xen_finish(struct xen_target *xt, struct sample *sample)
{
	xen_finish_registers(xt, sample);
	xen_vcpus_done(&xt->vcpus, sample);
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
	const uint64_t now_ns = xt->mapped_ahead ? sample->now_ns : 0;
	int rc = 0;

	sample->retakes = 0;
	sample->paused_ns = 0;
	sample->stolen_ns = 0;
	if (!xt->mapped_ahead)
		rc = map_ahead(xt, sample);
	xt->mapped_ahead = true;
	if (!rc)
		rc = read_all(xt, sample, now_ns);
	if (rc)
		return xen_failed(xt, rc);
	xen_finish(xt, sample);
	return NULL;
}
