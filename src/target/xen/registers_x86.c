/* SPDX-License-Identifier: BSD-3-Clause */

/* All that Xen tells of a vCPU's registers, from the context that the last sample read. */

#define __XEN_TOOLS__ 1
#include "target/xen/xen.h"

#include <string.h>

#include <xen/foreign/x86_32.h>
#include <xen/hvm/save.h>
#include <xen/xen.h>
#include <xenctrl.h>

#include "arch/x86/x86.h"

/* Segment attributes as in the VMCB (AMD APM vol. 2, 15.5.1): bits 5-6 DPL, bit 9 L, bit 10 D or B. */
#define ARBYTES_DPL(ar) (((ar) >> 5) & 3)
#define ARBYTES_L	(1u << 9)
#define ARBYTES_DB	(1u << 10)

#define PFN_MASK 0x000ffffffffff000ull

/* DWARF register numbers: System V ABI x86-64, figure 3.36; i386 psABI, table 2.14. */
enum { RBP = 6, EBP = 5 };

const uint32_t xen_cpu_record = HVM_SAVE_CODE(CPU);

static void pv64_for_copy(const vcpu_guest_context_t *ctx, struct regs *regs)
{
	bool kernel = ctx->flags & VGCF_in_kernel;
	/* In user mode the guest runs on its other top table (xen/arch-x86/xen.h, ctrlreg). */
	uint64_t cr3 = kernel || !ctx->ctrlreg[1] ? ctx->ctrlreg[3] : ctx->ctrlreg[1];

	regs->sp = ctx->user_regs.rsp;
	regs->word = 8;
	regs->user = !kernel;
	regs->mmu.mode = MMU_X86_4;
	regs->mmu.root = xen_cr3_to_pfn(cr3) << FRAME_SHIFT;
	regs->mmu.pse = false;
}

static uint64_t pv64_kernel_root(const vcpu_guest_context_t *ctx)
{
	return xen_cr3_to_pfn(ctx->ctrlreg[3]) << FRAME_SHIFT;
}

static void pv64_own_data(const vcpu_guest_context_t *ctx, struct regs *regs)
{
	/* Xen loads the other base itself when it enters the guest's kernel. */
	regs->own[0] = ctx->gs_base_kernel;
	regs->kernel_root = pv64_kernel_root(ctx);
}

/* `gp` by DWARF register number. */
static void set_general(struct regs *regs, const uint64_t *gp, uint64_t pc, uint64_t flags)
{
	const unsigned n = regs->word == 8 ? 16 : 8;

	memcpy(regs->gp, gp, n * sizeof(*gp));
	regs->gp_valid = (1u << n) - 1;
	regs->fp = gp[regs->word == 8 ? RBP : EBP];
	regs->pc = pc;
	regs->flags = flags;
}

static void pv64_full(const struct cpu_user_regs *from, struct regs *regs)
{
	const uint64_t gp[] = {from->rax, from->rdx, from->rcx, from->rbx, from->rsi, from->rdi,
			       from->rbp, from->rsp, from->r8,	from->r9,  from->r10, from->r11,
			       from->r12, from->r13, from->r14, from->r15};

	set_general(regs, gp, from->rip, from->rflags);
}

static void pv32_for_copy(const vcpu_guest_context_x86_32_t *ctx, struct regs *regs)
{
	regs->sp = ctx->user_regs.esp;
	regs->word = 4;
	regs->user = (ctx->user_regs.cs & 3) == 3;
	regs->mmu.mode = MMU_X86_PAE;
	regs->mmu.root = (uint64_t)xen_cr3_to_pfn_x86_32(ctx->ctrlreg[3]) << FRAME_SHIFT;
	regs->mmu.pse = false;
}

static void pv32_full(const struct cpu_user_regs_x86_32 *from, struct regs *regs)
{
	const uint64_t gp[] = {from->eax, from->ecx, from->edx, from->ebx,
			       from->esp, from->ebp, from->esi, from->edi};

	set_general(regs, gp, from->eip, from->eflags);
}

static void hvm_mmu(const struct hvm_hw_cpu *cpu, struct mmu *mmu)
{
	mmu->root = cpu->cr3 & PFN_MASK;
	if (!(cpu->cr0 & CR0_PG)) {
		mmu->mode = MMU_OFF;
	} else if (cpu->msr_efer & EFER_LMA) {
		mmu->mode = cpu->cr4 & CR4_LA57 ? MMU_X86_5 : MMU_X86_4;
	} else if (cpu->cr4 & CR4_PAE) {
		mmu->mode = MMU_X86_PAE;
		mmu->root = cpu->cr3 & 0xffffffe0; /* SDM vol. 3, table 4-7 */
	} else {
		mmu->mode = MMU_X86_32;
		mmu->pse = cpu->cr4 & CR4_PSE;
		mmu->root = cpu->cr3 & 0xfffff000;
	}
}

static uint32_t stack_address(const struct hvm_hw_cpu *cpu, uint64_t offset)
{
	return x86_stack_address(offset, cpu->ss_base, !(cpu->ss_arbytes & ARBYTES_DB));
}

static void hvm_for_copy(const struct hvm_hw_cpu *cpu, struct regs *regs)
{
	bool long_code = (cpu->msr_efer & EFER_LMA) && (cpu->cs_arbytes & ARBYTES_L);

	regs->word = long_code ? 8 : 4;
	regs->sp = long_code ? cpu->rsp : stack_address(cpu, cpu->rsp);
	regs->user = ARBYTES_DPL(cpu->ss_arbytes) == 3;
	hvm_mmu(cpu, &regs->mmu);
}

static uint64_t hvm_kernel_root(const struct regs *regs)
{
	return regs->mmu.root & ~X86_LINUX_USER_TABLE;
}

static void hvm_own_data(const struct hvm_hw_cpu *cpu, struct regs *regs)
{
	regs->own[0] = cpu->gs_base;
	regs->own[1] = cpu->shadow_gs;
	regs->kernel_root = hvm_kernel_root(regs);
}

/* Addresses become linear. */
static void hvm_full(const struct hvm_hw_cpu *cpu, struct regs *regs)
{
	const uint64_t gp64[] = {cpu->rax, cpu->rdx, cpu->rcx, cpu->rbx, cpu->rsi, cpu->rdi,
				 cpu->rbp, cpu->rsp, cpu->r8,  cpu->r9,	 cpu->r10, cpu->r11,
				 cpu->r12, cpu->r13, cpu->r14, cpu->r15};
	const uint64_t gp32[] = {cpu->rax, cpu->rcx, cpu->rdx, cpu->rbx,
				 cpu->rsp, cpu->rbp, cpu->rsi, cpu->rdi};

	regs->segmented = 0;
	if (regs->word == 8) {
		set_general(regs, gp64, cpu->rip, cpu->rflags);
		return;
	}
	set_general(regs, gp32, (uint32_t)(cpu->rip + cpu->cs_base), cpu->rflags);
	regs->fp = stack_address(cpu, cpu->rbp);
	regs->segmented = x86_segmented(cpu->cs_base, !(cpu->cs_arbytes & ARBYTES_DB));
}

void xen_regs_for_copy(enum xen_context kind, const void *context, struct regs *regs)
{
	switch (kind) {
	case XEN_CONTEXT_NATIVE:
		pv64_for_copy(context, regs);
		break;
	case XEN_CONTEXT_PV32:
		pv32_for_copy(context, regs);
		break;
	case XEN_CONTEXT_HVM:
		hvm_for_copy(context, regs);
		break;
	}
}

void xen_regs_own_data(enum xen_context kind, const void *context, struct regs *regs)
{
	if (kind == XEN_CONTEXT_NATIVE)
		pv64_own_data(context, regs);
	else if (kind == XEN_CONTEXT_HVM)
		hvm_own_data(context, regs);
}

void xen_regs_full(enum xen_context kind, const void *context, struct regs *regs)
{
	switch (kind) {
	case XEN_CONTEXT_NATIVE:
		pv64_full(&((const vcpu_guest_context_t *)context)->user_regs, regs);
		regs->kernel_root = pv64_kernel_root(context);
		break;
	case XEN_CONTEXT_PV32:
		pv32_full(&((const vcpu_guest_context_x86_32_t *)context)->user_regs, regs);
		break;
	case XEN_CONTEXT_HVM:
		hvm_full(context, regs);
		regs->kernel_root = hvm_kernel_root(regs);
		break;
	}
}

enum xen_context xen_context_kind(struct xen_if *xi, const struct xen_domain *domain)
{
	if (domain->hvm)
		return XEN_CONTEXT_HVM;
	return xen_if_pv32(xi, domain->domid) ? XEN_CONTEXT_PV32 : XEN_CONTEXT_NATIVE;
}

const struct arch *xen_context_arch(enum xen_context kind, const void *context)
{
	return kind == XEN_CONTEXT_PV32 ? &arch_x86_32 : &arch_x86_64;
}

static void control(struct registers *out, unsigned bytes, const char *name, uint64_t value,
		    const struct register_bit *bits)
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

/* A PV guest's own segment register: what is behind the selector is in its tables. `base` may be NULL. */
static void selector(struct registers *out, const char *name, uint32_t value, const uint64_t *base)
{
	registers_segment(out, &(struct register_segment){.name = name,
							  .selector = value,
							  .has_selector = true,
							  .has_base = base,
							  .base = base ? *base : 0});
}

static void pv64_segments(const vcpu_guest_context_t *ctx, struct registers *out)
{
	const struct cpu_user_regs *from = &ctx->user_regs;
	const bool kernel = ctx->flags & VGCF_in_kernel;

	selector(out, "cs", from->cs, NULL);
	selector(out, "ss", from->ss, NULL);
	selector(out, "ds", from->ds, NULL);
	selector(out, "es", from->es, NULL);
	selector(out, "fs", from->fs, &ctx->fs_base);
	selector(out, "gs", from->gs, kernel ? &ctx->gs_base_kernel : &ctx->gs_base_user);
}

static void pv64_registers(const vcpu_guest_context_t *ctx, struct registers *out)
{
	const uint64_t dr[] = {ctx->debugreg[0], ctx->debugreg[1], ctx->debugreg[2],
			       ctx->debugreg[3], ctx->debugreg[6], ctx->debugreg[7]};

	control(out, 8, "cr0", ctx->ctrlreg[0], x86_cr0);
	control(out, 8, "cr2", ctx->ctrlreg[2], NULL);
	/* As the guest would see it: Xen has the frame's number in it in another order. */
	control(out, 8, "cr3", xen_cr3_to_pfn(ctx->ctrlreg[3]) << FRAME_SHIFT, NULL);
	if (ctx->ctrlreg[1])
		control(out, 8, "cr3 (user)", xen_cr3_to_pfn(ctx->ctrlreg[1]) << FRAME_SHIFT, NULL);
	control(out, 8, "cr4", ctx->ctrlreg[4], x86_cr4);
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

	control(out, 4, "cr0", ctx->ctrlreg[0], x86_cr0);
	control(out, 4, "cr2", ctx->ctrlreg[2], NULL);
	control(out, 8, "cr3", (uint64_t)xen_cr3_to_pfn_x86_32(ctx->ctrlreg[3]) << FRAME_SHIFT,
		NULL);
	control(out, 4, "cr4", ctx->ctrlreg[4], x86_cr4);
	selector(out, "cs", from->cs, NULL);
	selector(out, "ss", from->ss, NULL);
	selector(out, "ds", from->ds, NULL);
	selector(out, "es", from->es, NULL);
	selector(out, "fs", from->fs, NULL);
	selector(out, "gs", from->gs, NULL);
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

	control(out, 8, "cr0", cpu->cr0, x86_cr0);
	control(out, 8, "cr2", cpu->cr2, NULL);
	control(out, 8, "cr3", cpu->cr3, NULL);
	control(out, 8, "cr4", cpu->cr4, x86_cr4);
	control(out, 8, "efer", cpu->msr_efer, x86_efer);
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

/* Contexts tell. */
void xen_find_own(struct xen_target *xt, struct sample *sample)
{
}

void xen_registers(struct target *target, uint32_t vcpu, struct registers *out)
{
	const struct xen_target *xt = (struct xen_target *)target;
	const void *context = xt->vcpus.now[vcpu].context;
	struct regs regs = {0};
	uint64_t ip;

	xen_regs_for_copy(xt->context, context, &regs);
	xen_regs_full(xt->context, context, &regs);
	/* Not the linear one, to which the base of the code segment has been added. */
	ip = xt->context == XEN_CONTEXT_HVM ? ((const struct hvm_hw_cpu *)context)->rip : regs.pc;
	x86_registers_general(&regs, ip, out);
	switch (xt->context) {
	case XEN_CONTEXT_NATIVE:
		pv64_registers(context, out);
		break;
	case XEN_CONTEXT_PV32:
		pv32_registers(context, out);
		break;
	case XEN_CONTEXT_HVM:
		hvm_registers(context, out);
		break;
	}
}

void xen_kernel_mmu(struct target *target, uint32_t vcpu, struct mmu *mmu)
{
	const struct xen_target *xt = (struct xen_target *)target;
	const vcpu_guest_context_t *ctx = xt->vcpus.now[vcpu].context;

	if (xt->context == XEN_CONTEXT_NATIVE)
		mmu->root = pv64_kernel_root(ctx);
}
