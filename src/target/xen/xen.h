/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef UNIPROF_TARGET_XEN_XEN_H
#define UNIPROF_TARGET_XEN_XEN_H

/* What the files of the Xen target share; nobody else includes this. */

#include "target/target.h"
#include "target/guard.h"
#include "target/xen/frames.h"
#include "target/xen/undo.h"
#include "target/xen/xen_if.h"

struct xen_target {
	struct target base;
	struct xen_if *xi;
	struct frames *frames;
	struct guard *guard;
	struct guard_page *guard_page;
	struct xen_undo undo; /* the guard's context */
	struct xen_domain domain;
	enum xen_context context;
	struct xen_vcpu *vcpus; /* [base.info.vcpus]: the last stop */
	uint64_t *cpu_ns;	/* [base.info.vcpus]: CPU time at the sample before */
	bool first;		/* no sample yet: cpu_ns says nothing */
};

/* One stop and go with the copies between; negative errno as from xen_if_stop and xen_if_go. */
int xen_take(struct xen_target *xt, struct sample *sample, const struct physmem *mem, bool *whole);

/* Fills in what needs no pause: states and all registers. Once a sample. */
void xen_finish(struct xen_target *xt, struct sample *sample);

struct error *xen_failed(const struct xen_target *xt, int rc);

struct error *xen_sample(struct target *target, struct sample *sample);
struct error *xen_snapshot(struct target *target, struct sample *sample);
size_t xen_read(struct target *target, const struct regs *regs, uint64_t va, void *buf, size_t len);

#endif
