/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef UNIPROF_TARGET_XEN_XEN_H
#define UNIPROF_TARGET_XEN_XEN_H

/* What the files of the Xen target share; nobody else includes this. */

#include "target/target.h"
#include "target/guard.h"
#include "target/window.h"
#include "target/xen/frames.h"
#include "target/xen/undo.h"
#include "target/xen/vcpus.h"
#include "target/xen/xen_if.h"

/* The end of a pause whose length has a bound. */
struct hurry {
	uint64_t until_ns; /* CLOCK_MONOTONIC; frames are found until then */
	bool over;	   /* one was not, for that reason */
};

struct xen_target {
	struct target base;
	struct xen_if *xi;
	struct frames *frames;
	struct window_trail
		*trails;    /* of each vCPU's stack, as long as the frames are not cleared */
	uint64_t clearings; /* as of the trails */
	struct guard *guard;
	struct guard_page *guard_page;
	struct xen_undo undo; /* the guard's context */
	struct xen_domain domain;
	enum xen_context context;
	struct xen_vcpus vcpus;
	bool mapped_ahead; /* the first sample is behind us */
	struct hurry hurry;
	uint32_t fit; /* contexts that are read in one pause, when its length has a bound */
};

/* Chooses xt->fit before the first pause: all contexts took `took_ns` without one. */
void xen_expect_fit(struct xen_target *xt, const struct sample *sample, uint64_t took_ns);

/*
 * Copies the stacks of the vCPUs in xt->vcpus.read, whose contexts are here;
 * false if a frame was missing.
 */
bool xen_copy_stacks(struct xen_target *xt, struct sample *sample, const struct physmem *mem);

/*
 * One pause: contexts and copies of the vCPUs in xt->vcpus.read, with a bound
 * on its length of some of them only; negative errno as from xen_if_batch and
 * xen_if_go. *whole: no frame was missing.
 */
int xen_take(struct xen_target *xt, struct sample *sample, const struct physmem *mem, bool *whole);

/* Fill in what needs no hurry: all registers of who was read; and, once a sample, all else. */
void xen_finish_registers(const struct xen_target *xt, struct sample *sample);
void xen_finish(struct xen_target *xt, struct sample *sample);

struct error *xen_failed(const struct xen_target *xt, int rc);

struct error *xen_sample(struct target *target, struct sample *sample);
struct error *xen_snapshot(struct target *target, struct sample *sample);
void xen_registers(struct target *target, uint32_t vcpu, struct registers *out);
size_t xen_read(struct target *target, const struct regs *regs, uint64_t va, void *buf, size_t len);

#endif
