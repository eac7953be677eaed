/* SPDX-License-Identifier: BSD-3-Clause */
#define XC_WANT_COMPAT_MAP_FOREIGN_API 1
#include "target/xen/xen_if.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include <xenctrl.h>
#include <xen/hvm/save.h>

#include "arch/arch.h"
#include "target/xen/quiet_log.h"

const char xen_if_name[] = "libxenctrl";

/* hvm_hw_cpu may have grown in newer hypervisors. */
#define HVM_BYTES (sizeof(struct hvm_hw_cpu) + 1024)

union context {
	vcpu_guest_context_any_t pv;
	uint8_t hvm[HVM_BYTES];
};

struct xen_if {
	xc_interface *xc;
	unsigned major, minor;
	uint32_t domid;
	bool hvm;
	union context *contexts;
};

struct error *xen_if_open_devices(struct xen_if **out)
{
	struct xen_if *xi = calloc(1, sizeof(*xi));

	if (!xi)
		return error_no_memory();
	xi->xc = xc_interface_open(&xen_quiet_log, &xen_quiet_log, 0);
	if (!xi->xc) {
		free(xi);
		return error_errno(
			ERR_DENIED, errno,
			"cannot open Xen's control interface; is this the control domain of "
			"a Xen host, and are you root?");
	}
	*out = xi;
	return NULL;
}

struct error *xen_if_begin(struct xen_if *xi)
{
	int version = xc_version(xi->xc, XENVER_version, NULL);
	struct xen_domain dom0;

	xi->major = (unsigned)version >> 16;
	xi->minor = version & 0xffff;
	if (xen_if_domain(xi, 0, &dom0))
		return NULL;
	return error_errno(ERR_DENIED, errno,
			   "this is Xen %u.%u, and the libxenctrl that uniprof %s was "
			   "built with cannot talk to it",
			   xi->major, xi->minor, UNIPROF_VERSION);
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

void xen_if_version(const struct xen_if *xi, unsigned *major, unsigned *minor)
{
	*major = xi->major;
	*minor = xi->minor;
}

bool xen_if_domain(struct xen_if *xi, uint32_t first, struct xen_domain *out)
{
	xc_domaininfo_t info;

	if (first >= DOMID_FIRST_RESERVED)
		return false;
	if (xc_domain_getinfolist(xi->xc, first, 1, &info) != 1)
		return false;
	*out = xen_domain_from_flags(info.domain, info.flags);
	return true;
}

uint32_t xen_if_vcpus(struct xen_if *xi, uint32_t domid)
{
	xc_vcpuinfo_t info;
	uint32_t n = 0;

	while (n < XEN_LEGACY_MAX_VCPUS * 4 && !xc_vcpu_getinfo(xi->xc, domid, n, &info))
		n++;
	return n;
}

bool xen_if_pv32(struct xen_if *xi, uint32_t domid)
{
	unsigned bytes;

	return !xc_domain_get_guest_width(xi->xc, domid, &bytes) && bytes == 4;
}

struct error *xen_if_attach(struct xen_if *xi, const struct xen_domain *domain, uint32_t vcpus)
{
	xi->domid = domain->domid;
	xi->hvm = domain->hvm;
	free(xi->contexts);
	xi->contexts = calloc(vcpus, sizeof(*xi->contexts));
	return xi->contexts ? NULL : error_no_memory();
}

static int read_context(struct xen_if *xi, uint32_t vcpu)
{
	union context *context = &xi->contexts[vcpu];
	int rc;

	if (xi->hvm)
		rc = xc_domain_hvm_getcontext_partial(xi->xc, xi->domid, HVM_SAVE_CODE(CPU),
						      (uint16_t)vcpu, context->hvm, HVM_BYTES);
	else
		rc = xc_vcpu_getcontext(xi->xc, xi->domid, vcpu, &context->pv);
	if (!rc)
		return 0;
	return errno == ENODATA ? -ENOENT : -errno;
}

static int read_state(struct xen_if *xi, uint32_t id, struct xen_vcpu *vcpu)
{
	xc_vcpuinfo_t info;

	if (xc_vcpu_getinfo(xi->xc, xi->domid, id, &info))
		return -errno;
	vcpu->online = info.online;
	vcpu->running = info.running;
	vcpu->blocked = info.blocked;
	vcpu->cpu_ns = info.cpu_time;
	return 0;
}

int xen_if_batch(struct xen_if *xi, const struct xen_batch *batch, struct xen_vcpu *vcpus)
{
	for (uint32_t i = 0; i < batch->n_states; i++) {
		int rc = read_state(xi, batch->states[i], &vcpus[batch->states[i]]);

		if (rc)
			return rc;
	}
	if (batch->pause && xc_domain_pause(xi->xc, xi->domid))
		return -errno;
	for (uint32_t i = 0; i < batch->n_contexts; i++) {
		const uint32_t id = batch->contexts[i];

		vcpus[id].status = read_context(xi, id);
		vcpus[id].context = &xi->contexts[id];
	}
	return 0;
}

int xen_if_go(struct xen_if *xi)
{
	return xc_domain_unpause(xi->xc, xi->domid) ? -errno : 0;
}

const void *xen_if_map(struct xen_if *xi, uint64_t gfn)
{
	return xc_map_foreign_range(xi->xc, xi->domid, FRAME_SIZE, PROT_READ, gfn);
}

void xen_if_unmap(struct xen_if *xi, const void *frame)
{
	munmap((void *)frame, FRAME_SIZE);
}

const void *xen_if_map_many(struct xen_if *xi, const uint64_t *gfn, size_t n)
{
	xen_pfn_t pfn[XEN_IF_MANY] = {0};

	for (size_t i = 0; i < n; i++)
		pfn[i] = gfn[i];
	return xc_map_foreign_pages(xi->xc, xi->domid, PROT_READ, pfn, (int)n);
}

void xen_if_unmap_many(struct xen_if *xi, const void *frames, size_t n)
{
	munmap((void *)frames, n * FRAME_SIZE);
}
