/* SPDX-License-Identifier: BSD-3-Clause */
#define __XEN_TOOLS__ 1
#include "target/xen/xen_if.h"

#include <xenctrl.h>
#include <xen/domctl.h>

struct xen_domain xen_domain_from_flags(uint32_t domid, uint32_t flags)
{
	return (struct xen_domain){
		.domid = domid,
		.hvm = flags & XEN_DOMINF_hvm_guest,
		.dying = flags & XEN_DOMINF_dying,
		.shutdown = flags & XEN_DOMINF_shutdown,
		.paused = flags & XEN_DOMINF_paused,
		.reason = (flags >> XEN_DOMINF_shutdownshift) & XEN_DOMINF_shutdownmask,
	};
}

struct error *xen_if_open(struct xen_if **out)
{
	struct xen_if *xi;
	struct error *err = xen_if_open_devices(&xi);

	if (err)
		return err;
	err = xen_if_begin(xi);
	if (err) {
		xen_if_close(xi);
		return err;
	}
	*out = xi;
	return NULL;
}
