/* SPDX-License-Identifier: BSD-3-Clause */
#pragma once

/* Of vcpu_kernel.h: KVM of arm64, and the page tables of its guests. */

/* include/linux/sched.h: set from before the guest is entered until interrupts that came meanwhile are handled. */
#define PF_VCPU 1u

/* HCR_EL2.E2H (DDI 0487, D19.2.48), PSTATE (C5.2.20) and SCTLR_EL1.M. */
#define HCR_E2H	       (1ull << 34)
#define PSTATE_WIDTH32 0x10u
#define PSTATE_MODE    0x0fu
#define PSTATE_EL      0x0cu
#define EL1	       0x04u
#define EL1H	       0x05u
#define SCTLR_M	       1u

/* x0 to x30, SP_EL0, ... */
struct user_pt_regs {
	__u64 regs[31], sp, pc, pstate;
} IN_KERNEL;

enum vcpu_sysreg { SCTLR_EL1, TTBR0_EL1, TTBR1_EL1, TCR_EL1, SP_EL1, ELR_EL1, SPSR_EL1, TPIDR_EL1 };

struct kvm_cpu_context {
	struct user_pt_regs regs;
	__u64 sys_regs[1];
} IN_KERNEL;

struct kvm_vcpu_arch {
	struct kvm_cpu_context ctxt;
	__u64 hcr_el2;
} IN_KERNEL;

/* Since Linux 6.3. */
struct kvm_protected_vm {
	__u32 handle; /* of the guest at EL2; 0: there is none */
} IN_KERNEL;

struct kvm_arch {
	struct kvm_protected_vm pkvm;
} IN_KERNEL;

struct kvm {
	struct kvm_memslots *memslots[1];
	struct kvm_arch arch;
} IN_KERNEL;

struct kvm_vcpu_stat {
	__u64 hvc_exit_stat, exits;
} IN_KERNEL;

struct kvm_vcpu {
	struct kvm *kvm;
	struct preempt_notifier preempt_notifier;
	struct kvm_vcpu_arch arch;
	struct kvm_vcpu_stat stat;
} IN_KERNEL;

/* Registers of a vCPU: whether KVM's copies of them can be believed. */

static bool is_at_el2(const struct kvm_vcpu *vcpu)
{
	const struct kvm *kvm = BPF_CORE_READ(vcpu, kvm);
	const struct kvm_protected_vm *pkvm;

	if (!bpf_core_field_exists(kvm->arch.pkvm.handle))
		return false;
	pkvm = (const void *)kvm + bpf_core_field_offset(struct kvm, arch.pkvm);
	return BPF_CORE_READ_BITFIELD_PROBED(pkvm, handle);
}

/*
 * A kernel at EL1 gives its own registers of EL1 to the guest, and takes them
 * back at each exit (__sysreg_save_state_nvhe). One at EL2 (VHE, for which KVM
 * sets E2H: vcpu_reset_hcr) has others: the guest's stay until
 * kvm_arch_vcpu_put, which, when the thread leaves its CPU, comes after the perf
 * event (kernel/sched/core.c, prepare_task_switch). No nested guest is without VHE.
 */
static __u32 lasting_lack_of(const struct kvm_vcpu *vcpu)
{
	if (BPF_CORE_READ(vcpu, arch.hcr_el2) & HCR_E2H)
		return LACK_VHE;
	return is_at_el2(vcpu) ? LACK_PKVM : LACK_NONE;
}

static __u32 lack_of(const struct kvm_vcpu *vcpu, const struct bpf_arm64 *regs)
{
	const __u32 lasting = lasting_lack_of(vcpu);

	if (lasting)
		return lasting;
	if (regs->pstate & PSTATE_WIDTH32 || !(regs->sctlr & SCTLR_M))
		return LACK_NOT_LONG;
	return (regs->pstate & PSTATE_EL) > EL1 ? LACK_NESTED : LACK_NONE;
}

static __u64 system_register(const struct kvm_vcpu *vcpu, __u64 number)
{
	const __u64 at = bpf_core_field_offset(struct kvm_vcpu, arch.ctxt.sys_regs);
	__u64 value = 0;

	bpf_probe_read_kernel(&value, sizeof(value),
			      (const void *)vcpu + at + number * sizeof(value));
	return value;
}

#define SYSTEM_REGISTER(vcpu, name) \
	system_register(vcpu, bpf_core_enum_value(enum vcpu_sysreg, name))

/* What is changed in steps, KVM changes at EL2, where no interrupt comes between (__kvm_adjust_pc). */
static void read_regs(const struct task_struct *task, const struct kvm_vcpu *vcpu,
		      struct bpf_regs *regs)
{
	struct bpf_arm64 *to = &regs->arm64;

	regs->in_guest = BPF_CORE_READ(task, flags) & PF_VCPU;
	regs->complete = 0;
	regs->exit = BPF_CORE_READ(vcpu, stat.exits);
	regs->changes = BPF_CORE_READ(vcpu, stat.hvc_exit_stat);
	BPF_CORE_READ_INTO(&to->x, vcpu, arch.ctxt.regs.regs);
	to->pc = BPF_CORE_READ(vcpu, arch.ctxt.regs.pc);
	to->pstate = BPF_CORE_READ(vcpu, arch.ctxt.regs.pstate);
	to->sctlr = SYSTEM_REGISTER(vcpu, SCTLR_EL1);
	to->ttbr0 = SYSTEM_REGISTER(vcpu, TTBR0_EL1);
	to->ttbr1 = SYSTEM_REGISTER(vcpu, TTBR1_EL1);
	to->tcr = SYSTEM_REGISTER(vcpu, TCR_EL1);
	to->elr = SYSTEM_REGISTER(vcpu, ELR_EL1);
	to->spsr = SYSTEM_REGISTER(vcpu, SPSR_EL1);
	to->tpidr = SYSTEM_REGISTER(vcpu, TPIDR_EL1);
	regs->sp = (to->pstate & PSTATE_MODE) == EL1H ? SYSTEM_REGISTER(vcpu, SP_EL1)
						      : BPF_CORE_READ(vcpu, arch.ctxt.regs.sp);
	regs->lack = lack_of(vcpu, to);
}

/* Page tables, as arch/arm/arm.c walks them and says where they are described. */

#define TCR_T0SZ 0
#define TCR_T1SZ 16
#define TCR_SZ	 0x3f
#define TCR_EPD0 (1ull << 7)
#define TCR_EPD1 (1ull << 23)
#define TCR_TG0	 14
#define TCR_TG1	 30
#define TCR_TBI0 (1ull << 37)
#define TCR_TBI1 (1ull << 38)
#define TCR_DS	 (1ull << 59)

#define DESC_VALID 1ull
#define DESC_TABLE 2ull

#define CHOICE	    55
#define VA_BITS_MIN 16u
#define VA_BITS_MAX 52u
#define LEVELS_MAX  5

/* One of the two halves of the address space. */
struct half {
	__u64 root;
	__u32 granule; /* log 2 of its size; 0: reserved */
	__u32 bits;    /* of an address */
	bool off, tbi, wide;
};

/* By the field of TCR_EL1. */
static __u32 granule_low(__u32 field)
{
	return field == 0 ? 12 : field == 1 ? 16 : field == 2 ? 14 : 0;
}

static __u32 granule_high(__u32 field)
{
	return field == 1 ? 14 : field == 2 ? 12 : field == 3 ? 16 : 0;
}

static void low_half(__u64 tcr, struct half *half)
{
	half->granule = granule_low(tcr >> TCR_TG0 & 3);
	half->bits = 64 - (tcr >> TCR_T0SZ & TCR_SZ);
	half->off = tcr & TCR_EPD0;
	half->tbi = tcr & TCR_TBI0;
}

static void high_half(__u64 tcr, struct half *half)
{
	half->granule = granule_high(tcr >> TCR_TG1 & 3);
	half->bits = 64 - (tcr >> TCR_T1SZ & TCR_SZ);
	half->off = tcr & TCR_EPD1;
	half->tbi = tcr & TCR_TBI1;
}

static bool in_half(const struct half *half, __u64 va)
{
	const __u64 high = ~0ull << half->bits, meant = va >> CHOICE & 1 ? va | high : va & ~high;

	return half->tbi ? !((va ^ meant) << 8) : va == meant;
}

/* Translations exist, of this address, too. */
static bool is_walked(const struct half *half, __u64 va)
{
	if (half->off || !half->granule || half->bits > VA_BITS_MAX || half->bits < VA_BITS_MIN ||
	    half->bits <= half->granule || !in_half(half, va))
		return false;
	return half->bits <= 48 || half->granule == 16 || half->wide;
}

static __u64 address_of(const struct half *half, __u64 desc)
{
	const __u64 aligned = ~0ull << half->granule;

	if (half->granule == 16)
		return (desc & 0x0000ffffffffffffull & aligned) | (desc >> 12 & 0xf) << 48;
	if (half->wide)
		return (desc & 0x0003ffffffffffffull & aligned) | (desc >> 8 & 3) << 50;
	return desc & 0x0000ffffffffffffull & aligned;
}

static __u64 top_table(const struct half *half, __u32 index_bits)
{
	const __u64 size = index_bits > 3 ? 1ull << (index_bits + 3) : 64;
	const __u64 base = half->root & 0x0000fffffffffffeull & ~(size - 1);

	return (half->granule == 16 ? half->bits > 48 : half->wide)
		       ? base | (half->root >> 2 & 0xf) << 48
		       : base;
}

static bool has_blocks(const struct half *half, __u32 shift)
{
	if (half->granule == 12)
		return shift == 21 || shift == 30 || (shift == 39 && half->wide);
	if (half->granule == 14)
		return shift == 25 || (shift == 36 && half->wide);
	return shift == 29 || shift == 42;
}

/* Address in the monitor of the frame that an entry of the last level, or of a block, maps. */
static __u64 frame_of(__u64 start, __u32 shift, __u64 va)
{
	const __u64 inside = (1ull << shift) - PAGE;

	return host_address((start & ~inside) | (va & inside));
}

static __u64 walk(const struct half *half, __u64 va)
{
	const __u32 stride = half->granule - 3;
	const __u32 levels = (half->bits - half->granule + stride - 1) / stride;
	__u32 shift = half->granule + (levels - 1) * stride, bits = half->bits - shift;
	__u64 table = top_table(half, bits), entry = 0;

	for (__u32 level = 0; level < LEVELS_MAX; level++) {
		const __u64 hva =
			host_address(table + (va >> shift & ((1ull << bits) - 1)) * sizeof(entry));

		if (!hva)
			return 0;
		if (bpf_probe_read_user(&entry, sizeof(entry), (const void *)hva))
			return (hva & ~(PAGE - 1ull)) | TO_BRING;
		if (!(entry & DESC_VALID))
			return 0;
		table = address_of(half, entry);
		if (shift == half->granule)
			return entry & DESC_TABLE ? frame_of(table, shift, va) : 0;
		if (!(entry & DESC_TABLE))
			return has_blocks(half, shift) ? frame_of(table, shift, va) : 0;
		shift -= stride;
		bits = stride;
	}
	return 0;
}

/*
 * Address in the monitor of a virtual frame of the guest, or of a missing page |
 * TO_BRING; 0: not mapped.
 */
__noinline __u64 host_page(__u64 va, __u64 ttbr0, __u64 ttbr1, __u64 tcr)
{
	struct half half = {.wide = tcr & TCR_DS};

	if (va >> CHOICE & 1) {
		half.root = ttbr1;
		high_half(tcr, &half);
	} else {
		half.root = ttbr0;
		low_half(tcr, &half);
	}
	return is_walked(&half, va) ? walk(&half, va) : 0;
}

/* As host_page(), of a vCPU with these registers. */
static __u64 page_of(const struct bpf_regs *regs, __u64 va)
{
	return host_page(va, regs->arm64.ttbr0, regs->arm64.ttbr1, regs->arm64.tcr);
}

/* KVM of arm64 keeps no guest from being looked into, but pKVM: see lasting_lack_of(). */
static __u32 protection_of(const struct kvm_vcpu *vcpu)
{
	return 0;
}

/* Linux's tables for the kernel are behind those for programs, whose ASID has a bit set (KPTI; arch/arm/arm.c). */
#define LINUX_USER_ASID	    (1ull << 48)
#define LINUX_KERNEL_BEHIND 0x2000u

static struct kernel_tables kernel_tables_of(const struct bpf_regs *regs)
{
	const __u64 ttbr1 = regs->arm64.ttbr1;

	return (struct kernel_tables){.root = ttbr1,
				      .apart = ttbr1 & LINUX_USER_ASID
						       ? (ttbr1 & ~LINUX_USER_ASID) +
								 LINUX_KERNEL_BEHIND
						       : 0,
				      .control = regs->arm64.tcr};
}

/* Of the upper half of all addresses, where kernels are. */
static __always_inline __u64 kernel_page_by(__u64 root, __u64 control, __u64 va)
{
	return va >> CHOICE & 1 ? host_page(va, 0, root, control) : 0;
}
