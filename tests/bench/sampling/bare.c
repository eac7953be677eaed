/* SPDX-License-Identifier: BSD-3-Clause */
#define __XEN_TOOLS__ 1
#include "bare.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include <xen/domctl.h>

#include "base/clock.h"
#include "target/xen/xen.h"
#include "way.h"

#define CONTEXT_BYTES ((sizeof(vcpu_guest_context_t) + 63) & ~63ul)

/* Calls 0 to vcpus: the pause and the contexts; the one behind them: the unpause; then the states. */
struct bare {
	xencall_handle *call;
	uint32_t vcpus;
	multicall_entry_t *batch;  /* [vcpus + 1]: the pause and the contexts */
	multicall_entry_t *states; /* [vcpus] */
	struct xen_domctl *ops;
	uint8_t *contexts;
};

static void fill(struct xen_domctl *op, uint32_t cmd, uint32_t domid)
{
	memset(op, 0, sizeof(*op));
	op->interface_version = XEN_DOMCTL_INTERFACE_VERSION;
	op->cmd = cmd;
	op->domain = (domid_t)domid;
}

static void fill_context(struct bare *bare, uint32_t domid, uint32_t vcpu, bool record)
{
	struct xen_domctl *op = &bare->ops[1 + vcpu];
	uint8_t *context = bare->contexts + vcpu * CONTEXT_BYTES;

	if (record && xen_cpu_record) {
		fill(op, XEN_DOMCTL_gethvmcontext_partial, domid);
		op->u.hvmcontext_partial.type = xen_cpu_record;
		op->u.hvmcontext_partial.instance = vcpu;
		set_xen_guest_handle_raw(op->u.hvmcontext_partial.buffer, context);
	} else {
		fill(op, XEN_DOMCTL_getvcpucontext, domid);
		op->u.vcpucontext.vcpu = vcpu;
		set_xen_guest_handle_raw(op->u.vcpucontext.ctxt, (vcpu_guest_context_t *)context);
	}
}

static void prepare(struct bare *bare, const struct bench_guest *guest, bool record)
{
	const uint32_t n = guest->vcpus;

	memset(bare->batch, 0, (n + 1) * sizeof(*bare->batch));
	memset(bare->states, 0, n * sizeof(*bare->states));
	fill(&bare->ops[0], XEN_DOMCTL_pausedomain, guest->domid);
	fill(&bare->ops[n + 1], XEN_DOMCTL_unpausedomain, guest->domid);
	for (uint32_t i = 0; i < n; i++) {
		fill_context(bare, guest->domid, i, record);
		fill(&bare->ops[n + 2 + i], XEN_DOMCTL_getvcpuinfo, guest->domid);
		bare->ops[n + 2 + i].u.getvcpuinfo.vcpu = i;
		bare->states[i].op = __HYPERVISOR_domctl;
		bare->states[i].args[0] = (unsigned long)&bare->ops[n + 2 + i];
	}
	for (uint32_t i = 0; i <= n; i++) {
		bare->batch[i].op = __HYPERVISOR_domctl;
		bare->batch[i].args[0] = (unsigned long)&bare->ops[i];
	}
}

struct error *bare_open(const struct bench_guest *guest, bool record, struct bare **out)
{
	struct bare *bare = calloc(1, sizeof(*bare));
	const uint32_t n = guest->vcpus;

	if (!bare)
		return error_no_memory();
	*out = bare;
	bare->vcpus = n;
	bare->call = xencall_open(NULL, XENCALL_OPENFLAG_NON_REENTRANT);
	if (!bare->call)
		return error_errno(ERR_DENIED, errno, "cannot open Xen's hypercall device");
	bare->batch = xencall_alloc_buffer(bare->call, (n + 1) * sizeof(*bare->batch));
	bare->states = xencall_alloc_buffer(bare->call, n * sizeof(*bare->states));
	bare->ops = xencall_alloc_buffer(bare->call, 2 * (n + 1) * sizeof(*bare->ops));
	bare->contexts = xencall_alloc_buffer(bare->call, n * CONTEXT_BYTES);
	if (!bare->batch || !bare->states || !bare->ops || !bare->contexts)
		return error_no_memory();
	prepare(bare, guest, record);
	return NULL;
}

void bare_close(void *state)
{
	struct bare *bare = state;

	if (!bare)
		return;
	if (bare->batch)
		xencall_free_buffer(bare->call, bare->batch);
	if (bare->states)
		xencall_free_buffer(bare->call, bare->states);
	if (bare->ops)
		xencall_free_buffer(bare->call, bare->ops);
	if (bare->contexts)
		xencall_free_buffer(bare->call, bare->contexts);
	if (bare->call)
		xencall_close(bare->call);
	free(bare);
}

static bool domctl(struct bare *bare, uint32_t i)
{
	/* The hypervisor wrote here how many bytes there were. */
	if (bare->ops[i].cmd == XEN_DOMCTL_gethvmcontext_partial)
		bare->ops[i].u.hvmcontext_partial.bufsz = CONTEXT_BYTES;
	return xencall1(bare->call, __HYPERVISOR_domctl, (unsigned long)&bare->ops[i]) == 0;
}

bool bare_pause(struct bare *bare)
{
	return domctl(bare, 0);
}

const vcpu_guest_context_t *bare_context(struct bare *bare, uint32_t vcpu)
{
	return domctl(bare, 1 + vcpu) ? (const void *)(bare->contexts + vcpu * CONTEXT_BYTES)
				      : NULL;
}

bool bare_unpause(struct bare *bare)
{
	return domctl(bare, bare->vcpus + 1);
}

static bool multicall(struct bare *bare, const multicall_entry_t *batch, uint32_t n)
{
	if (xencall2(bare->call, __HYPERVISOR_multicall, (unsigned long)batch, n) < 0)
		return false;
	for (uint32_t i = 0; i < n; i++)
		if (batch[i].result)
			return false;
	return true;
}

static bool pause_and_contexts(struct bare *bare)
{
	for (uint32_t i = 1; i <= bare->vcpus; i++)
		if (bare->ops[i].cmd == XEN_DOMCTL_gethvmcontext_partial)
			bare->ops[i].u.hvmcontext_partial.bufsz = CONTEXT_BYTES;
	return multicall(bare, bare->batch, bare->vcpus + 1);
}

static struct error *took(bool done, uint64_t start_ns, struct taken *out)
{
	out->whole_ns = clock_now_ns() - start_ns;
	out->paused_ns = out->whole_ns;
	return done ? NULL : error_errno(ERR_FAILED, errno, "a hypercall failed");
}

static struct error *take_batch(void *state, struct taken *out)
{
	uint64_t start = clock_now_ns();
	bool done = pause_and_contexts(state);

	done &= bare_unpause(state);
	return took(done, start, out);
}

static struct error *take_calls(void *state, struct taken *out)
{
	struct bare *bare = state;
	uint64_t start = clock_now_ns();
	bool done = bare_pause(bare);

	for (uint32_t i = 0; i < bare->vcpus; i++)
		done &= bare_context(bare, i) != NULL;
	done &= bare_unpause(bare);
	return took(done, start, out);
}

/* Cost of reading the clock, which every figure includes. */
static struct error *take_clock(void *state, struct taken *out)
{
	(void)state;
	return took(true, clock_now_ns(), out);
}

/* One call if there is one vCPU, as uniprof does it. */
static struct error *take_states(void *state, struct taken *out)
{
	struct bare *bare = state;
	uint64_t start = clock_now_ns();
	bool done = bare->vcpus == 1 ? domctl(bare, bare->vcpus + 2)
				     : multicall(bare, bare->states, bare->vcpus);

	return took(done, start, out);
}

static struct error *take_pause(void *state, struct taken *out)
{
	uint64_t start = clock_now_ns();
	bool done = bare_pause(state);
	struct error *err = took(done, start, out);

	bare_unpause(state);
	return err;
}

static struct error *take_go(void *state, struct taken *out)
{
	bool done = bare_pause(state);
	uint64_t start = clock_now_ns();

	done &= bare_unpause(state);
	return took(done, start, out);
}

static struct error *open_cheapest(const struct bench_guest *guest, void **state)
{
	return bare_open(guest, guest->hvm, (struct bare **)state);
}

static struct error *open_context(const struct bench_guest *guest, void **state)
{
	return bare_open(guest, false, (struct bare **)state);
}

const struct way way_floor = {.name = "floor",
			      .open = open_cheapest,
			      .take = take_batch,
			      .close = bare_close};
const struct way way_floor_context = {.name = "floor_context",
				      .hvm_only = true,
				      .open = open_context,
				      .take = take_batch,
				      .close = bare_close};
const struct way way_calls = {.name = "calls",
			      .open = open_context,
			      .take = take_calls,
			      .close = bare_close};
const struct way way_step_clock = {.name = "step_clock",
				   .open = open_cheapest,
				   .take = take_clock,
				   .close = bare_close};
const struct way way_step_states = {.name = "step_states",
				    .open = open_cheapest,
				    .take = take_states,
				    .close = bare_close};
const struct way way_step_pause = {.name = "step_pause",
				   .open = open_cheapest,
				   .take = take_pause,
				   .close = bare_close};
const struct way way_step_go = {.name = "step_go",
				.open = open_cheapest,
				.take = take_go,
				.close = bare_close};
