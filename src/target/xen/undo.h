/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef UNIPROF_TARGET_XEN_UNDO_H
#define UNIPROF_TARGET_XEN_UNDO_H

/* What the guard of a Xen domain does (target/guard.h); the context is a struct xen_undo. */

#include "base/descriptors.h"
#include "target/guard.h"
#include "target/xen/xen_if.h"

struct xen_undo {
	struct xen_domain domain;
	/*
	 * The guard's own devices, opened with the rights of the beginning. The
	 * profiler makes no call on them, so that each guard that it starts
	 * finds them fresh.
	 */
	struct xen_if *xi;
	struct descriptors devices; /* theirs */
};

struct error *xen_undo_open(struct xen_undo *undo, const struct xen_domain *domain);
void xen_undo_close(struct xen_undo *undo);

extern const struct guard_ops xen_guard_ops;

#endif
