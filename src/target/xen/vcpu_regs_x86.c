/* SPDX-License-Identifier: BSD-3-Clause */
#define __XEN_TOOLS__ 1
#include "target/xen/vcpu_regs.h"

#include <string.h>

#include <xenctrl.h>
#include <xen/foreign/x86_32.h>
#include <xen/hvm/save.h>
#include <xen/xen.h>

/* Control bits: Intel SDM vol. 3, sections 2.2.1 and 2.5. */
#define CR0_PG	 (1ull << 31)
#define CR4_PSE	 (1ull << 4)
#define CR4_PAE	 (1ull << 5)
#define CR4_LA57 (1ull << 12)
#define EFER_LMA (1ull << 10)

/* Segment attributes as in the VMCB (AMD APM vol. 2, 15.5.1): bits 5-6 DPL, bit 9 L. */
#define ARBYTES_DPL(ar) (((ar) >> 5) & 3)
#define ARBYTES_L	(1u << 9)

#define PFN_MASK 0x000ffffffffff000ull

/* DWARF register numbers: System V ABI x86-64, figure 3.36; i386 psABI, table 2.14. */
enum { RAX, RDX, RCX, RBX, RSI, RDI, RBP, RSP, R8, R9, R10, R11, R12, R13, R14, R15 };
enum { EAX, ECX, EDX, EBX, ESP, EBP, ESI, EDI };

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

static void pv64_full(const vcpu_guest_context_t *ctx, struct regs *regs)
{
	const struct cpu_user_regs *from = &ctx->user_regs;

	regs->pc = from->rip;
	regs->fp = from->rbp;
	regs->flags = from->rflags;
	regs->gp[RAX] = from->rax;
	regs->gp[RDX] = from->rdx;
	regs->gp[RCX] = from->rcx;
	regs->gp[RBX] = from->rbx;
	regs->gp[RSI] = from->rsi;
	regs->gp[RDI] = from->rdi;
	regs->gp[RBP] = from->rbp;
	regs->gp[RSP] = from->rsp;
	regs->gp[R8] = from->r8;
	regs->gp[R9] = from->r9;
	regs->gp[R10] = from->r10;
	regs->gp[R11] = from->r11;
	regs->gp[R12] = from->r12;
	regs->gp[R13] = from->r13;
	regs->gp[R14] = from->r14;
	regs->gp[R15] = from->r15;
	regs->gp_valid = 0xffff;
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

static void pv32_full(const vcpu_guest_context_x86_32_t *ctx, struct regs *regs)
{
	const struct cpu_user_regs_x86_32 *from = &ctx->user_regs;

	regs->pc = from->eip;
	regs->fp = from->ebp;
	regs->flags = from->eflags;
	regs->gp[EAX] = from->eax;
	regs->gp[ECX] = from->ecx;
	regs->gp[EDX] = from->edx;
	regs->gp[EBX] = from->ebx;
	regs->gp[ESP] = from->esp;
	regs->gp[EBP] = from->ebp;
	regs->gp[ESI] = from->esi;
	regs->gp[EDI] = from->edi;
	regs->gp_valid = 0xff;
}

static void hvm_mmu(const struct hvm_hw_cpu *cpu, struct mmu *mmu)
{
	mmu->pse = cpu->cr4 & CR4_PSE;
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
		mmu->root = cpu->cr3 & 0xfffff000;
	}
}

static void hvm_for_copy(const struct hvm_hw_cpu *cpu, struct regs *regs)
{
	bool long_code = (cpu->msr_efer & EFER_LMA) && (cpu->cs_arbytes & ARBYTES_L);

	regs->word = long_code ? 8 : 4;
	regs->sp = long_code ? cpu->rsp : (uint32_t)(cpu->rsp + cpu->ss_base);
	regs->user = ARBYTES_DPL(cpu->ss_arbytes) == 3;
	hvm_mmu(cpu, &regs->mmu);
}

static void hvm_full(const struct hvm_hw_cpu *cpu, struct regs *regs)
{
	const uint64_t by_number64[] = {cpu->rax, cpu->rdx, cpu->rcx, cpu->rbx, cpu->rsi, cpu->rdi,
					cpu->rbp, cpu->rsp, cpu->r8,  cpu->r9,	cpu->r10, cpu->r11,
					cpu->r12, cpu->r13, cpu->r14, cpu->r15};
	const uint64_t by_number32[] = {cpu->rax, cpu->rcx, cpu->rdx, cpu->rbx,
					cpu->rsp, cpu->rbp, cpu->rsi, cpu->rdi};

	regs->flags = cpu->rflags;
	if (regs->word == 8) {
		regs->pc = cpu->rip;
		regs->fp = cpu->rbp;
		memcpy(regs->gp, by_number64, sizeof(by_number64));
		regs->gp_valid = 0xffff;
	} else {
		regs->pc = (uint32_t)(cpu->rip + cpu->cs_base);
		regs->fp = (uint32_t)(cpu->rbp + cpu->ss_base);
		memcpy(regs->gp, by_number32, sizeof(by_number32));
		regs->gp_valid = 0xff;
	}
}

void xen_regs_for_copy(enum xen_context kind, const void *context, struct regs *regs)
{
	switch (kind) {
	case XEN_CONTEXT_PV64:
		pv64_for_copy(context, regs);
		break;
	case XEN_CONTEXT_PV32:
		pv32_for_copy(context, regs);
		break;
	case XEN_CONTEXT_HVM:
		hvm_for_copy(context, regs);
		break;
	case XEN_CONTEXT_ARM:
		break;
	}
}

void xen_regs_full(enum xen_context kind, const void *context, struct regs *regs)
{
	switch (kind) {
	case XEN_CONTEXT_PV64:
		pv64_full(context, regs);
		break;
	case XEN_CONTEXT_PV32:
		pv32_full(context, regs);
		break;
	case XEN_CONTEXT_HVM:
		hvm_full(context, regs);
		break;
	case XEN_CONTEXT_ARM:
		break;
	}
}

enum xen_context xen_context_kind(struct xen_if *xi, const struct xen_domain *domain)
{
	if (domain->hvm)
		return XEN_CONTEXT_HVM;
	return xen_if_pv32(xi, domain->domid) ? XEN_CONTEXT_PV32 : XEN_CONTEXT_PV64;
}

const struct arch *xen_context_arch(enum xen_context kind, const void *context)
{
	return kind == XEN_CONTEXT_PV32 ? &arch_x86_32 : &arch_x86_64;
}
