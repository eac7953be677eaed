/* SPDX-License-Identifier: BSD-3-Clause */

/* All that Xen tells of a vCPU's registers, from the context that the last sample read. */

#define __XEN_TOOLS__ 1
#include "target/xen/xen.h"

#include <xen/xen.h>

#include "arch/arm/arm.h"

/* Modes of AArch64 (DDI 0487, C5.2.20). */
enum { MODE64_EL0 = 0, MODE64_EL1H = 5 };

/* Modes of AArch32, without the bit above (DDI 0487, table G1-5). */
enum { MODE_USR = 0, MODE_FIQ = 1, MODE_IRQ = 2, MODE_SVC = 3, MODE_ABT = 7, MODE_UND = 11 };

#define SCTLR_M 1u

/* DWARF register numbers of AArch32 (AADWARF32) that have names here. */
enum { R7 = 7, R8 = 8, R11 = 11, SP = 13, LR = 14, PC = 15 };
/* ... and of AArch64 (AADWARF64). */
enum { X29 = 29, X30 = 30, SP64 = 31 };

const uint32_t xen_cpu_record = 0;

static bool runs_aarch32(const vcpu_guest_context_t *ctx)
{
	return ctx->user_regs.cpsr & ARM_PSTATE_WIDTH32;
}

/* EL1 selects the address translation, whatever runs in EL0. */
static bool kernel_is_aarch64(const vcpu_guest_context_t *ctx)
{
	return !runs_aarch32(ctx) || ctx->user_regs.sp_el1 || ctx->ttbcr >> 32;
}

static void set_mmu(const vcpu_guest_context_t *ctx, struct mmu *mmu)
{
	mmu->root = ctx->ttbr0;
	mmu->root_high = ctx->ttbr1;
	mmu->control = ctx->ttbcr;
	if (!(ctx->sctlr & SCTLR_M))
		mmu->mode = MMU_OFF;
	else if (kernel_is_aarch64(ctx))
		mmu->mode = MMU_ARM64;
	else
		mmu->mode = ctx->ttbcr & ARM_TTBCR_EAE ? MMU_ARM_LPAE : MMU_ARM_SHORT;
}

struct banked {
	uint32_t sp, lr;
};

/* Each mode has a stack pointer and a link register of its own. */
static struct banked banked(const struct vcpu_guest_core_regs *from)
{
	switch (from->cpsr & ARM_PSTATE_MODE) {
	case MODE_FIQ:
		return (struct banked){from->sp_fiq, from->lr_fiq};
	case MODE_IRQ:
		return (struct banked){from->sp_irq, from->lr_irq};
	case MODE_SVC:
		return (struct banked){from->sp_svc, from->lr_svc};
	case MODE_ABT:
		return (struct banked){from->sp_abt, from->lr_abt};
	case MODE_UND:
		return (struct banked){from->sp_und, from->lr_und};
	default:
		return (struct banked){from->sp_usr, from->lr_usr};
	}
}

void xen_regs_for_copy(enum xen_context kind, const void *context, struct regs *regs)
{
	const vcpu_guest_context_t *ctx = context;
	const struct vcpu_guest_core_regs *from = &ctx->user_regs;

	regs->isa = ISA_ARM;
	set_mmu(ctx, &regs->mmu);
	if (runs_aarch32(ctx)) {
		regs->sp = banked(from).sp;
		regs->word = 4;
		regs->user = (from->cpsr & ARM_PSTATE_MODE) == MODE_USR;
	} else {
		regs->sp =
			(from->cpsr & ARM_PSTATE_MODE) == MODE64_EL1H ? from->sp_el1 : from->sp_el0;
		regs->word = 8;
		regs->user = (from->cpsr & ARM_PSTATE_MODE) == MODE64_EL0;
	}
}

static void full_64(const struct vcpu_guest_core_regs *from, struct regs *regs)
{
	const uint64_t x[] = {from->x0,	 from->x1,  from->x2,  from->x3,  from->x4,  from->x5,
			      from->x6,	 from->x7,  from->x8,  from->x9,  from->x10, from->x11,
			      from->x12, from->x13, from->x14, from->x15, from->x16, from->x17,
			      from->x18, from->x19, from->x20, from->x21, from->x22, from->x23,
			      from->x24, from->x25, from->x26, from->x27, from->x28, from->x29,
			      from->x30};

	for (unsigned i = 0; i <= X30; i++)
		regs->gp[i] = x[i];
	regs->gp[SP64] = regs->sp;
	regs->gp_valid = UINT32_MAX;
	regs->pc = from->pc64;
	regs->fp = regs->gp[X29];
	regs->has_elr = true;
	regs->elr = from->elr_el1;
	regs->spsr = from->spsr_el1;
}

static void full_32(const struct vcpu_guest_core_regs *from, struct regs *regs)
{
	const uint32_t low[] = {from->r0_usr, from->r1_usr, from->r2_usr, from->r3_usr,
				from->r4_usr, from->r5_usr, from->r6_usr, from->r7_usr};
	const uint32_t usual[] = {from->r8_usr, from->r9_usr, from->r10_usr, from->r11_usr,
				  from->r12_usr};
	const uint32_t fiq[] = {from->r8_fiq, from->r9_fiq, from->r10_fiq, from->r11_fiq,
				from->r12_fiq};
	const uint32_t *high = (from->cpsr & ARM_PSTATE_MODE) == MODE_FIQ ? fiq : usual;

	for (unsigned i = 0; i < R8; i++)
		regs->gp[i] = low[i];
	for (unsigned i = R8; i < SP; i++)
		regs->gp[i] = high[i - R8];
	regs->gp[SP] = banked(from).sp;
	regs->gp[LR] = banked(from).lr;
	regs->gp[PC] = from->pc32;
	regs->gp_valid = 0xffff;
	regs->pc = from->pc32;
	regs->fp = regs->gp[from->cpsr & ARM_PSTATE_T ? R7 : R11];
}

void xen_regs_own_data(enum xen_context kind, const void *context, struct regs *regs)
{
	const vcpu_guest_context_t *ctx = context;

	regs->kernel_root = regs->mmu.mode == MMU_ARM64 ? arm64_linux_kernel_root(ctx->ttbr1) : 0;
}

/* Searches for a vCPU's CPU that may fail. */
#define SEARCHES_MAX 100u
#define SEARCH_STEPS (1ull << 24)

/* MPIDR_EL1 of a vCPU (xen/arch/arm/include/asm/domain.h, vcpuid_to_vaffinity): at most 16 have the higher levels alike. */
static uint64_t affinity(uint32_t vcpu)
{
	return (vcpu & 0xf) | (uint64_t)(vcpu >> 4) << 8;
}

/* Looks at the guest's kernel, whatever the vCPU runs. */
static uint64_t find_own(struct xen_target *xt, const struct sample *sample, uint32_t id)
{
	struct regs regs = sample->vcpu[id].regs;
	struct memory_view view = {&xt->base, &regs};
	struct budget budget = {.left = SEARCH_STEPS};
	const struct guest_memory memory = {&view, memory_view_read, &budget};

	if (regs.kernel_root)
		mmu_use_kernel(&regs.mmu, regs.kernel_root);
	return guest_cpu_own(sample->request.thread, &memory, affinity(id), sample->vcpus);
}

void xen_find_own(struct xen_target *xt, struct sample *sample)
{
	for (uint32_t i = 0; i < sample->vcpus; i++) {
		struct vcpu_sample *vcpu = &sample->vcpu[i];
		struct xen_seen *seen = &xt->vcpus.seen[i];

		if (!vcpu->online || vcpu->regs.own[0] || seen->searches == SEARCHES_MAX ||
		    vcpu->regs.mmu.mode != MMU_ARM64)
			continue;
		vcpu->regs.own[0] = vcpu->regs.own[1] = find_own(xt, sample, i);
		seen->searches += !vcpu->regs.own[0];
	}
}

void xen_regs_full(enum xen_context kind, const void *context, struct regs *regs)
{
	const vcpu_guest_context_t *ctx = context;

	xen_regs_for_copy(kind, context, regs);
	xen_regs_own_data(kind, context, regs);
	regs->flags = ctx->user_regs.cpsr;
	if (runs_aarch32(ctx))
		full_32(&ctx->user_regs, regs);
	else
		full_64(&ctx->user_regs, regs);
}

enum xen_context xen_context_kind(struct xen_if *xi, const struct xen_domain *domain)
{
	return XEN_CONTEXT_NATIVE;
}

const struct arch *xen_context_arch(enum xen_context kind, const void *context)
{
	return !context || kernel_is_aarch64(context) ? &arch_arm64 : &arch_arm32;
}

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
	arch_arm64.show(&regs, out);
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

void xen_kernel_mmu(struct target *target, uint32_t vcpu, struct mmu *mmu)
{
}
