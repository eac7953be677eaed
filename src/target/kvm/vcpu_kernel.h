/* SPDX-License-Identifier: BSD-3-Clause */
#pragma once

/* Of the program for BPF (vcpu.bpf.c): what it knows of kernels, the host's and the guest's. */

/*
 * Types of the kernel (include/linux/sched.h, kvm_host.h and
 * arch/.../include/asm/kvm_host.h), with the members that are read. The loader
 * moves each access to the member's offset in the kernel that runs.
 */
#define IN_KERNEL __attribute__((preserve_access_index))

struct hlist_node {
	struct hlist_node *next, **pprev;
} IN_KERNEL;

struct hlist_head {
	struct hlist_node *first;
} IN_KERNEL;

struct preempt_notifier {
	struct hlist_node link;
} IN_KERNEL;

struct sched_info {
	unsigned long pcount;
} IN_KERNEL;

struct task_struct {
	struct hlist_head preempt_notifiers;
	struct sched_info sched_info;
	unsigned int __state; /* 0: it is on a CPU, or wants one */
	unsigned int flags;   /* PF_VCPU among them */
	int tgid;	      /* process id */
	unsigned long jobctl; /* what a tracer asks for */
} IN_KERNEL;

/* A slot of the guest's memory (include/linux/kvm_host.h), in hash tables since Linux 5.17. */
struct kvm_memory_slot {
	struct hlist_node id_node[2];
	__u64 base_gfn;
	unsigned long npages;
	unsigned long userspace_addr;
} IN_KERNEL;

#define ID_BUCKETS 128

struct kvm_memslots {
	__u64 generation;
	struct hlist_head id_hash[ID_BUCKETS];
	int node_idx;
} IN_KERNEL;

/*
 * Frames of page tables' entries, whatever the size of the guest's pages and of
 * the host's.
 */
#define PAGE 4096u

/* A page of the host that is not in memory, and cannot be faulted in from here. */
#define TO_BRING 1ull

/* Page tables of a guest's kernel. */
struct kernel_tables {
	__u64 root;    /* as in the register */
	__u64 apart;   /* ... of those that have the kernel if these lack it; 0: there are none */
	__u64 control; /* what else tells how they are walked */
};

/* Of vcpu.bpf.c: address of guest memory in the monitor; 0: not mapped. */
__noinline __u64 host_address(__u64 gpa);

#ifdef __TARGET_ARCH_arm64
#include "vcpu_arm64.h"
#else

/* The registers of the program that has called the kernel. */
struct pt_regs {
	unsigned long si, orig_ax;
} IN_KERNEL;

struct rcuwait {
	struct task_struct *task;
} IN_KERNEL;

enum kvm_reg {
	VCPU_REGS_RSP,
	VCPU_REGS_RIP,
	VCPU_EXREG_CR0,
	VCPU_EXREG_CR3,
	VCPU_EXREG_CR4,
};

/* KVM's emulator of instructions (arch/x86/kvm/kvm_emulate.h). */
struct x86_emulate_ctxt {
	unsigned long eip;  /* the instruction's begin, and the next one's once it is done */
	unsigned long _eip; /* behind the bytes that were decoded */
	__u16 regs_dirty;
	unsigned long _regs[8];
} IN_KERNEL;

/*
 * Selects the page tables that the processor walks
 * (arch/x86/include/asm/kvm_host.h), since Linux 5.19.
 */
union kvm_mmu_page_role {
	struct {
		unsigned direct : 1; /* none of the guest's */
		unsigned guest_mode : 1;
	};
} IN_KERNEL;

struct kvm_mmu {
	union kvm_mmu_page_role root_role;
} IN_KERNEL;

struct kvm_mmu___before_5_19 {
	bool direct_map;
} IN_KERNEL;

struct kvm_vcpu_arch {
	unsigned long regs[17];
	__u32 regs_avail, regs_dirty;
	__u8 handling_intr_from_guest;
	bool guest_state_protected;
	struct x86_emulate_ctxt *emulate_ctxt;
	struct kvm_mmu *mmu;
	unsigned long cr0, cr3, cr4;
	__u64 efer;
	__u64 last_guest_tsc;
	bool at_instruction_boundary; /* the exit was for an interrupt of the host */
} IN_KERNEL;

/* Members since Linux 6.8 and 6.10. */
struct kvm_arch {
	bool has_private_mem;	  /* in pages that no other program can map */
	bool has_protected_state; /* registers of its vCPUs are, or will be, encrypted */
} IN_KERNEL;

struct kvm {
	struct kvm_memslots *memslots[1];
	struct kvm_arch arch;
} IN_KERNEL;

struct kvm_vcpu_stat {
	__u64 irq_injections;
} IN_KERNEL;

struct kvm_vcpu {
	struct kvm *kvm;
	struct preempt_notifier preempt_notifier;
	struct rcuwait wait; /* of the vCPU that is halted */
	struct kvm_vcpu_arch arch;
	struct kvm_vcpu_stat stat;
} IN_KERNEL;

/* The VMCB, which AMD's processors load and store (arch/x86/include/asm/svm.h). */
struct vmcb_control_area {
	__u32 exit_code;
	__u64 nested_ctl;
} IN_KERNEL;

struct vmcb_seg {
	__u16 attrib;
	__u64 base;
} IN_KERNEL;

struct vmcb_save_area {
	struct vmcb_seg cs, gdtr;
	__u8 cpl;
	__u64 cr0, cr3, rflags;
} IN_KERNEL;

struct vmcb {
	struct vmcb_control_area control;
	struct vmcb_save_area save;
} IN_KERNEL;

/* The vCPU of kvm_amd (arch/x86/kvm/svm/svm.h). */
struct kvm_vmcb_info {
	struct vmcb *ptr;
} IN_KERNEL;

struct vcpu_svm {
	struct kvm_vcpu vcpu;
	struct vmcb *vmcb;
	struct kvm_vmcb_info vmcb01;
	struct kvm_vmcb_info *current_vmcb;
} IN_KERNEL;

struct kvm_sev_info {
	bool active;
} IN_KERNEL;

/* The guest of kvm_amd. */
struct kvm_svm {
	struct kvm kvm;
	struct kvm_sev_info sev_info;
} IN_KERNEL;

/*
 * The vCPU as kvm_amd has it; NULL: another module's. Kernels may have several
 * modules built in, so that types alone do not tell.
 */
static const struct vcpu_svm *svm_of(const struct kvm_vcpu *vcpu)
{
	const struct vcpu_svm *svm = (const void *)vcpu;
	const struct vmcb *vmcb;

	if (!bpf_core_type_exists(struct vcpu_svm))
		return NULL;
	vmcb = BPF_CORE_READ(svm, vmcb);
	return vmcb && BPF_CORE_READ(svm, current_vmcb, ptr) == vmcb ? svm : NULL;
}

/* Registers of a vCPU: whether KVM's copies of them can be believed. */

/* Intel SDM vol. 3, 2.5 and 2.2.1. */
#define CR0_PG	   (1ull << 31)
#define EFER_LMA   (1ull << 10)

static __u32 lack_of_svm(const struct vcpu_svm *svm)
{
	const __u64 own = (__u64)svm + bpf_core_field_offset(struct vcpu_svm, vmcb01);

	return (__u64)BPF_CORE_READ(svm, current_vmcb) == own ? LACK_NONE : LACK_NESTED;
}

/* Intel's processors keep some registers until KVM asks for them: arch.regs_avail. */
static bool at_hand(const struct kvm_vcpu *vcpu)
{
	const __u32 avail = BPF_CORE_READ(vcpu, arch.regs_avail);
	const __u32 needed = 1u << bpf_core_enum_value(enum kvm_reg, VCPU_REGS_RSP) |
			     1u << bpf_core_enum_value(enum kvm_reg, VCPU_REGS_RIP) |
			     1u << bpf_core_enum_value(enum kvm_reg, VCPU_EXREG_CR3);

	return (avail & needed) == needed;
}

/*
 * Shadow paging: the processor does not know the guest's page tables, so that
 * nothing but KVM can change from one address space to another, and arch.cr3 is
 * the guest's. With nested paging the guest does so by itself.
 */
static __u32 lack_of_shadow(const struct kvm_vcpu *vcpu)
{
	const struct kvm_mmu *mmu = BPF_CORE_READ(vcpu, arch.mmu);
	const struct kvm_mmu___before_5_19 *old = (const void *)mmu;
	const union kvm_mmu_page_role *role;

	if (!bpf_core_field_exists(struct kvm_mmu, root_role))
		return bpf_core_field_exists(struct kvm_mmu___before_5_19, direct_map) &&
				       !BPF_CORE_READ(old, direct_map)
			       ? LACK_NONE
			       : LACK_CR3_UNKNOWN;
	role = (const void *)mmu + bpf_core_field_offset(struct kvm_mmu, root_role);
	if (BPF_CORE_READ_BITFIELD_PROBED(role, direct))
		return LACK_CR3_UNKNOWN;
	return BPF_CORE_READ_BITFIELD_PROBED(role, guest_mode) ? LACK_NESTED : LACK_NONE;
}

static __u32 lack_of(const struct kvm_vcpu *vcpu, const struct vcpu_svm *svm,
		     const struct bpf_regs *regs)
{
	if (BPF_CORE_READ(vcpu, arch.guest_state_protected))
		return LACK_PROTECTED;
	if (!(regs->x86.cr0 & CR0_PG && regs->x86.efer & EFER_LMA))
		return LACK_NOT_LONG;
	if (svm)
		return lack_of_svm(svm);
	return at_hand(vcpu) ? lack_of_shadow(vcpu) : LACK_IN_PROCESSOR;
}

/*
 * An instruction that KVM emulates is done in steps: registers first, then rip.
 * In between, what called would look like what is called. Elsewhere the
 * emulator's own copy is of some earlier instruction, and looks so by chance.
 */
static bool is_between(const struct kvm_vcpu *vcpu, const struct bpf_regs *regs)
{
	const struct x86_emulate_ctxt *ctxt = BPF_CORE_READ(vcpu, arch.emulate_ctxt);
	const __u32 sp = bpf_core_enum_value(enum kvm_reg, VCPU_REGS_RSP);
	const __u64 eip = BPF_CORE_READ(ctxt, eip), next = BPF_CORE_READ(ctxt, _eip);

	if (BPF_CORE_READ(vcpu, arch.handling_intr_from_guest) ||
	    !(BPF_CORE_READ(ctxt, regs_dirty) >> sp & 1) ||
	    BPF_CORE_READ(ctxt, _regs[4]) != regs->x86.gp[4])
		return false;
	return regs->x86.gp[16] == eip ? next != eip : next == eip;
}

/* Page tables: Intel SDM vol. 3, 4.5. */
#define PRESENT	   1ull
#define LARGE	   0x80ull
#define PFN_MASK   0x000ffffffffff000ull
#define CR4_LA57   (1ull << 12)
#define NESTED_NP  1ull /* AMD APM vol. 2, appendix B: NP_ENABLE */
#define LEVELS_MAX 5

/*
 * Address in the monitor of a virtual page of the guest, or of a missing page |
 * TO_BRING; 0: not mapped.
 */
__noinline __u64 host_page(__u64 va, __u64 cr3, __u32 levels)
{
	__u64 entry = cr3;

	for (__u32 level = LEVELS_MAX - 1; level < LEVELS_MAX; level--) {
		const __u32 shift = 12 + 9 * level;
		__u64 hva;

		if (level >= levels)
			continue;
		hva = host_address((entry & PFN_MASK) + (va >> shift & 511) * 8);
		if (!hva)
			return 0;
		if (bpf_probe_read_user(&entry, sizeof(entry), (const void *)hva))
			return (hva & ~(PAGE - 1ull)) | TO_BRING;
		if (!(entry & PRESENT))
			return 0;
		if (!level || (level < 3 && entry & LARGE)) {
			const __u64 inside = (1ull << shift) - PAGE;

			return host_address((entry & PFN_MASK & ~inside) | (va & inside));
		}
	}
	return 0;
}

static bool is_canonical(__u64 va, __u32 levels)
{
	const __u32 spare = 64 - (12 + 9 * levels);

	return (__u64)((__s64)(va << spare) >> spare) == va;
}

/* As host_page(), of a vCPU with these registers. */
static __u64 page_of(const struct bpf_regs *regs, __u64 va)
{
	const __u32 levels = regs->x86.cr4 & CR4_LA57 ? 5 : 4;

	return is_canonical(va, levels) ? host_page(va, regs->x86.cr3, levels) : 0;
}

/*
 * With nested paging the guest writes to CR0 and CR3 alone. KVM's copy is made
 * when it handles the exit, after the interrupts that came with it; but what KVM
 * has written itself comes to the VMCB not before the guest is entered.
 */
static void read_vmcb(const struct vcpu_svm *svm, struct bpf_regs *regs)
{
	const __u32 cr3 = bpf_core_enum_value(enum kvm_reg, VCPU_EXREG_CR3);

	regs->x86.segments = 1;
	regs->x86.rflags = BPF_CORE_READ(svm, vmcb, save.rflags);
	regs->x86.cs_attrib = BPF_CORE_READ(svm, vmcb, save.cs.attrib);
	regs->x86.cpl = BPF_CORE_READ(svm, vmcb, save.cpl);
	regs->x86.gdt = BPF_CORE_READ(svm, vmcb, save.gdtr.base);
	if (!(BPF_CORE_READ(svm, vmcb, control.nested_ctl) & NESTED_NP))
		return;
	if (!regs->in_guest && BPF_CORE_READ(svm, vcpu.arch.regs_dirty) >> cr3 & 1)
		return;
	regs->x86.cr0 = BPF_CORE_READ(svm, vmcb, save.cr0);
	regs->x86.cr3 = BPF_CORE_READ(svm, vmcb, save.cr3);
}

static void read_regs(const struct task_struct *task, const struct kvm_vcpu *vcpu,
		      struct bpf_regs *regs)
{
	const struct vcpu_svm *svm = svm_of(vcpu);

	regs->in_guest = BPF_CORE_READ(vcpu, arch.handling_intr_from_guest) != 0;
	regs->complete = 0;
	if (bpf_core_field_exists(vcpu->arch.at_instruction_boundary))
		regs->complete = BPF_CORE_READ(vcpu, arch.at_instruction_boundary);
	regs->exit = BPF_CORE_READ(vcpu, arch.last_guest_tsc);
	regs->changes = BPF_CORE_READ(vcpu, stat.irq_injections);
	/* The sixteen and rip stand behind one another there, too. */
	BPF_CORE_READ_INTO(&regs->x86.gp, vcpu, arch.regs);
	regs->sp = regs->x86.gp[4];
	regs->x86.cr0 = BPF_CORE_READ(vcpu, arch.cr0);
	regs->x86.cr3 = BPF_CORE_READ(vcpu, arch.cr3);
	regs->x86.cr4 = BPF_CORE_READ(vcpu, arch.cr4);
	regs->x86.efer = BPF_CORE_READ(vcpu, arch.efer);
	regs->x86.segments = 0;
	if (svm)
		read_vmcb(svm, regs);
	regs->between = is_between(vcpu, regs);
	regs->lack = lack_of(vcpu, svm, regs);
}

/* Linux's tables for user mode are next to those with the kernel (CONFIG_PAGE_TABLE_ISOLATION). */
static struct kernel_tables kernel_tables_of(const struct bpf_regs *regs)
{
	const __u64 cr3 = regs->x86.cr3;

	return (struct kernel_tables){.root = cr3,
				      .apart = cr3 & PAGE ? cr3 & ~(__u64)PAGE : 0,
				      .control = regs->x86.cr4 & CR4_LA57 ? 5 : 4};
}

static __always_inline __u64 kernel_page_by(__u64 root, __u64 control, __u64 va)
{
	return host_page(va, root, (__u32)control);
}

/* With --host: where a vCPU's thread is, and what the guest is left for. */

/* include/uapi/linux/kvm.h, and the number of ioctl(2). */
#define KVM_RUN	   0xae80u
#define SYS_IOCTL  16

/* The current thread is in the system call that runs a vCPU, from its entry to its end. */
static bool in_kvm_run(void)
{
	const struct pt_regs *regs = (const void *)bpf_task_pt_regs(bpf_get_current_task_btf());

	return BPF_CORE_READ(regs, orig_ax) == SYS_IOCTL &&
	       (__u32)BPF_CORE_READ(regs, si) == KVM_RUN;
}

/*
 * The guest ran until an interrupt came, for the CPU itself (`in_guest`), or to give the CPU to
 * another thread; an interrupt that came while KVM, at an exit for another reason, had interrupts
 * switched off came to KVM.
 */
static bool guest_ran(const struct task_struct *task, const struct bpf_regs *regs)
{
	const struct kvm_vcpu *vcpu = NULL;

	if (!bpf_core_field_exists(vcpu->arch.at_instruction_boundary))
		return regs->in_guest;
	return regs->complete && (regs->in_guest || !BPF_CORE_READ(task, __state));
}

static __u32 where_is(const struct task_struct *task, const struct bpf_vcpu *shared,
		      const struct bpf_regs *regs, bool leaves)
{
	const struct kvm_vcpu *vcpu = (const void *)shared->vcpu;

	if ((leaves || regs->in_guest) && guest_ran(task, regs))
		return PLACE_GUEST;
	if (regs->in_guest)
		return PLACE_SWITCH;
	return leaves && BPF_CORE_READ(vcpu, wait.task) == task ? PLACE_HALTED : PLACE_EXIT;
}

static __u32 protection_of(const struct kvm_vcpu *vcpu)
{
	const struct kvm *kvm = BPF_CORE_READ(vcpu, kvm);
	const struct kvm_svm *svm = (const void *)kvm;
	__u32 found = 0;

	if (BPF_CORE_READ(vcpu, arch.guest_state_protected))
		found |= PROTECTED_REGISTERS;
	if (bpf_core_field_exists(kvm->arch.has_protected_state) &&
	    BPF_CORE_READ(kvm, arch.has_protected_state))
		found |= PROTECTED_REGISTERS;
	if (bpf_core_field_exists(kvm->arch.has_private_mem) &&
	    BPF_CORE_READ(kvm, arch.has_private_mem))
		found |= PROTECTED_PAGES;
	if (svm_of(vcpu) && bpf_core_field_exists(svm->sev_info.active) &&
	    BPF_CORE_READ(svm, sev_info.active))
		found |= PROTECTED_MEMORY;
	return found;
}

/* What BPF lacks of any vCPU of this host shows at its first sample: enum bpf_lack. */
static __u32 lasting_lack_of(const struct kvm_vcpu *vcpu)
{
	return LACK_NONE;
}

#endif

/* Guests that keep others from looking into them: enum bpf_protection. */

/* Files of a process (include/linux/fs.h, dcache.h). */

struct qstr {
	const unsigned char *name;
} IN_KERNEL;

struct dentry {
	struct qstr d_name;
} IN_KERNEL;

struct path {
	struct dentry *dentry;
} IN_KERNEL;

struct file {
	struct path f_path;
	void *private_data;
} IN_KERNEL;

struct bpf_iter__task_file {
	struct task_struct *task;
	struct file *file;
} IN_KERNEL;

/* The vCPU that a file is, by the name that virt/kvm/kvm_main.c, create_vcpu_fd, gives it; NULL: it is none. */
static const struct kvm_vcpu *vcpu_of(const struct file *file)
{
	static const char begins[] = "kvm-vcpu:";
	char name[sizeof(begins)] = {0};

	bpf_probe_read_kernel_str(name, sizeof(name),
				  BPF_CORE_READ(file, f_path.dentry, d_name.name));
	for (unsigned i = 0; i < sizeof(begins) - 1; i++)
		if (name[i] != begins[i])
			return NULL;
	return BPF_CORE_READ(file, private_data);
}

/* The process whose files are looked at, 0: all are; and what was found. */
__u32 examined = 0, examined_vcpus = 0, protection = 0, lasting_lack = 0;

/* Called for each file of each process. */
SEC("iter/task_file")
int examine(struct bpf_iter__task_file *ctx)
{
	const struct task_struct *task = ctx->task;
	const struct file *file = ctx->file;
	const struct kvm_vcpu *vcpu;

	if (!task || !file || (examined && (__u32)BPF_CORE_READ(task, tgid) != examined))
		return 0;
	vcpu = vcpu_of(file);
	if (!vcpu)
		return 0;
	examined_vcpus++;
	protection |= protection_of(vcpu);
	lasting_lack = lasting_lack_of(vcpu) ?: lasting_lack;
	return 0;
}
