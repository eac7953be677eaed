/* SPDX-License-Identifier: BSD-3-Clause */

/* All that Xen tells of a vCPU's registers, from the context that the last sample read. */

#define __XEN_TOOLS__ 1
#include "target/xen/xen.h"

#include <xenctrl.h>
#include <xen/foreign/x86_32.h>
#include <xen/hvm/save.h>
#include <xen/xen.h>

#include "arch/x86_registers.h"
#include "target/xen/vcpu_regs.h"

static void control(struct registers *out, unsigned bytes, const char *name, uint64_t value,
		    const struct register_bits *bits)
{
	registers_add(out, REGISTER_CONTROL, name, bytes, value, bits);
}

static void debug(struct registers *out, unsigned bytes, const uint64_t value[6])
{
	static const char *const names[] = {"dr0", "dr1", "dr2", "dr3", "dr6", "dr7"};

	for (unsigned i = 0; i < 6; i++)
		registers_add(out, REGISTER_DEBUG, names[i], bytes, value[i], NULL);
}

static void system_value(struct registers *out, unsigned bytes, const char *name, uint64_t value)
{
	registers_add(out, REGISTER_SYSTEM, name, bytes, value, NULL);
}

/* A PV guest's own segment registers: what is behind a selector is in its tables. */
static void selector(struct registers *out, const char *name, uint32_t value)
{
	registers_segment(out, &(struct register_segment){.name = name,
							  .selector = value,
							  .has_selector = true});
}

static void selector_and_base(struct registers *out, const char *name, uint32_t value,
			      uint64_t base)
{
	registers_segment(out, &(struct register_segment){.name = name,
							  .selector = value,
							  .has_selector = true,
							  .has_base = true,
							  .base = base});
}

static void pv64_segments(const vcpu_guest_context_t *ctx, struct registers *out)
{
	const struct cpu_user_regs *from = &ctx->user_regs;
	const bool kernel = ctx->flags & VGCF_in_kernel;

	selector(out, "cs", from->cs);
	selector(out, "ss", from->ss);
	selector(out, "ds", from->ds);
	selector(out, "es", from->es);
	selector_and_base(out, "fs", from->fs, ctx->fs_base);
	selector_and_base(out, "gs", from->gs, kernel ? ctx->gs_base_kernel : ctx->gs_base_user);
}

static void pv64_registers(const vcpu_guest_context_t *ctx, struct registers *out)
{
	const uint64_t dr[] = {ctx->debugreg[0], ctx->debugreg[1], ctx->debugreg[2],
			       ctx->debugreg[3], ctx->debugreg[6], ctx->debugreg[7]};

	control(out, 8, "cr0", ctx->ctrlreg[0], &x86_cr0);
	control(out, 8, "cr2", ctx->ctrlreg[2], NULL);
	/* As the guest would see it: Xen has the frame's number in it in another order. */
	control(out, 8, "cr3", xen_cr3_to_pfn(ctx->ctrlreg[3]) << FRAME_SHIFT, NULL);
	if (ctx->ctrlreg[1])
		control(out, 8, "cr3 (user)", xen_cr3_to_pfn(ctx->ctrlreg[1]) << FRAME_SHIFT, NULL);
	control(out, 8, "cr4", ctx->ctrlreg[4], &x86_cr4);
	pv64_segments(ctx, out);
	debug(out, 8, dr);
	system_value(out, 8, "gs (kernel)", ctx->gs_base_kernel);
	system_value(out, 8, "gs (user)", ctx->gs_base_user);
	system_value(out, 8, "kernel_sp", ctx->kernel_sp);
	system_value(out, 8, "event", ctx->event_callback_eip);
	system_value(out, 8, "failsafe", ctx->failsafe_callback_eip);
	system_value(out, 8, "syscall", ctx->syscall_callback_eip);
	system_value(out, 8, "ldt", ctx->ldt_base);
}

static void pv32_registers(const vcpu_guest_context_x86_32_t *ctx, struct registers *out)
{
	const struct cpu_user_regs_x86_32 *from = &ctx->user_regs;
	const uint64_t dr[] = {ctx->debugreg[0], ctx->debugreg[1], ctx->debugreg[2],
			       ctx->debugreg[3], ctx->debugreg[6], ctx->debugreg[7]};

	control(out, 4, "cr0", ctx->ctrlreg[0], &x86_cr0);
	control(out, 4, "cr2", ctx->ctrlreg[2], NULL);
	control(out, 8, "cr3", (uint64_t)xen_cr3_to_pfn_x86_32(ctx->ctrlreg[3]) << FRAME_SHIFT,
		NULL);
	control(out, 4, "cr4", ctx->ctrlreg[4], &x86_cr4);
	selector(out, "cs", from->cs);
	selector(out, "ss", from->ss);
	selector(out, "ds", from->ds);
	selector(out, "es", from->es);
	selector(out, "fs", from->fs);
	selector(out, "gs", from->gs);
	debug(out, 4, dr);
	system_value(out, 4, "kernel_sp", ctx->kernel_sp);
	system_value(out, 4, "event", ctx->event_callback_eip);
	system_value(out, 4, "failsafe", ctx->failsafe_callback_eip);
	system_value(out, 4, "ldt", ctx->ldt_base);
}

static void segment(struct registers *out, const char *name, uint32_t selector, uint64_t base,
		    uint32_t limit, uint32_t attributes)
{
	registers_segment(out, &(struct register_segment){.name = name,
							  .selector = selector,
							  .has_selector = true,
							  .base = base,
							  .has_base = true,
							  .limit = limit,
							  .has_limit = true,
							  .attributes = (uint16_t)attributes,
							  .has_attributes = true});
}

static void table(struct registers *out, const char *name, uint64_t base, uint32_t limit)
{
	registers_segment(out, &(struct register_segment){.name = name,
							  .base = base,
							  .has_base = true,
							  .limit = limit,
							  .has_limit = true});
}

static void hvm_segments(const struct hvm_hw_cpu *cpu, struct registers *out)
{
	segment(out, "cs", cpu->cs_sel, cpu->cs_base, cpu->cs_limit, cpu->cs_arbytes);
	segment(out, "ss", cpu->ss_sel, cpu->ss_base, cpu->ss_limit, cpu->ss_arbytes);
	segment(out, "ds", cpu->ds_sel, cpu->ds_base, cpu->ds_limit, cpu->ds_arbytes);
	segment(out, "es", cpu->es_sel, cpu->es_base, cpu->es_limit, cpu->es_arbytes);
	segment(out, "fs", cpu->fs_sel, cpu->fs_base, cpu->fs_limit, cpu->fs_arbytes);
	segment(out, "gs", cpu->gs_sel, cpu->gs_base, cpu->gs_limit, cpu->gs_arbytes);
	segment(out, "tr", cpu->tr_sel, cpu->tr_base, cpu->tr_limit, cpu->tr_arbytes);
	segment(out, "ldtr", cpu->ldtr_sel, cpu->ldtr_base, cpu->ldtr_limit, cpu->ldtr_arbytes);
	table(out, "gdtr", cpu->gdtr_base, cpu->gdtr_limit);
	table(out, "idtr", cpu->idtr_base, cpu->idtr_limit);
}

static void hvm_registers(const struct hvm_hw_cpu *cpu, struct registers *out)
{
	const uint64_t dr[] = {cpu->dr0, cpu->dr1, cpu->dr2, cpu->dr3, cpu->dr6, cpu->dr7};

	control(out, 8, "cr0", cpu->cr0, &x86_cr0);
	control(out, 8, "cr2", cpu->cr2, NULL);
	control(out, 8, "cr3", cpu->cr3, NULL);
	control(out, 8, "cr4", cpu->cr4, &x86_cr4);
	control(out, 8, "efer", cpu->msr_efer, &x86_efer);
	hvm_segments(cpu, out);
	debug(out, 8, dr);
	system_value(out, 8, "star", cpu->msr_star);
	system_value(out, 8, "lstar", cpu->msr_lstar);
	system_value(out, 8, "cstar", cpu->msr_cstar);
	system_value(out, 8, "fmask", cpu->msr_syscall_mask);
	system_value(out, 8, "kernel_gs", cpu->shadow_gs);
	system_value(out, 8, "sysenter_cs", cpu->sysenter_cs);
	system_value(out, 8, "sysenter_sp", cpu->sysenter_esp);
	system_value(out, 8, "sysenter_ip", cpu->sysenter_eip);
	system_value(out, 8, "tsc_aux", cpu->msr_tsc_aux);
}

/* Not the linear one, to which the base of the code segment has been added. */
static uint64_t instruction_pointer(enum xen_context kind, const void *context,
				    const struct regs *regs)
{
	return kind == XEN_CONTEXT_HVM ? ((const struct hvm_hw_cpu *)context)->rip : regs->pc;
}

void xen_registers(struct target *target, uint32_t vcpu, struct registers *out)
{
	const struct xen_target *xt = (struct xen_target *)target;
	const void *context = xt->vcpus.now[vcpu].context;
	struct regs regs = {0};

	xen_regs_for_copy(xt->context, context, &regs);
	xen_regs_full(xt->context, context, &regs);
	x86_registers_general(&regs, instruction_pointer(xt->context, context, &regs), out);
	switch (xt->context) {
	case XEN_CONTEXT_PV64:
		pv64_registers(context, out);
		break;
	case XEN_CONTEXT_PV32:
		pv32_registers(context, out);
		break;
	case XEN_CONTEXT_HVM:
		hvm_registers(context, out);
		break;
	case XEN_CONTEXT_ARM:
		break;
	}
}
