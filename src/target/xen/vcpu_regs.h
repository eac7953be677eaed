/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef UNIPROF_TARGET_XEN_VCPU_REGS_H
#define UNIPROF_TARGET_XEN_VCPU_REGS_H

#include "arch/arch.h"
#include "target/xen/xen_if.h"

/*
 * From the context that the hypervisor gives to registers. The first sets only
 * what copying the stack needs (sp, word, mmu), for use while the guest is
 * paused; the second, to be called then, sets everything else.
 * One file for each architecture of the host implements all of this.
 */
void xen_regs_for_copy(enum xen_context kind, const void *context, struct regs *regs);
void xen_regs_full(enum xen_context kind, const void *context, struct regs *regs);

/* The record of gethvmcontext_partial that has registers; 0: HVM guests have plain contexts here. */
extern const uint32_t xen_cpu_record;

/* What the contexts of this domain are. */
enum xen_context xen_context_kind(struct xen_if *xi, const struct xen_domain *domain);

/* ... and of which architecture the guest is, going by one of them; NULL if there is none yet. */
const struct arch *xen_context_arch(enum xen_context kind, const void *context);

#endif
