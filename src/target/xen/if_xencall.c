/* SPDX-License-Identifier: BSD-3-Clause */
#define __XEN_TOOLS__ 1
#include "target/xen/xen.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include <xenctrl.h>
#include <xencall.h>
#include <xenforeignmemory.h>
#include <xen/domctl.h>
#include <xen/features.h>
#include <xen/sysctl.h>
#include <xen/version.h>
#include <xen/xen.h>
#include <xen/xsm/flask_op.h>

const char xen_if_name[] = "libxencall";

/*
 * Interface versions that the calls used here have kept their layout in: Xen
 * 4.7 has 0xb, 4.22 has 0x18 (XEN_DOMCTL_INTERFACE_VERSION in xen/domctl.h of
 * each). A version that the hypervisor does not speak gives EACCES.
 */
#define DOMCTL_OLDEST 0x0b
#define DOMCTL_NEWEST 0x20

/* Likewise of scheduler_op: Xen 4.7 has 0xd, 4.17 has 0x15 (XEN_SYSCTL_INTERFACE_VERSION in xen/sysctl.h). */
#define SYSCTL_OLDEST 0x0d
#define SYSCTL_NEWEST 0x20

/* Xen 4.18: from here on getdomaininfo does not look for the next domain when there is none of this id. */
#define DOMCTL_ASKS_FOR_ONE 0x16

/* Room for one context of any kind; hvm_hw_cpu may have grown in newer hypervisors. */
#define CONTEXT_BYTES ((sizeof(vcpu_guest_context_t) + 1024) & ~63ul)

struct xen_if {
	struct xen_if_state state;
	xencall_handle *call;
	xenforeignmemory_handle *memory;
	unsigned domctl_version;
	struct xen_domctl *ctl; /* for single calls */

	uint32_t domid;
	bool hvm;
	/*
	 * Ready to be called, all in one buffer: after each hypercall, every
	 * page is a miss in the TLB, for the hypervisor and for us.
	 */
	struct xen_domctl *calls; /* [2 * vcpus + 2], and the batch */
	struct xen_domctl *pause, *unpause;
	struct xen_domctl *states;    /* [vcpus] */
	struct xen_domctl *registers; /* [vcpus] */
	multicall_entry_t *batch;     /* [2 * vcpus + 1]: for the largest batch */
	uint8_t *contexts;	      /* [vcpus], where registers go */
};

static void fill(struct xen_if *xi, struct xen_domctl *ctl, uint32_t cmd, uint32_t domid)
{
	memset(ctl, 0, sizeof(*ctl));
	ctl->interface_version = xi->domctl_version;
	ctl->cmd = cmd;
	ctl->domain = (domid_t)domid;
}

/* As in the file access_vectors of Xen's policies. */
static const char *const permissions[] = {
	[XEN_DOMCTL_getdomaininfo] = "domain { getdomaininfo }",
	[XEN_DOMCTL_getvcpuinfo] = "domain { getvcpuinfo }",
	[XEN_DOMCTL_getvcpucontext] = "domain { getvcpucontext }",
	[XEN_DOMCTL_gethvmcontext_partial] = "hvm { gethvmc }",
	[XEN_DOMCTL_get_address_size] = "domain { getaddrsize }",
	[XEN_DOMCTL_pausedomain] = "domain { pause }",
	[XEN_DOMCTL_unpausedomain] = "domain { unpause }",
};

/* Returns `rc`, and remembers a refused permission. */
static int note(struct xen_if *xi, const struct xen_domctl *ctl, int rc)
{
	return xen_if_note(xi, ctl->domain, permissions[ctl->cmd], rc);
}

static int domctl(struct xen_if *xi, struct xen_domctl *ctl)
{
	return note(xi, ctl,
		    xencall1(xi->call, __HYPERVISOR_domctl, (unsigned long)ctl) < 0 ? -errno : 0);
}

/*
 * Asks about a domain that never exists: permissions are checked after the
 * version and the domain, so that a missing one is not taken for a wrong
 * version.
 */
static struct error *probe_domctl(struct xen_if *xi)
{
	for (unsigned version = DOMCTL_NEWEST; version >= DOMCTL_OLDEST; version--) {
		xi->domctl_version = version;
		fill(xi, xi->ctl, XEN_DOMCTL_getvcpuinfo, DOMID_INVALID);
		if (domctl(xi, xi->ctl) != -EACCES)
			return NULL;
	}
	return error_new(ERR_DENIED,
			 "this is Xen %u.%u, and its domctl interface is none of the versions %#x "
			 "to %#x that uniprof %s knows",
			 xi->state.major, xi->state.minor, DOMCTL_OLDEST, DOMCTL_NEWEST,
			 UNIPROF_VERSION);
}

/* Asks for nothing that a policy could refuse: a Xen without one does not know the call. */
static void probe_policy(struct xen_if *xi)
{
	xen_flask_op_t *op = (xen_flask_op_t *)xi->ctl;

	memset(op, 0, sizeof(*op));
	op->cmd = FLASK_GETENFORCE;
	op->interface_version = XEN_FLASK_INTERFACE_VERSION;
	xi->state.has_policy = xencall1(xi->call, __HYPERVISOR_xsm_op, (unsigned long)op) >= 0;
}

/* A PV domain sees the frames of the machine itself. */
static void probe_features(struct xen_if *xi)
{
	xen_feature_info_t *features = (xen_feature_info_t *)xi->ctl;

	*features = (xen_feature_info_t){.submap_idx = 0};
	xi->state.translated = xencall2(xi->call, __HYPERVISOR_xen_version, XENVER_get_features,
					(unsigned long)features) >= 0 &&
			       features->submap & 1u << XENFEAT_auto_translated_physmap;
}

static struct error *open_failed(const char *what)
{
	int err = errno;

	if (err == EACCES || err == EPERM)
		return error_errno(ERR_DENIED, err, "cannot open %s; run as root", what);
	return error_errno(ERR_DENIED, err,
			   "cannot open %s; in the control domain of a Xen host, or one that a "
			   "policy lets look into others, load Linux's module xen-privcmd",
			   what);
}

static struct error *open_handles(struct xen_if *xi)
{
	xi->call = xencall_open(&xen_if_quiet_log, XENCALL_OPENFLAG_NON_REENTRANT);
	if (!xi->call)
		return open_failed("Xen's hypercall device");
	xi->memory = xenforeignmemory_open(&xen_if_quiet_log, 0);
	return xi->memory ? NULL : open_failed("Xen's device for the memory of guests");
}

/* Linux denies it to domains that do not control others, by default. */
static struct error *hypercall_failed(void)
{
	int err = errno;

	if (err != EPERM)
		return error_errno(ERR_DENIED, err, "cannot make a hypercall");
	return error_new(ERR_DENIED,
			 "Linux refuses hypercalls about other domains: load its module "
			 "xen-privcmd with unrestricted=1");
}

struct error *xen_if_begin(struct xen_if *xi)
{
	int version;

	_Static_assert(sizeof(struct xen_sysctl) <= sizeof(*xi->ctl), "one buffer serves both");
	xi->ctl = xencall_alloc_buffer(xi->call, sizeof(*xi->ctl));
	if (!xi->ctl)
		return error_no_memory();
	version = xencall2(xi->call, __HYPERVISOR_xen_version, XENVER_version, 0);
	if (version < 0)
		return hypercall_failed();
	xi->state.major = (unsigned)version >> 16;
	xi->state.minor = version & 0xffff;
	probe_policy(xi);
	probe_features(xi);
	return probe_domctl(xi);
}

struct error *xen_if_open_devices(struct xen_if **out)
{
	*out = calloc(1, sizeof(**out));
	return *out ? open_handles(*out) : error_no_memory();
}

void xen_if_close(struct xen_if *xi)
{
	if (!xi)
		return;
	if (xi->call) {
		if (xi->calls)
			xencall_free_buffer(xi->call, xi->calls);
		if (xi->contexts)
			xencall_free_buffer(xi->call, xi->contexts);
		if (xi->ctl)
			xencall_free_buffer(xi->call, xi->ctl);
		xencall_close(xi->call);
	}
	if (xi->memory)
		xenforeignmemory_close(xi->memory);
	free(xi);
}

/* Before Xen 4.18, asks about the next domain if there is no such domain. */
static int ask_domain(struct xen_if *xi, uint32_t first, struct xen_domain *out)
{
	int rc;

	fill(xi, xi->ctl, XEN_DOMCTL_getdomaininfo, first);
	rc = domctl(xi, xi->ctl);
	/* Only the domain and its flags have the same offsets in all versions of this structure. */
	if (!rc)
		*out = xen_domain_from_flags(xi->ctl->u.getdomaininfo.domain,
					     xi->ctl->u.getdomaininfo.flags);
	return rc;
}

int xen_if_domain(struct xen_if *xi, uint32_t domid, struct xen_domain *out)
{
	int rc = ask_domain(xi, domid, out);

	return !rc && out->domid != domid ? -ESRCH : rc;
}

/* A refusal to tell about it may be about the next domain, before Xen 4.18. */
static bool is_there(struct xen_if *xi, uint32_t domid)
{
	fill(xi, xi->ctl, XEN_DOMCTL_getvcpuinfo, domid);
	return domctl(xi, xi->ctl) != -ESRCH;
}

int xen_if_next_domain(struct xen_if *xi, uint32_t first, struct xen_domain *out)
{
	for (uint32_t domid = first; domid < DOMID_FIRST_RESERVED; domid++) {
		int rc = ask_domain(xi, domid, out);

		if (!rc)
			return 0;
		if (rc != -ESRCH && is_there(xi, domid)) {
			*out = (struct xen_domain){.domid = domid};
			return rc;
		}
		if (rc == -ESRCH && xi->domctl_version < DOMCTL_ASKS_FOR_ONE)
			break;
	}
	return -ESRCH;
}

uint32_t xen_if_vcpus(struct xen_if *xi, uint32_t domid)
{
	uint32_t n;

	for (n = 0; n < XEN_LEGACY_MAX_VCPUS * 4; n++) {
		fill(xi, xi->ctl, XEN_DOMCTL_getvcpuinfo, domid);
		xi->ctl->u.getvcpuinfo.vcpu = n;
		if (domctl(xi, xi->ctl))
			break;
	}
	return n;
}

bool xen_if_pv32(struct xen_if *xi, uint32_t domid)
{
	fill(xi, xi->ctl, XEN_DOMCTL_get_address_size, domid);
	return !domctl(xi, xi->ctl) && xi->ctl->u.address_size.size == 32;
}

/* Asks for a scheduler's parameters, which Xen refuses if another one is at work; valid until the next single call. */
static const struct xen_sysctl_scheduler_op *ask_scheduler(struct xen_if *xi, uint32_t id)
{
	struct xen_sysctl *ctl = (struct xen_sysctl *)xi->ctl;

	for (unsigned version = SYSCTL_NEWEST; version >= SYSCTL_OLDEST; version--) {
		memset(ctl, 0, sizeof(*ctl));
		ctl->cmd = XEN_SYSCTL_scheduler_op;
		ctl->interface_version = version;
		ctl->u.scheduler_op.sched_id = id;
		ctl->u.scheduler_op.cmd = XEN_SYSCTL_SCHEDOP_getinfo;
		if (xencall1(xi->call, __HYPERVISOR_sysctl, (unsigned long)ctl) >= 0)
			return &ctl->u.scheduler_op;
		if (errno != EACCES)
			break;
	}
	return NULL;
}

void xen_if_scheduler(struct xen_if *xi, struct xen_scheduler *out)
{
	const struct xen_sysctl_scheduler_op *op = ask_scheduler(xi, XEN_SCHEDULER_CREDIT2);

	*out = (struct xen_scheduler){0};
	if (op) {
		*out = (struct xen_scheduler){"credit2", op->u.sched_credit2.ratelimit_us};
		return;
	}
	op = ask_scheduler(xi, XEN_SCHEDULER_CREDIT);
	if (op)
		*out = (struct xen_scheduler){"credit", op->u.sched_credit.ratelimit_us};
}

static void fill_context(struct xen_if *xi, struct xen_domctl *op, uint32_t vcpu)
{
	uint8_t *context = xi->contexts + vcpu * CONTEXT_BYTES;

	if (xi->hvm) {
		fill(xi, op, XEN_DOMCTL_gethvmcontext_partial, xi->domid);
		op->u.hvmcontext_partial.type = xen_cpu_record;
		op->u.hvmcontext_partial.instance = vcpu;
		op->u.hvmcontext_partial.bufsz = CONTEXT_BYTES;
		set_xen_guest_handle_raw(op->u.hvmcontext_partial.buffer, context);
	} else {
		fill(xi, op, XEN_DOMCTL_getvcpucontext, xi->domid);
		op->u.vcpucontext.vcpu = vcpu;
		set_xen_guest_handle_raw(op->u.vcpucontext.ctxt, (vcpu_guest_context_t *)context);
	}
}

static bool alloc_calls(struct xen_if *xi, uint32_t vcpus)
{
	const uint32_t calls = 2 * vcpus + 2, batch = 2 * vcpus + 1;
	const size_t bytes = calls * sizeof(*xi->calls) + batch * sizeof(*xi->batch);

	xi->calls = xencall_alloc_buffer(xi->call, bytes);
	xi->contexts = xencall_alloc_buffer(xi->call, vcpus * CONTEXT_BYTES);
	if (!xi->calls || !xi->contexts)
		return false;
	memset(xi->calls, 0, bytes);
	xi->pause = xi->calls;
	xi->unpause = xi->pause + 1;
	xi->states = xi->unpause + 1;
	xi->registers = xi->states + vcpus;
	xi->batch = (multicall_entry_t *)(xi->registers + vcpus);
	for (uint32_t i = 0; i < batch; i++)
		xi->batch[i].op = __HYPERVISOR_domctl;
	return true;
}

struct error *xen_if_attach(struct xen_if *xi, const struct xen_domain *domain, uint32_t vcpus)
{
	xi->domid = domain->domid;
	xi->hvm = domain->hvm && xen_cpu_record;
	if (!alloc_calls(xi, vcpus))
		return error_no_memory();
	for (uint32_t i = 0; i < vcpus; i++) {
		fill(xi, &xi->states[i], XEN_DOMCTL_getvcpuinfo, xi->domid);
		xi->states[i].u.getvcpuinfo.vcpu = i;
		fill_context(xi, &xi->registers[i], i);
	}
	fill(xi, xi->pause, XEN_DOMCTL_pausedomain, xi->domid);
	fill(xi, xi->unpause, XEN_DOMCTL_unpausedomain, xi->domid);
	return NULL;
}

/* Offline vCPUs answer ENODATA (getvcpucontext) or ENOENT (no CPU record in the HVM context). */
static int context_status(long result)
{
	return result == -ENODATA ? -ENOENT : (int)result;
}

static uint32_t fill_batch(struct xen_if *xi, const struct xen_batch *batch)
{
	multicall_entry_t *entry = xi->batch;

	for (uint32_t i = 0; i < batch->states.n; i++, entry++)
		entry->args[0] = (unsigned long)&xi->states[batch->states.id[i]];
	if (batch->pause) {
		entry->args[0] = (unsigned long)xi->pause;
		entry->result = (unsigned long)-EIO;
		entry++;
	}
	for (uint32_t i = 0; i < batch->contexts.n; i++, entry++) {
		struct xen_domctl *op = &xi->registers[batch->contexts.id[i]];

		/* The call says here how much it has written. */
		if (xi->hvm)
			op->u.hvmcontext_partial.bufsz = CONTEXT_BYTES;
		entry->args[0] = (unsigned long)op;
	}
	return (uint32_t)(entry - xi->batch);
}

static void take_state(const struct xen_domctl *state, struct xen_vcpu *vcpu)
{
	const struct xen_domctl_getvcpuinfo *info = &state->u.getvcpuinfo;

	vcpu->online = info->online;
	vcpu->running = info->running;
	vcpu->blocked = info->blocked;
	vcpu->cpu_ns = info->cpu_time;
}

/* A single call: a multicall itself costs a tenth of a call more. */
static int ask_one_state(struct xen_if *xi, uint32_t id, struct xen_vcpu *vcpus)
{
	int rc = domctl(xi, &xi->states[id]);

	if (!rc)
		take_state(&xi->states[id], &vcpus[id]);
	return rc;
}

int xen_if_batch(struct xen_if *xi, const struct xen_batch *batch, struct xen_vcpu *vcpus)
{
	const multicall_entry_t *entry = xi->batch;
	uint32_t calls;
	int rc;

	if (batch->states.n == 1 && !batch->contexts.n && !batch->pause)
		return ask_one_state(xi, batch->states.id[0], vcpus);
	calls = fill_batch(xi, batch);
	rc = xencall2(xi->call, __HYPERVISOR_multicall, (unsigned long)xi->batch, calls);
	if (batch->pause)
		xi->state.holds = !entry[batch->states.n].result;
	if (rc < 0)
		return -errno;
	for (uint32_t i = 0; i < batch->states.n; i++, entry++) {
		if (entry->result)
			return note(xi, &xi->states[batch->states.id[i]], (int)entry->result);
		take_state(&xi->states[batch->states.id[i]], &vcpus[batch->states.id[i]]);
	}
	if (batch->pause && (entry++)->result)
		return note(xi, xi->pause, (int)entry[-1].result);
	for (uint32_t i = 0; i < batch->contexts.n; i++, entry++) {
		const uint32_t id = batch->contexts.id[i];

		vcpus[id].status = entry->result ? note(xi, &xi->registers[id],
							context_status((long)entry->result))
						 : 0;
		vcpus[id].context = xi->contexts + id * CONTEXT_BYTES;
	}
	return 0;
}

int xen_if_go(struct xen_if *xi)
{
	int rc = domctl(xi, xi->unpause);

	if (!rc || rc == -ESRCH || rc == -EINVAL)
		xi->state.holds = false;
	return rc;
}

void *xen_if_map(struct xen_if *xi, int prot, const uint64_t *gfn, size_t n)
{
	int err[XEN_IF_MANY] = {0}, failed;
	void *pages;

	pages = xenforeignmemory_map(xi->memory, xi->domid, prot, n, gfn, err);
	failed = pages ? 0 : -errno;
	for (size_t i = 0; i < n && pages && !failed; i++)
		failed = err[i];
	if (pages && failed) {
		xenforeignmemory_unmap(xi->memory, pages, n);
		pages = NULL;
	}
	xen_if_note_map(xi, xi->domid, prot & PROT_WRITE, failed);
	return pages;
}

void xen_if_unmap(struct xen_if *xi, const void *frames, size_t n)
{
	xenforeignmemory_unmap(xi->memory, (void *)frames, n);
}
