/* SPDX-License-Identifier: BSD-3-Clause */
#include "target/xen/undo.h"

struct error *xen_undo_open(struct xen_undo *undo, const struct xen_domain *domain)
{
	struct descriptors before;
	struct error *err;

	undo->domain = *domain;
	descriptors_look(&before);
	err = xen_if_open_devices(&undo->xi);
	if (err)
		return err;
	descriptors_look(&undo->devices);
	descriptors_subtract(&undo->devices, &before);
	return NULL;
}

void xen_undo_close(struct xen_undo *undo)
{
	xen_if_close(undo->xi);
}

static void keeps(void *ctx, struct descriptors *keep)
{
	*keep = ((struct xen_undo *)ctx)->devices;
}

static bool prepare(void *ctx)
{
	struct xen_undo *undo = ctx;
	struct error *err = xen_if_begin(undo->xi);

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

const struct guard_ops xen_guard_ops = {.keeps = keeps, .prepare = prepare, .undo = undo_pause};
