/* SPDX-License-Identifier: BSD-3-Clause */
#define XC_WANT_COMPAT_MAP_FOREIGN_API 1
#include "target/xen/xen_if.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/mman.h>

#include <xenctrl.h>
#include <xen/features.h>
#include <xen/hvm/save.h>

#include "arch/arch.h"

const char xen_if_name[] = "libxenctrl";

/* hvm_hw_cpu may have grown in newer hypervisors. */
#define HVM_BYTES (sizeof(struct hvm_hw_cpu) + 1024)

union xen_context_bytes {
	vcpu_guest_context_any_t pv;
	uint8_t hvm[HVM_BYTES];
};

struct xen_if {
	struct xen_if_state state;
	xc_interface *xc;
	uint32_t domid;
	bool hvm;
	union xen_context_bytes *contexts;
};

/* After a call that failed: its negative errno. */
static int failure(struct xen_if *xi, uint32_t domid, const char *permission)
{
	return xen_if_note(xi, domid, permission, -errno);
}

struct error *xen_if_open_devices(struct xen_if **out)
{
	struct xen_if *xi = calloc(1, sizeof(*xi));

	*out = xi;
	if (!xi)
		return error_no_memory();
	xi->xc = xc_interface_open(&xen_if_quiet_log, &xen_if_quiet_log, 0);
	if (xi->xc)
		return NULL;
	return error_errno(ERR_DENIED, errno,
			   "cannot open Xen's control interface; run as root in the control domain "
			   "of a Xen host, or in one that a policy lets look into others");
}

struct error *xen_if_begin(struct xen_if *xi)
{
	int version = xc_version(xi->xc, XENVER_version, NULL);
	xen_feature_info_t features = {.submap_idx = 0};
	xc_domaininfo_t first;

	xi->state.major = (unsigned)version >> 16;
	xi->state.minor = version & 0xffff;
	xi->state.has_policy = xc_flask_getenforce(xi->xc) >= 0;
	xi->state.translated = xc_version(xi->xc, XENVER_get_features, &features) >= 0 &&
			       features.submap & 1u << XENFEAT_auto_translated_physmap;
	/* A policy may show none. */
	if (xc_domain_getinfolist(xi->xc, 0, 1, &first) >= 0)
		return NULL;
	return error_errno(ERR_DENIED, errno,
			   "this is Xen %u.%u, and the libxenctrl that uniprof %s was "
			   "built with cannot talk to it",
			   xi->state.major, xi->state.minor, UNIPROF_VERSION);
}

void xen_if_close(struct xen_if *xi)
{
	if (!xi)
		return;
	free(xi->contexts);
	if (xi->xc)
		xc_interface_close(xi->xc);
	free(xi);
}

/* Domains that the policy does not show are left out by Xen. */
int xen_if_next_domain(struct xen_if *xi, uint32_t first, struct xen_domain *out)
{
	xc_domaininfo_t info;

	if (first >= DOMID_FIRST_RESERVED || xc_domain_getinfolist(xi->xc, first, 1, &info) != 1)
		return -ESRCH;
	*out = xen_domain_from_flags(info.domain, info.flags);
	return 0;
}

int xen_if_domain(struct xen_if *xi, uint32_t domid, struct xen_domain *out)
{
	xc_domaininfo_t info;
	int n = xc_domain_getinfolist(xi->xc, domid, 1, &info);

	if (n < 0)
		return failure(xi, domid, "domain { getdomaininfo }");
	if (!n || info.domain != domid)
		return -ESRCH;
	*out = xen_domain_from_flags(domid, info.flags);
	return 0;
}

uint32_t xen_if_vcpus(struct xen_if *xi, uint32_t domid)
{
	xc_vcpuinfo_t info;
	uint32_t n = 0;

	while (n < XEN_LEGACY_MAX_VCPUS * 4 && !xc_vcpu_getinfo(xi->xc, domid, n, &info))
		n++;
	if (!n)
		(void)failure(xi, domid, "domain { getvcpuinfo }");
	return n;
}

bool xen_if_pv32(struct xen_if *xi, uint32_t domid)
{
	unsigned bytes;

	if (!xc_domain_get_guest_width(xi->xc, domid, &bytes))
		return bytes == 4;
	(void)failure(xi, domid, "domain { getaddrsize }");
	return false;
}

void xen_if_scheduler(struct xen_if *xi, struct xen_scheduler *out)
{
	struct xen_sysctl_credit2_schedule credit2;
	struct xen_sysctl_credit_schedule credit;

	*out = (struct xen_scheduler){0};
	if (!xc_sched_credit2_params_get(xi->xc, 0, &credit2))
		*out = (struct xen_scheduler){"credit2", credit2.ratelimit_us};
	else if (!xc_sched_credit_params_get(xi->xc, 0, &credit))
		*out = (struct xen_scheduler){"credit", credit.ratelimit_us};
}

struct error *xen_if_attach(struct xen_if *xi, const struct xen_domain *domain, uint32_t vcpus)
{
	xi->domid = domain->domid;
	xi->hvm = domain->hvm;
	xi->contexts = calloc(vcpus, sizeof(*xi->contexts));
	return xi->contexts ? NULL : error_no_memory();
}

static int read_context(struct xen_if *xi, uint32_t vcpu)
{
	union xen_context_bytes *context = &xi->contexts[vcpu];
	int rc;

	if (xi->hvm)
		rc = xc_domain_hvm_getcontext_partial(xi->xc, xi->domid, HVM_SAVE_CODE(CPU),
						      (uint16_t)vcpu, context->hvm, HVM_BYTES);
	else
		rc = xc_vcpu_getcontext(xi->xc, xi->domid, vcpu, &context->pv);
	if (!rc)
		return 0;
	return errno == ENODATA
		       ? -ENOENT
		       : failure(xi, xi->domid,
				 xi->hvm ? "hvm { gethvmc }" : "domain { getvcpucontext }");
}

static int read_state(struct xen_if *xi, uint32_t id, struct xen_vcpu *vcpu)
{
	xc_vcpuinfo_t info;

	if (xc_vcpu_getinfo(xi->xc, xi->domid, id, &info))
		return failure(xi, xi->domid, "domain { getvcpuinfo }");
	vcpu->online = info.online;
	vcpu->running = info.running;
	vcpu->blocked = info.blocked;
	vcpu->cpu_ns = info.cpu_time;
	return 0;
}

int xen_if_batch(struct xen_if *xi, const struct xen_batch *batch, struct xen_vcpu *vcpus)
{
	for (uint32_t i = 0; i < batch->states.n; i++) {
		int rc = read_state(xi, batch->states.id[i], &vcpus[batch->states.id[i]]);

		if (rc)
			return rc;
	}
	if (batch->pause) {
		xi->state.holds = !xc_domain_pause(xi->xc, xi->domid);
		if (!xi->state.holds)
			return failure(xi, xi->domid, "domain { pause }");
	}
	for (uint32_t i = 0; i < batch->contexts.n; i++) {
		const uint32_t id = batch->contexts.id[i];

		vcpus[id].status = read_context(xi, id);
		vcpus[id].context = &xi->contexts[id];
	}
	return 0;
}

int xen_if_go(struct xen_if *xi)
{
	int rc = 0;

	if (xc_domain_unpause(xi->xc, xi->domid))
		rc = failure(xi, xi->domid, "domain { unpause }");
	if (!rc || rc == -ESRCH || rc == -EINVAL)
		xi->state.holds = false;
	return rc;
}

void *xen_if_map(struct xen_if *xi, int prot, const uint64_t *gfn, size_t n)
{
	void *frames = xc_map_foreign_pages(xi->xc, xi->domid, prot, gfn, (int)n);

	if (!frames)
		xen_if_note_map(xi, xi->domid, prot & PROT_WRITE, -errno);
	return frames;
}

void xen_if_unmap(struct xen_if *xi, const void *frames, size_t n)
{
	munmap((void *)frames, n * FRAME_SIZE);
}
