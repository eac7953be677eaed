/* SPDX-License-Identifier: BSD-3-Clause */
#include "target/xen/xen.h"

#include <errno.h>

#include "base/clock.h"

/* One pause, and the copies of stacks: everything that a guest can feel. */

/* Attempts to unpause. */
#define GO_AGAIN 3

/* Copies a stack that the vCPU's own one leads to; false: as copy_vcpu. */
static bool copy_other(struct xen_target *xt, struct window_copy *copy,
		       const struct other_stack *other, struct window *out)
{
	copy->buffer = other->buffer;
	copy->out = out;
	return window_copy_at(copy, other->va, other->want) ||
	       xen_frames_refused(xt->frames, copy->gfn);
}

static bool copy_others(struct xen_target *xt, struct vcpu_sample *vcpu, struct window_copy *copy)
{
	bool whole = true;

	for (unsigned left = vcpu->request.leads_on; left; left &= left - 1) {
		const int i = __builtin_ctz(left);

		whole &= copy_other(xt, copy, &vcpu->request.other[i], &vcpu->others[i]);
	}
	return whole;
}

static struct window_copy copy_of(struct xen_target *xt, struct vcpu_sample *vcpu,
				  const struct physmem *mem)
{
	return (struct window_copy){.arch = xt->base.info.arch,
				    .regs = &vcpu->regs,
				    .mem = mem,
				    .trails = xen_frames_trails(xt->frames, mem),
				    .buffer = vcpu->buffer,
				    .out = &vcpu->stack};
}

/* The view that a vCPU has of memory. */
struct frames_view {
	const struct arch *arch;
	const struct regs *regs;
	const struct physmem *mem;
	bool lacks; /* something could not be read */
};

static size_t read_view(void *ctx, uint64_t va, void *buf, size_t len)
{
	struct frames_view *view = ctx;
	const size_t got = window_read(view->arch, &view->regs->mmu, view->mem, va, buf, len);

	view->lacks |= got < len;
	return got;
}

/* Copies frames of an interpreter, where the program is known to run one. Stays by itself: other samples do not pay for it. */
static __attribute__((noinline)) void copy_frames(struct xen_target *xt, struct vcpu_sample *vcpu,
						  const struct physmem *mem,
						  const struct frames_request *frames)
{
	struct frames_view view = {xt->base.info.arch, &vcpu->regs, mem, false};
	const struct guest_memory program = {&view, read_view, NULL};

	frames->copy(frames->ctx, vcpu, &program);
	vcpu->runtime->lacks = view.lacks;
}

/*
 * Copies the stacks of one vCPU; false if a frame was missing that could
 * perhaps be mapped. One that cannot be is where the stack ends for us.
 */
static bool copy_vcpu(struct xen_target *xt, struct vcpu_sample *vcpu, const void *context,
		      const struct physmem *mem, const struct sample_request *request)
{
	const struct thread_request *thread = request->thread;
	struct window_copy copy = copy_of(xt, vcpu, mem);

	if (!window_copy(&copy, vcpu->request.want)) {
		vcpu->stack.cut = vcpu->stack.len == vcpu->request.want;
		if (!xen_frames_refused(xt->frames, copy.gfn)) {
			vcpu->thread.there = false;
			return false;
		}
	}
	if (thread) {
		xen_regs_own_data(xt->context, context, &vcpu->regs);
		vcpu->thread.missing = !window_copy_thread(&copy, thread, &vcpu->thread);
		if (request->frames)
			copy_frames(xt, vcpu, mem, request->frames);
	}
	return copy_others(xt, vcpu, &copy);
}

/*
 * Copies the stacks of the vCPUs in xt->vcpus.read, whose contexts are here;
 * false if a frame was missing.
 */
static bool copy_stacks(struct xen_target *xt, struct sample *sample, const struct physmem *mem)
{
	const struct xen_vcpus *vcpus = &xt->vcpus;
	bool whole = true;

	xt->hurried = false;
	for (uint32_t i = 0; i < vcpus->read.n; i++) {
		const uint32_t id = vcpus->read.id[i];
		struct vcpu_sample *vcpu = &sample->vcpu[id];

		vcpu->online = vcpus->now[id].status == 0;
		if (!vcpu->online)
			continue;
		xen_regs_for_copy(xt->context, vcpus->now[id].context, &vcpu->regs);
		if (copy_vcpu(xt, vcpu, vcpus->now[id].context, mem, &sample->request))
			continue;
		vcpu->hurried = xt->hurried;
		whole = whole && vcpu->hurried;
	}
	return whole;
}

/* Maps frames as long as there is time. */
static const void *find_in_time(void *ctx, uint64_t gfn)
{
	struct xen_target *xt = ctx;

	xt->hurried = xt->hurried || clock_now_ns() >= xt->hurry_until_ns;
	return xt->hurried ? NULL : xen_frames_find(xt->frames, gfn);
}

/* Chooses xt->fit before the first pause; `took_ns`: time that all contexts took without one. */
static void expect_fit(struct xen_target *xt, const struct sample *sample, uint64_t took_ns)
{
	const uint64_t n = xt->vcpus.online.n ? xt->vcpus.online.n : 1;
	const uint64_t fit = sample->request.max_pause_ns / 2 / (took_ns / n + 1);

	xt->fit = fit < 1 ? 1 : fit < n ? (uint32_t)fit : (uint32_t)n;
}

static void adapt_fit(struct xen_target *xt, const struct sample *sample)
{
	if (sample->paused_ns > sample->request.max_pause_ns)
		xt->fit = xt->fit > 1 ? xt->fit / 2 : 1;
	else if (sample->paused_ns < sample->request.max_pause_ns / 4 * 3 && xt->fit < xt->vcpus.n)
		xt->fit++;
}

/* Runs while the guest is paused; the contexts are here. */
static bool read_stopped(struct xen_target *xt, struct sample *sample, const struct physmem *mem,
			 uint64_t start_ns)
{
	const struct physmem in_time = {.frame = find_in_time, .ctx = xt};

	if (!sample->request.max_pause_ns)
		return copy_stacks(xt, sample, mem);
	/* Leaves time for the unpause. */
	xt->hurry_until_ns = start_ns + sample->request.max_pause_ns / 4 * 3;
	return copy_stacks(xt, sample, &in_time);
}

/* Unpauses the domain; tries once more at once if Xen refuses it. Further tries are in no hurry. */
static int let_go(struct xen_target *xt)
{
	int rc;

	guard_set(xt->guard_page, GUARD_MAYBE);
	rc = xen_if_go(xt->xi);
	for (unsigned again = 0; xen_if_state(xt->xi)->holds && again < GO_AGAIN; again++)
		rc = xen_if_go(xt->xi);
	if (!xen_if_state(xt->xi)->holds) {
		guard_set(xt->guard_page, GUARD_RUNNING);
		return rc;
	}
	guard_leave(xt->guard);
	xt->guard = NULL;
	return rc;
}

static int ask(struct xen_target *xt, struct xen_batch batch)
{
	return xen_if_batch(xt->xi, &batch, xt->vcpus.now);
}

/*
 * Pauses the domain, and asks for contexts; the guard knows at every moment.
 * False if it is not paused by us now. *rc is as of xen_if_batch.
 */
static bool pause_and_ask(struct xen_target *xt, const struct xen_ids *contexts, int *rc)
{
	bool holds;

	guard_set(xt->guard_page, GUARD_MAYBE);
	*rc = ask(xt, (struct xen_batch){.pause = true, .contexts = *contexts});
	holds = xen_if_state(xt->xi)->holds;
	guard_set(xt->guard_page, holds ? GUARD_STOPPED : GUARD_RUNNING);
	return holds;
}

/*
 * Negative errno: it is not sure that Xen lets us undo a pause; -EAGAIN: yet, for
 * somebody pauses the domain. Only an unpause shows whether Xen allows one, and a
 * successful one undoes a pause: call this only when nobody pauses the domain.
 */
static int try_rights(struct xen_target *xt)
{
	struct xen_domain now;
	int rc = xen_if_domain(xt->xi, xt->domain.domid, &now);

	if (rc || now.paused)
		return rc ?: -EAGAIN;
	rc = xen_if_go(xt->xi);
	if (!rc) {
		/*
		 * Somebody has paused it meanwhile: another profiler, for no
		 * longer than a sample.
		 */
		rc = ask(xt, (struct xen_batch){.pause = true});
		xt->may_pause = !rc;
		return rc;
	}
	if (rc != -EINVAL)
		return rc;
	if (pause_and_ask(xt, &(struct xen_ids){0}, &rc))
		rc = let_go(xt) ?: rc;
	xt->may_pause = !rc;
	return rc;
}

/* Maps a frame that is there: the table that a vCPU's addresses are translated by, if its context is known. */
static void try_memory(struct xen_target *xt)
{
	const struct xen_vcpu *vcpu = &xt->vcpus.now[xen_first_online(xt)];
	struct regs regs = {0};

	if (vcpu->status || !vcpu->context)
		return;
	xen_regs_for_copy(xt->context, vcpu->context, &regs);
	(void)xen_frames_bring(xt->frames, regs.mmu.root >> FRAME_SHIFT);
}

struct error *xen_refusal(const struct xen_target *xt)
{
	return xen_if_refused(xt->xi, xt->domain.domid) ? xen_if_refusal(xt->xi, xt->domain.domid)
							: NULL;
}

/*
 * Without a policy one domain has all rights, and the calls before have shown that this is it. Under one,
 * the rights to pause are tried last, for that may take a pause.
 */
struct error *xen_check_rights(struct xen_target *xt)
{
	xt->may_pause = !xen_if_state(xt->xi)->has_policy;
	if (xt->may_pause)
		return xen_refusal(xt);
	try_memory(xt);
	TRY(xen_refusal(xt));
	(void)try_rights(xt);
	return xt->guard ? xen_refusal(xt) : xen_undo_refused(&xt->undo, -EACCES);
}

int xen_read_paused(struct xen_target *xt, struct sample *sample, const struct physmem *mem,
		    bool *whole)
{
	uint64_t start;
	int rc;

	if (!xt->may_pause) {
		rc = try_rights(xt);
		if (rc)
			return rc;
	}
	/*
	 * With a bound on its length, only some contexts are read in one pause, as many
	 * as have lately fitted in; vCPUs that are left out this time come next time.
	 */
	if (sample->request.max_pause_ns && xt->vcpus.read.n > xt->fit)
		xen_vcpus_limit(&xt->vcpus, sample, xt->fit);
	start = clock_now_ns();
	if (!pause_and_ask(xt, &xt->vcpus.read, &rc))
		return rc;
	if (!rc)
		*whole = read_stopped(xt, sample, mem, start);
	rc = let_go(xt) ?: rc;
	sample->paused_ns = clock_now_ns() - start;
	if (sample->request.max_pause_ns)
		adapt_fit(xt, sample);
	return rc;
}

/*
 * A sample is read without a pause as long as no vCPU that has to be read is
 * on a CPU: what does not run does not change, and if its CPU time is still
 * the same afterwards, then it did not run meanwhile. Only a vCPU that runs
 * has to be stopped, with all the domain. So the states are asked for first,
 * by a call of their own: which also leaves the way into the hypervisor warm
 * for the one that pauses.
 */

/*
 * A pause is repeated when memory was missing, after mapping it. A guest that
 * keeps changing its tables could keep us busy, so after this many tries the
 * sample is used as it is.
 */
#define MAX_TRIES 4

/* Memory mapped before the first sample, around each stack pointer, bytes. */
#define PREMAP_BELOW (2 * FRAME_SIZE)
#define PREMAP_ABOVE (8 * FRAME_SIZE)

/* Maps the memory that the copies of the last try lacked; the guest runs meanwhile. */
static void bring(struct xen_target *xt, struct sample *sample)
{
	const struct physmem mem = {.frame = xen_frames_bring, .ctx = xt->frames};

	(void)copy_stacks(xt, sample, &mem);
}

/* Maps what frames of an interpreter lacked: the stack stays the C stack this time. */
static void bring_frames(struct xen_target *xt, struct sample *sample, struct vcpu_sample *vcpu,
			 const struct physmem *mem)
{
	if (!sample->request.frames || !vcpu->runtime->lacks)
		return;
	copy_frames(xt, vcpu, mem, sample->request.frames);
	vcpu->runtime->there = vcpu->runtime->lacks = false;
}

/*
 * A thread whose memory was not at hand has no name in this sample, and an interpreter no functions: to
 * pause the guest once more would cost it more than these are worth. The memory is mapped for the next one.
 */
static void bring_threads(struct xen_target *xt, struct sample *sample)
{
	const struct physmem mem = {.frame = xen_frames_bring, .ctx = xt->frames};

	for (uint32_t i = 0; i < xt->vcpus.read.n; i++) {
		struct vcpu_sample *vcpu = &sample->vcpu[xt->vcpus.read.id[i]];
		struct window_copy copy;

		if (!vcpu->online)
			continue;
		bring_frames(xt, sample, vcpu, &mem);
		if (!vcpu->thread.missing)
			continue;
		copy = copy_of(xt, vcpu, &mem);
		(void)window_copy_thread(&copy, sample->request.thread, &vcpu->thread);
		vcpu->thread.there = false;
	}
}

static int retry_paused(struct xen_target *xt, struct sample *sample)
{
	const struct physmem mem = {.frame = xen_frames_find, .ctx = xt->frames};
	bool whole = false;

	for (;;) {
		int rc = xen_read_paused(xt, sample, &mem, &whole);

		if (rc || whole || sample->retakes + 1 == MAX_TRIES)
			return rc;
		sample->retakes++;
		sample->stolen_ns += sample->paused_ns;
		bring(xt, sample);
	}
}

/* *torn: a vCPU that has to be read ran meanwhile. */
static int read_waiting(struct xen_target *xt, struct sample *sample, bool *torn)
{
	const struct physmem mem = {.frame = xen_frames_bring, .ctx = xt->frames};
	int rc;

	if (!xt->vcpus.read.n)
		return 0;
	rc = xt->vcpus.late.n ? ask(xt, (struct xen_batch){.contexts = xt->vcpus.late}) : 0;
	if (rc)
		return rc;
	(void)copy_stacks(xt, sample, &mem);
	rc = ask(xt, (struct xen_batch){.states = xt->vcpus.read});
	*torn = !rc && !xen_vcpus_still(&xt->vcpus);
	return rc;
}

static void premap_stack(struct xen_target *xt, const struct regs *regs)
{
	const struct physmem mem = {.frame = xen_frames_bring, .ctx = xt->frames};
	uint64_t va = (regs->sp & ~(uint64_t)(FRAME_SIZE - 1)) - PREMAP_BELOW;

	for (unsigned done = 0; done < PREMAP_BELOW + PREMAP_ABOVE; done += FRAME_SIZE) {
		struct xlate at = {0};

		if (xt->base.info.arch->translate(&regs->mmu, va + done, &mem, &at) == XLATE_OK)
			(void)xen_frames_bring(xt->frames, at.addr >> FRAME_SHIFT);
	}
}

/*
 * Maps tables and stacks of all vCPUs before the guest is first stopped: the
 * first foreign mapping of a process can take seconds.
 */
static int premap(struct xen_target *xt, const struct sample *sample)
{
	struct xen_vcpus *vcpus = &xt->vcpus;
	const uint64_t start_ns = clock_now_ns();
	int rc = ask(xt, (struct xen_batch){.contexts = vcpus->online});

	expect_fit(xt, sample, clock_now_ns() - start_ns);
	for (uint32_t i = 0; !rc && i < vcpus->online.n; i++) {
		const struct xen_vcpu *vcpu = &vcpus->now[vcpus->online.id[i]];
		struct regs regs;

		if (vcpu->status)
			continue;
		xen_regs_for_copy(xt->context, vcpu->context, &regs);
		premap_stack(xt, &regs);
	}
	return rc;
}

/* `now_ns`: the time, if the clock was just read; else 0. */
static int read_all(struct xen_target *xt, struct sample *sample, uint64_t now_ns)
{
	const bool always = xt->base.always_pause;
	bool torn = false;
	int rc;

	xen_vcpus_expect(&xt->vcpus, sample, always || xt->vcpus.running);
	sample->time_ns = now_ns ? now_ns : clock_now_ns();
	/* States of all on-line vCPUs, and the contexts that will probably be needed. */
	rc = ask(xt, (struct xen_batch){.states = xt->vcpus.online, .contexts = xt->vcpus.early});
	if (rc)
		return rc;
	xen_vcpus_note(&xt->vcpus, sample);
	if (!always && !xt->vcpus.running)
		rc = read_waiting(xt, sample, &torn);
	if (!rc && (always || xt->vcpus.running || torn)) {
		rc = retry_paused(xt, sample);
		if (!rc && sample->request.thread)
			bring_threads(xt, sample);
	}
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

/*
 * Refused questions that are not about this sample count, too: after a refusal
 * nothing is profiled.
 */
static bool is_refused(const struct xen_target *xt)
{
	return xen_if_refused(xt->xi, xt->domain.domid);
}

struct error *xen_failed(const struct xen_target *xt, int rc)
{
	if (!xt->guard)
		return xen_undo_refused(&xt->undo, rc);
	TRY(xen_refusal(xt));
	if (rc == -ESRCH)
		return error_new(ERR_ENDED, "domain %u is gone", xt->domain.domid);
	return error_errno(ERR_FAILED, -rc, "cannot sample domain %u", xt->domain.domid);
}

struct error *xen_sample(struct target *target, struct sample *sample)
{
	struct xen_target *xt = (struct xen_target *)target;
	const uint64_t now_ns = xt->premapped ? sample->request.now_ns : 0;
	int rc = 0;

	sample->retakes = 0;
	sample->paused_ns = 0;
	sample->stolen_ns = 0;
	if (!xt->guard)
		return xen_failed(xt, -EBUSY);
	if (!xt->premapped)
		rc = premap(xt, sample);
	xt->premapped = true;
	if (sample->request.thread)
		xen_find_own(xt, sample);
	if (!rc && !is_refused(xt))
		rc = read_all(xt, sample, now_ns);
	if (rc || is_refused(xt))
		return xen_failed(xt, rc);
	xen_finish_registers(xt, sample);
	xen_vcpus_done(&xt->vcpus, sample);
	xen_frames_tick(xt->frames);
	return NULL;
}
