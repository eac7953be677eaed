/* SPDX-License-Identifier: BSD-3-Clause */
#define __XEN_TOOLS__ 1
#include "target/xen/xen_if.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include <xenctrl.h>
#include <xencall.h>
#include <xenforeignmemory.h>
#include <xen/domctl.h>
#include <xen/version.h>
#include <xen/xen.h>

#include "arch/arch.h"
#include "target/xen/quiet_log.h"
#include "target/xen/vcpu_regs.h"

const char xen_if_name[] = "libxencall";

/*
 * Interface versions that the calls used here have kept their layout in: Xen
 * 4.7 has 0xb, 4.22 has 0x18 (XEN_DOMCTL_INTERFACE_VERSION in xen/domctl.h of
 * each). A version that the hypervisor does not speak gives EACCES.
 */
#define DOMCTL_OLDEST 0x0b
#define DOMCTL_NEWEST 0x20

/* Xen 4.18: from here on getdomaininfo does not look for the next domain when there is none of this id. */
#define DOMCTL_ASKS_FOR_ONE 0x16

/* Room for one context of any kind; hvm_hw_cpu may have grown in newer hypervisors. */
#define CONTEXT_BYTES ((sizeof(vcpu_guest_context_t) + 1024) & ~63ul)

struct xen_if {
	xencall_handle *call;
	xenforeignmemory_handle *memory;
	unsigned major, minor;
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

static int domctl(struct xen_if *xi, struct xen_domctl *ctl)
{
	return xencall1(xi->call, __HYPERVISOR_domctl, (unsigned long)ctl) < 0 ? -errno : 0;
}

static struct error *probe_domctl(struct xen_if *xi)
{
	int rc = 0;

	for (unsigned version = DOMCTL_NEWEST; version >= DOMCTL_OLDEST; version--) {
		xi->domctl_version = version;
		fill(xi, xi->ctl, XEN_DOMCTL_getdomaininfo, 0);
		rc = domctl(xi, xi->ctl);
		if (rc != -EACCES)
			break;
	}
	if (rc == 0)
		return NULL;
	if (rc == -EACCES)
		return error_new(ERR_DENIED,
				 "this is Xen %u.%u, and its domctl interface is none of the "
				 "versions %#x to %#x that uniprof %s knows",
				 xi->major, xi->minor, DOMCTL_OLDEST, DOMCTL_NEWEST,
				 UNIPROF_VERSION);
	return error_errno(ERR_DENIED, -rc,
			   "Xen %u.%u refuses to tell about its domains (is this dom0?)", xi->major,
			   xi->minor);
}

static struct error *open_failed(const char *what)
{
	int err = errno;

	if (err == EACCES || err == EPERM)
		return error_errno(ERR_DENIED, err, "cannot open %s; run as root", what);
	return error_errno(ERR_DENIED, err,
			   "cannot open %s; is this the control domain of a Xen host?", what);
}

static struct error *open_handles(struct xen_if *xi)
{
	xi->call = xencall_open(&xen_quiet_log, XENCALL_OPENFLAG_NON_REENTRANT);
	if (!xi->call)
		return open_failed("Xen's hypercall device");
	xi->memory = xenforeignmemory_open(&xen_quiet_log, 0);
	if (!xi->memory)
		return open_failed("Xen's device for the memory of guests");
	return NULL;
}

struct error *xen_if_begin(struct xen_if *xi)
{
	int version;

	xi->ctl = xencall_alloc_buffer(xi->call, sizeof(*xi->ctl));
	if (!xi->ctl)
		return error_no_memory();
	version = xencall2(xi->call, __HYPERVISOR_xen_version, XENVER_version, 0);
	if (version < 0)
		return error_errno(ERR_DENIED, errno, "cannot make a hypercall");
	xi->major = (unsigned)version >> 16;
	xi->minor = version & 0xffff;
	return probe_domctl(xi);
}

struct error *xen_if_open_devices(struct xen_if **out)
{
	struct xen_if *xi = calloc(1, sizeof(*xi));
	struct error *err;

	if (!xi)
		return error_no_memory();
	err = open_handles(xi);
	if (err) {
		xen_if_close(xi);
		return err;
	}
	*out = xi;
	return NULL;
}

static void free_calls(struct xen_if *xi)
{
	if (xi->calls)
		xencall_free_buffer(xi->call, xi->calls);
	if (xi->contexts)
		xencall_free_buffer(xi->call, xi->contexts);
	xi->calls = NULL;
	xi->contexts = NULL;
}

void xen_if_close(struct xen_if *xi)
{
	if (!xi)
		return;
	if (xi->call) {
		free_calls(xi);
		if (xi->ctl)
			xencall_free_buffer(xi->call, xi->ctl);
		xencall_close(xi->call);
	}
	if (xi->memory)
		xenforeignmemory_close(xi->memory);
	free(xi);
}

void xen_if_version(const struct xen_if *xi, unsigned *major, unsigned *minor)
{
	*major = xi->major;
	*minor = xi->minor;
}

/* True if there is such a domain, or, before Xen 4.18, one with a higher id. */
static bool ask_domain(struct xen_if *xi, uint32_t first, struct xen_domain *out)
{
	fill(xi, xi->ctl, XEN_DOMCTL_getdomaininfo, first);
	if (domctl(xi, xi->ctl))
		return false;
	/* Of this structure only the domain and its flags have kept their place. */
	*out = xen_domain_from_flags(xi->ctl->u.getdomaininfo.domain,
				     xi->ctl->u.getdomaininfo.flags);
	return true;
}

bool xen_if_domain(struct xen_if *xi, uint32_t first, struct xen_domain *out)
{
	for (uint32_t domid = first; domid < DOMID_FIRST_RESERVED; domid++) {
		if (ask_domain(xi, domid, out))
			return true;
		if (xi->domctl_version < DOMCTL_ASKS_FOR_ONE)
			return false;
	}
	return false;
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
	free_calls(xi);
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

	for (uint32_t i = 0; i < batch->n_states; i++, entry++)
		entry->args[0] = (unsigned long)&xi->states[batch->states[i]];
	if (batch->pause) {
		entry->args[0] = (unsigned long)xi->pause;
		entry->result = (unsigned long)-EIO;
		entry++;
	}
	for (uint32_t i = 0; i < batch->n_contexts; i++, entry++) {
		struct xen_domctl *op = &xi->registers[batch->contexts[i]];

		/* The call says here how much it has written. */
		if (xi->hvm)
			op->u.hvmcontext_partial.bufsz = CONTEXT_BYTES;
		entry->args[0] = (unsigned long)op;
	}
	return (uint32_t)(entry - xi->batch);
}

/* For a batch that failed behind its pause: nothing must be left of it. */
static int undo_batch(struct xen_if *xi, const struct xen_batch *batch, int rc)
{
	if (batch->pause && !xi->batch[batch->n_states].result)
		(void)xen_if_go(xi);
	return rc;
}

static void take_state(const struct xen_domctl *state, struct xen_vcpu *vcpu)
{
	const struct xen_domctl_getvcpuinfo *info = &state->u.getvcpuinfo;

	vcpu->online = info->online;
	vcpu->running = info->running;
	vcpu->blocked = info->blocked;
	vcpu->cpu_ns = info->cpu_time;
}

/* What a multicall costs by itself is a tenth of a call. */
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

	if (batch->n_states == 1 && !batch->n_contexts && !batch->pause)
		return ask_one_state(xi, batch->states[0], vcpus);
	calls = fill_batch(xi, batch);
	if (xencall2(xi->call, __HYPERVISOR_multicall, (unsigned long)xi->batch, calls) < 0)
		return undo_batch(xi, batch, -errno);
	for (uint32_t i = 0; i < batch->n_states; i++, entry++) {
		if (entry->result)
			return undo_batch(xi, batch, (int)entry->result);
		take_state(&xi->states[batch->states[i]], &vcpus[batch->states[i]]);
	}
	if (batch->pause && (entry++)->result)
		return (int)entry[-1].result;
	for (uint32_t i = 0; i < batch->n_contexts; i++, entry++) {
		const uint32_t id = batch->contexts[i];

		vcpus[id].status = context_status((long)entry->result);
		vcpus[id].context = xi->contexts + id * CONTEXT_BYTES;
	}
	return 0;
}

int xen_if_go(struct xen_if *xi)
{
	return domctl(xi, xi->unpause);
}

const void *xen_if_map(struct xen_if *xi, uint64_t gfn)
{
	xen_pfn_t pfn = gfn;
	int err = 0;
	void *page;

	page = xenforeignmemory_map(xi->memory, xi->domid, PROT_READ, 1, &pfn, &err);
	if (page && err) {
		xenforeignmemory_unmap(xi->memory, page, 1);
		page = NULL;
	}
	return page;
}

void xen_if_unmap(struct xen_if *xi, const void *frame)
{
	xenforeignmemory_unmap(xi->memory, (void *)frame, 1);
}

const void *xen_if_map_many(struct xen_if *xi, const uint64_t *gfn, size_t n)
{
	xen_pfn_t pfn[XEN_IF_MANY] = {0};
	int err[XEN_IF_MANY] = {0};
	void *pages;

	for (size_t i = 0; i < n; i++)
		pfn[i] = gfn[i];
	pages = xenforeignmemory_map(xi->memory, xi->domid, PROT_READ, n, pfn, err);
	for (size_t i = 0; i < n && pages; i++)
		if (err[i]) {
			xenforeignmemory_unmap(xi->memory, pages, n);
			pages = NULL;
		}
	return pages;
}

void xen_if_unmap_many(struct xen_if *xi, const void *frames, size_t n)
{
	xenforeignmemory_unmap(xi->memory, (void *)frames, n);
}
