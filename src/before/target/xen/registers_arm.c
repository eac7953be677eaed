/* SPDX-License-Identifier: BSD-3-Clause */

/* All that Xen tells of a vCPU's registers, from the context that the last sample read. */

#define __XEN_TOOLS__ 1
#include "target/xen/xen.h"

#include <xen/xen.h>

#include "arch/arm_registers.h"
#include "target/xen/vcpu_regs.h"

static void control(struct registers *out, const char *name, uint64_t value)
{
	registers_add(out, REGISTER_CONTROL, name, 8, value, NULL);
}

void xen_registers(struct target *target, uint32_t vcpu, struct registers *out)
{
	const struct xen_target *xt = (struct xen_target *)target;
	const vcpu_guest_context_t *context = xt->vcpus.now[vcpu].context;
	struct regs regs = {0};

	xen_regs_full(xt->context, context, &regs);
	arm_registers_show(&regs, out);
	control(out, "sctlr", context->sctlr);
	control(out, "tcr", context->ttbcr);
	control(out, "ttbr0", context->ttbr0);
	control(out, "ttbr1", context->ttbr1);
	if (regs.word != 8)
		return;
	registers_add(out, REGISTER_SYSTEM, "sp_el0", 8, context->user_regs.sp_el0, NULL);
	registers_add(out, REGISTER_SYSTEM, "sp_el1", 8, context->user_regs.sp_el1, NULL);
	registers_add(out, REGISTER_SYSTEM, "elr_el1", 8, context->user_regs.elr_el1, NULL);
	registers_add(out, REGISTER_SYSTEM, "spsr_el1", 8, context->user_regs.spsr_el1, NULL);
}
