/* SPDX-License-Identifier: BSD-3-Clause */

/*
 * Looks at a vCPU from within the interrupt that has taken the CPU from its
 * guest, or from within the scheduler, when its thread leaves a CPU: the guest
 * is not stopped for it. KVM's own copy of the registers is read, and the stack
 * through the guest's page tables, in the memory of its monitor, whose thread
 * this is. Runs in the kernel; whatever it is told by the guest, it only reads,
 * and no more than it was asked for.
 */

#include <linux/bpf.h>
#include <linux/types.h>
#include <stdbool.h>

#include <bpf/bpf_helpers.h>
/* These need the former. */
#include <bpf/bpf_core_read.h>

#include "vcpu_seat.h"

char terms[] SEC("license") = "Dual BSD/GPL";

/*
 * What is needed of the kernel's types (include/linux/sched.h, kvm_host.h and
 * arch/x86/include/asm/kvm_host.h): the places of the members are those of the
 * kernel that runs, found when this is loaded.
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
	unsigned long
		eip; /* where the instruction began, and where the next one does once it is done */
	unsigned long _eip; /* behind what was decoded of it */
	__u16 regs_dirty;
	unsigned long _regs[8];
} IN_KERNEL;

struct kvm_vcpu_arch {
	unsigned long regs[17];
	__u32 regs_avail;
	__u8 handling_intr_from_guest;
	struct x86_emulate_ctxt *emulate_ctxt;
	unsigned long cr0, cr3, cr4;
	__u64 efer;
} IN_KERNEL;

/* Where the guest's memory is (include/linux/kvm_host.h), by hash tables since Linux 5.17. */
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

struct kvm {
	struct kvm_memslots *memslots[1];
} IN_KERNEL;

struct kvm_vcpu {
	struct kvm *kvm;
	struct preempt_notifier preempt_notifier;
	struct kvm_vcpu_arch arch;
} IN_KERNEL;

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1); /* as many as there are vCPUs */
	__type(key, __u32);
	__type(value, struct seat);
} seats SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct seat_memory);
} memory SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct seat_told);
} told SEC(".maps");

/* Wakes who has asked. */
struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 4096);
} answers SEC(".maps");

/* Page tables: Intel SDM vol. 3, 4.5. */
#define PRESENT	   1ull
#define LARGE	   0x80ull
#define PFN_MASK   0x000ffffffffff000ull
#define PAGE	   4096u
#define CR0_PG	   (1ull << 31)
#define CR4_LA57   (1ull << 12)
#define EFER_LMA   (1ull << 10)
#define LEVELS_MAX 5

/* A page of the host that is not there now, and cannot be brought from here. */
#define TO_BRING 1ull

/*
 * Functions of their own for the kernel's verifier, too, which else would
 * follow each way through one with each way through the other.
 */

/* Where the guest's memory is in its monitor; 0: nowhere. */
__noinline __u64 host_address(__u64 gpa)
{
	const __u32 only = 0;
	const struct seat_memory *mem = bpf_map_lookup_elem(&memory, &only);

	for (int i = 0; mem && i < SEAT_SLOTS; i++)
		if (gpa - mem->slot[i].gpa < mem->slot[i].size)
			return mem->slot[i].hva + (gpa - mem->slot[i].gpa);
	return 0;
}

/* Where in the monitor a virtual page of the guest is, or TO_BRING and what it needs; 0: nowhere. */
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

static bool read_page(struct seat *seat, __u64 va, void *to, __u32 len)
{
	const __u32 levels = seat->now.cr4 & CR4_LA57 ? 5 : 4;
	__u64 hva = is_canonical(va, levels) ? host_page(va, seat->now.cr3, levels) : 0;

	if (!hva)
		return false;
	if (!(hva & TO_BRING) &&
	    !bpf_probe_read_user(to, len, (const void *)(hva | (va & (PAGE - 1)))))
		return true;
	seat->missing = hva;
	return false;
}

struct copying {
	struct seat *seat;
	struct seat_part *part;
	__u64 va;
	__u32 at; /* in bytes[] */
};

/* One page; not 0: that was the last. */
static long copy_page(__u64 page, struct copying *copy)
{
	struct seat_part *part = copy->part;
	const __u32 in_page = PAGE - (__u32)(copy->va & (PAGE - 1));
	__u32 len = part->want - part->got, at = copy->at;

	if (len > in_page)
		len = in_page;
	if (!len || len > PAGE || at > SEAT_BYTES)
		return 1;
	if (!read_page(copy->seat, copy->va, copy->seat->bytes + at, len)) {
		part->cut = 0;
		return 1;
	}
	part->got += len;
	copy->va += len;
	copy->at += len;
	return 0;
}

static void copy_part(struct seat *seat, int i)
{
	struct copying copy = {.seat = seat, .part = &seat->part[i]};
	const __u32 most = i ? SEAT_OTHER : SEAT_STACK;

	copy.part->got = 0;
	copy.part->cut = 1;
	if (copy.part->want > most)
		return;
	copy.va = i ? copy.part->va : seat->now.gp[4] & ~7ull;
	copy.at = i ? SEAT_STACK + (__u32)(i - 1) * SEAT_OTHER : 0;
	bpf_loop(most / PAGE + 1, copy_page, &copy, 0);
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
 * An instruction that KVM emulates is done in steps: registers first, then rip.
 * In between, what called would look like what is called. Elsewhere the
 * emulator's own copy is of some earlier instruction, and looks so by chance.
 */
static bool is_between(const struct kvm_vcpu *vcpu, const struct seat_regs *regs)
{
	const struct x86_emulate_ctxt *ctxt = BPF_CORE_READ(vcpu, arch.emulate_ctxt);
	const __u32 sp = bpf_core_enum_value(enum kvm_reg, VCPU_REGS_RSP);
	const __u64 eip = BPF_CORE_READ(ctxt, eip), next = BPF_CORE_READ(ctxt, _eip);

	if (BPF_CORE_READ(vcpu, arch.handling_intr_from_guest) ||
	    !(BPF_CORE_READ(ctxt, regs_dirty) >> sp & 1) ||
	    BPF_CORE_READ(ctxt, _regs[4]) != regs->gp[4])
		return false;
	return regs->gp[16] == eip ? next != eip : next == eip;
}

/* KVM asks to be told when a thread that is in KVM_RUN leaves a CPU: by that its vCPU is found. */
static void find_vcpu(const struct task_struct *task, struct seat *seat)
{
	const struct hlist_node *link = BPF_CORE_READ(task, preempt_notifiers.first);

	if (link)
		seat->vcpu = (__u64)link - bpf_core_field_offset(struct preempt_notifier, link) -
			     bpf_core_field_offset(struct kvm_vcpu, preempt_notifier);
}

static void note(struct seat *seat, struct seat_regs *regs)
{
	const struct task_struct *task = (const void *)bpf_get_current_task();
	const struct kvm_vcpu *vcpu;

	regs->round++;
	barrier();
	find_vcpu(task, seat);
	vcpu = (const void *)seat->vcpu;
	regs->slices = BPF_CORE_READ(task, sched_info.pcount);
	regs->known = vcpu && at_hand(vcpu);
	regs->between = 0;
	if (vcpu) {
		/* The sixteen and rip stand behind one another there, too. */
		BPF_CORE_READ_INTO(&regs->gp, vcpu, arch.regs);
		regs->cr0 = BPF_CORE_READ(vcpu, arch.cr0);
		regs->cr3 = BPF_CORE_READ(vcpu, arch.cr3);
		regs->cr4 = BPF_CORE_READ(vcpu, arch.cr4);
		regs->efer = BPF_CORE_READ(vcpu, arch.efer);
		regs->between = is_between(vcpu, regs);
	}
	barrier();
	regs->round++;
}

/* False: not in this moment. */
static bool answer(struct seat *seat, __u64 asked)
{
	seat->missing = 0;
	note(seat, &seat->now);
	if (seat->now.between)
		return false;
	if (seat->now.known && seat->now.cr0 & CR0_PG && seat->now.efer & EFER_LMA)
		for (int i = 0; i < SEAT_PARTS; i++)
			copy_part(seat, i);
	else
		seat->now.known = 0;
	barrier();
	seat->answered = asked;
	bpf_ringbuf_output(&answers, &asked, sizeof(asked), BPF_RB_FORCE_WAKEUP);
	return true;
}

struct telling {
	struct seat_memory *to;
	const struct hlist_head *buckets;
	__u32 place; /* of a link of these buckets in what it links */
};

/* In one bucket there are none or one, usually: their numbers are small. */
#define IN_BUCKET 8

static long tell_bucket(__u64 bucket, struct telling *telling)
{
	struct seat_memory *to = telling->to;
	const struct hlist_node *node = NULL;

	bpf_probe_read_kernel(&node, sizeof(node), (const void **)telling->buckets + bucket);
	for (int i = 0; i < IN_BUCKET && node; i++) {
		const struct kvm_memory_slot *slot = (const void *)node - telling->place;
		const __u64 n = to->n++;

		if (n >= SEAT_SLOTS)
			return 1;
		to->slot[n].gpa = BPF_CORE_READ(slot, base_gfn) * PAGE;
		to->slot[n].size = BPF_CORE_READ(slot, npages) * PAGE;
		to->slot[n].hva = BPF_CORE_READ(slot, userspace_addr);
		node = BPF_CORE_READ(node, next);
	}
	return 0;
}

static void tell_memory(const struct kvm_vcpu *vcpu)
{
	const __u32 only = 0;
	struct seat_told *to = bpf_map_lookup_elem(&told, &only);
	const __u64 asked = to ? to->asked : 0;
	const struct kvm_memslots *slots;
	struct telling telling;

	if (!to || !vcpu || asked == to->taken ||
	    __sync_val_compare_and_swap(&to->taken, asked - 1, asked) != asked - 1)
		return;
	slots = BPF_CORE_READ(vcpu, kvm, memslots[0]);
	telling.to = &to->memory;
	telling.buckets = (const void *)slots + bpf_core_field_offset(struct kvm_memslots, id_hash);
	/* There are two copies, of which one is in use. */
	telling.place =
		bpf_core_field_offset(struct kvm_memory_slot, id_node) +
		(BPF_CORE_READ(slots, node_idx) & 1) * bpf_core_type_size(struct hlist_node);
	to->memory.n = 0;
	to->generation = BPF_CORE_READ(slots, generation);
	bpf_loop(ID_BUCKETS, tell_bucket, &telling, 0);
	if (BPF_CORE_READ(vcpu, kvm, memslots[0]) != slots ||
	    BPF_CORE_READ(slots, generation) != to->generation)
		to->memory.n = 0;
	barrier();
	to->answered = asked;
}

static void tell_memory_of(const struct seat *seat)
{
	if (bpf_core_field_exists(struct kvm_memslots, id_hash))
		tell_memory((const void *)seat->vcpu);
}

static struct seat *own_seat(void *ctx)
{
	const __u32 i = (__u32)bpf_get_attach_cookie(ctx);

	return bpf_map_lookup_elem(&seats, &i);
}

/*
 * Comes once, a moment after it was asked for, when the thread is on a CPU; and
 * again after another moment, if this is 0.
 */
SEC("perf_event")
int at_tick(void *ctx)
{
	struct seat *seat = own_seat(ctx);
	const __u64 asked = seat ? seat->asked : 0;

	if (!seat)
		return 1;
	tell_memory_of(seat);
	return asked == seat->answered || answer(seat, asked);
}

/* Comes each time that the thread leaves a CPU. */
SEC("perf_event")
int at_switch(void *ctx)
{
	struct seat *seat = own_seat(ctx);
	const __u64 asked = seat ? seat->asked : 0;

	if (!seat)
		return 1;
	note(seat, &seat->left);
	tell_memory_of(seat);
	if (asked != seat->answered)
		answer(seat, asked);
	return 1;
}
