/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef UNIPROF_TARGET_XEN_UNDO_H
#define UNIPROF_TARGET_XEN_UNDO_H

/* What the guard of a Xen domain does (target/guard.h); the context is a struct xen_undo. */

#include "target/guard.h"
#include "target/xen/xen_if.h"

struct xen_undo {
	struct xen_domain domain;
	struct xen_if *xi; /* the guard's own */
};

extern const struct guard_ops xen_guard_ops;

#endif
