/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef UNIPROF_TARGET_XEN_VCPU_REGS_H
#define UNIPROF_TARGET_XEN_VCPU_REGS_H

#include "arch/arch.h"
#include "target/xen/xen_if.h"

/*
 * From the context that the hypervisor gives to registers. The first sets only
 * what copying the stack needs (sp, word, mmu), for use while the guest is
 * paused; the second sets everything.
 */
void xen_regs_for_copy(enum xen_context kind, const void *context, struct regs *regs);
void xen_regs_full(enum xen_context kind, const void *context, struct regs *regs);

#endif
