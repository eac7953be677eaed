/* SPDX-License-Identifier: BSD-3-Clause */
#include "target/xen/undo.h"

static bool prepare(void *ctx)
{
	struct xen_undo *undo = ctx;
	struct error *err = xen_if_open(&undo->xi);

	if (!err)
		err = xen_if_attach(undo->xi, &undo->domain, 1);
	if (!err)
		return true;
	error_free(err);
	return false;
}

/*
 * Pauses are counted, and the count cannot be read: a domain that is paused in
 * a moment when we may have paused it is taken to be paused by us.
 */
static void undo_pause(void *ctx, enum guard_phase phase)
{
	struct xen_undo *undo = ctx;
	struct xen_domain now;

	if (!xen_if_domain(undo->xi, undo->domain.domid, &now) || now.domid != undo->domain.domid ||
	    !now.paused)
		return;
	(void)xen_if_go(undo->xi);
}

const struct guard_ops xen_guard_ops = {.prepare = prepare, .undo = undo_pause};
