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
	uint32_t vcpus;
	bool hvm;
	union context *contexts;
};

struct error *xen_if_open(struct xen_if **out)
{
	struct xen_if *xi = calloc(1, sizeof(*xi));
	struct error *err = NULL;
	struct xen_domain dom0;
	int version;

	if (!xi)
		return error_no_memory();
	xi->xc = xc_interface_open(&xen_quiet_log, &xen_quiet_log, 0);
	if (!xi->xc) {
		err = error_errno(
			ERR_DENIED, errno,
			"cannot open Xen's control interface; is this the control domain of "
			"a Xen host, and are you root?");
	} else {
		version = xc_version(xi->xc, XENVER_version, NULL);
		xi->major = (unsigned)version >> 16;
		xi->minor = version & 0xffff;
		if (!xen_if_domain(xi, 0, &dom0))
			err = error_errno(
				ERR_DENIED, errno,
				"this is Xen %u.%u, and the libxenctrl that uniprof %s was "
				"built with cannot talk to it",
				xi->major, xi->minor, UNIPROF_VERSION);
	}
	if (err) {
		xen_if_close(xi);
		return err;
	}
	*out = xi;
	return NULL;
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
	xi->vcpus = vcpus;
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

int xen_if_stop(struct xen_if *xi, struct xen_vcpu *vcpus)
{
	for (uint32_t i = 0; i < xi->vcpus; i++) {
		xc_vcpuinfo_t info;

		if (xc_vcpu_getinfo(xi->xc, xi->domid, i, &info))
			return -errno;
		vcpus[i].running = info.running;
		vcpus[i].blocked = info.blocked;
		vcpus[i].cpu_ns = info.cpu_time;
		vcpus[i].context = &xi->contexts[i];
	}
	if (xc_domain_pause(xi->xc, xi->domid))
		return -errno;
	for (uint32_t i = 0; i < xi->vcpus; i++)
		vcpus[i].status = read_context(xi, i);
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
