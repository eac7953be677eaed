/* SPDX-License-Identifier: BSD-3-Clause */

/*
 * Reads a vCPU from within the interrupt that took the CPU from its guest, or
 * from within the scheduler when its thread leaves a CPU, so that the guest is
 * not stopped: KVM's copy of the registers, and the stack through the guest's
 * page tables, in the memory of the monitor, whose thread this is. Runs in the
 * kernel; only reads, and no more than it was asked for.
 */

#include <linux/bpf.h>
#include <stdbool.h>

#include <bpf/bpf_helpers.h>
/* These need the former. */
#include <bpf/bpf_core_read.h>

#include "bpf_shared.h"
#include "vcpu_kernel.h"

char terms[] SEC("license") = "Dual BSD/GPL";

/* Memory that uniprof maps, too. */
#define SHARED_ARRAY(name, record)                 \
	struct {                                   \
		__uint(type, BPF_MAP_TYPE_ARRAY);  \
		__uint(map_flags, BPF_F_MMAPABLE); \
		__uint(max_entries, 1);            \
		__type(key, __u32);                \
		__type(value, record);             \
	} name SEC(".maps")

SHARED_ARRAY(vcpus, struct bpf_vcpu); /* as many as there are vCPUs */
SHARED_ARRAY(memory, struct bpf_memory);
SHARED_ARRAY(told, struct bpf_told);

/* Wakes the process that has asked. */
struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 4096);
} answers SEC(".maps");

/* KVM's slots are of the host's pages. Set before loading. */
const volatile __u64 host_page_size = PAGE;

/*
 * Functions of their own for the kernel's verifier, too, which else would
 * follow each way through one with each way through the other.
 */

/* Address of guest memory in the monitor; 0: not mapped. */
__noinline __u64 host_address(__u64 gpa)
{
	const __u32 only = 0;
	const struct bpf_memory *mem = bpf_map_lookup_elem(&memory, &only);

	for (int i = 0; mem && i < SHARED_SLOTS; i++)
		if (gpa - mem->slot[i].gpa < mem->slot[i].size)
			return mem->slot[i].hva + (gpa - mem->slot[i].gpa);
	return 0;
}

/*
 * Stays the same from page to page, and stack->got, of which the verifier knows
 * nothing, tells how far it has come: else later verifiers (Linux 6.12) follow
 * the copying page by page, through each way that there is.
 */
struct copying {
	struct bpf_vcpu *shared;
	const struct bpf_regs *regs;
	struct bpf_stack *stack;
	__u64 va;      /* of the first byte */
	__u64 missing; /* as in struct bpf_vcpu */
	__u32 at;      /* ... in bytes[] */
};

static bool read_page(struct copying *copy, __u64 va, void *to, __u32 len)
{
	const __u64 hva = page_of(copy->regs, va);

	if (!hva)
		return false;
	if (!(hva & TO_BRING) &&
	    !bpf_probe_read_user(to, len, (const void *)(hva | (va & (PAGE - 1)))))
		return true;
	copy->missing = hva;
	return false;
}

/* One page; not 0: that was the last. */
static long copy_page(__u64 page, struct copying *copy)
{
	struct bpf_stack *stack = copy->stack;
	const __u32 got = stack->got, at = copy->at + got;
	const __u64 va = copy->va + got;
	const __u32 in_page = PAGE - (__u32)(va & (PAGE - 1));
	__u32 len = stack->want - got;

	if (len > in_page)
		len = in_page;
	/* Compilers leave the second check out, which Linux 6.1's verifier needs. */
	__asm__ volatile("" : "+r"(len));
	if (!len || len > PAGE || at > SHARED_BYTES)
		return 1;
	if (!read_page(copy, va, copy->shared->bytes + at, len)) {
		stack->cut = 0;
		return 1;
	}
	stack->got = got + len;
	return 0;
}

/* Returns what is missing. */
static __u64 copy_from(struct bpf_vcpu *shared, const struct bpf_regs *regs, int i, __u32 at,
		       __u64 va, __u32 most)
{
	struct copying copy = {
		.shared = shared, .regs = regs, .stack = &shared->stack[i], .va = va, .at = at};

	copy.stack->got = 0;
	copy.stack->cut = 1;
	if (copy.stack->want <= most)
		bpf_loop(most / PAGE + 2, copy_page, &copy, 0);
	return copy.missing;
}

/* The red zone may have no page of its own. */
static __u64 copy_own(struct bpf_vcpu *shared, const struct bpf_regs *regs, int i, __u32 at,
		      __u32 most)
{
	const __u64 sp = regs->sp & ~7ull;
	struct bpf_stack *stack = &shared->stack[i];
	__u64 missing;

	stack->below = SHARED_RED_ZONE;
	missing = copy_from(shared, regs, i, at, sp - SHARED_RED_ZONE, SHARED_RED_ZONE + most);
	if (stack->got || stack->want <= SHARED_RED_ZONE)
		return missing;
	stack->below = 0;
	stack->want -= SHARED_RED_ZONE;
	return copy_from(shared, regs, i, at, sp, most);
}

/* The guest's thread that runs: a pointer of its kernel's, and pieces of what that leads to. */

/* A page of the guest's kernel, and where it is. */
struct kernel_page {
	__u64 root, control, va, hva;
};

static __always_inline bool read_kernel(struct kernel_page *page, __u64 va, void *to, __u32 len)
{
	const __u64 offset = va & (PAGE - 1);

	if (va - offset != page->va) {
		page->va = va - offset;
		page->hva = kernel_page_by(page->root, page->control, page->va);
	}
	if (!page->hva || page->hva & TO_BRING)
		return false;
	if (!bpf_probe_read_user(to, len, (const void *)(page->hva | offset)))
		return true;
	page->hva |= TO_BRING;
	return false;
}

/* Members are aligned to 4 bytes, and seldom go on in the next page. */
static __always_inline bool read_piece(struct kernel_page *page, __u64 va, __u8 *to)
{
	if ((va & (PAGE - 1)) <= PAGE - SHARED_PIECE)
		return read_kernel(page, va, to, SHARED_PIECE);
	for (__u32 i = 0; i < SHARED_PIECE; i += 4)
		if (!read_kernel(page, va + i, to + i, 4))
			return false;
	return true;
}

/* Returns a missing page | TO_BRING, or 0. */
__noinline __u64 copy_thread_by(struct bpf_thread *thread, __u64 root, __u64 control)
{
	struct kernel_page page = {.root = root, .control = control, .va = ~0ull};

	if (!thread || !read_kernel(&page, thread->from + thread->pointer, &thread->task, 8))
		return page.hva & TO_BRING ? page.hva : 0;
	for (int i = 0; i < SHARED_PIECES; i++)
		if (!read_piece(&page, thread->task + thread->at[i], thread->piece[i]))
			return page.hva & TO_BRING ? page.hva : 0;
	thread->there = 1;
	return 0;
}

static __u64 copy_thread(struct bpf_thread *thread, const struct bpf_regs *regs)
{
	struct kernel_tables tables;
	__u64 missing;

	thread->there = 0;
	if (!thread->wanted)
		return 0;
	tables = kernel_tables_of(regs);
	thread->from = thread->stack_size ? regs->sp & -thread->stack_size : thread->own;
	missing = copy_thread_by(thread, tables.root, tables.control);
	return missing || thread->there || !tables.apart
		       ? missing
		       : copy_thread_by(thread, tables.apart, tables.control);
}

static void copy_stacks(struct bpf_vcpu *shared)
{
	const struct bpf_regs *regs = &shared->now;
	__u64 missing = copy_own(shared, regs, 0, 0, SHARED_STACK_MAX);
	const __u64 of_thread = copy_thread(&shared->thread, regs);

	if (of_thread)
		missing = of_thread;
	for (int i = 1; i < SHARED_STACKS; i++) {
		const __u32 at = SHARED_OTHERS_AT + (__u32)(i - 1) * SHARED_OTHER_MAX;
		const __u64 other =
			copy_from(shared, regs, i, at, shared->stack[i].va, SHARED_OTHER_MAX);

		if (other)
			missing = other;
	}
	if (missing)
		shared->missing = missing;
}

/* Processors but x86 reorder plain stores: an exchange comes after all stores before it, and before all after it. */
static void store_ordered(__u64 *at, __u64 value)
{
	const __u64 was = __sync_lock_test_and_set(at, value);

	__asm__ volatile("" : : "r"(was));
}

/* The stack of a thread that leaves its CPU just when uniprof wakes: to uniprof, it seems. */
static void copy_left(struct bpf_vcpu *shared)
{
	const __u64 after_ns = shared->copy_ns;

	if (!after_ns || shared->left.lack != LACK_NONE || shared->left.between ||
	    bpf_ktime_get_ns() < after_ns)
		return;
	shared->copy_ns = 0;
	if (copy_own(shared, &shared->left, SHARED_LEFT, SHARED_LEFT_AT, SHARED_LEFT_MAX) ||
	    copy_thread(&shared->thread_left, &shared->left))
		return;
	store_ordered(&shared->copied, shared->left.timeslices);
}

/* KVM asks to be told when a thread that is in KVM_RUN leaves a CPU: by that its vCPU is found. */
static void find_vcpu(const struct task_struct *task, struct bpf_vcpu *shared)
{
	const struct hlist_node *link = BPF_CORE_READ(task, preempt_notifiers.first);

	if (link)
		shared->vcpu = (__u64)link - bpf_core_field_offset(struct preempt_notifier, link) -
			       bpf_core_field_offset(struct kvm_vcpu, preempt_notifier);
}

/* Notes what there is but for the host's stacks. */
static void read_thread(struct bpf_vcpu *shared, struct bpf_regs *regs)
{
	const struct task_struct *task = (const void *)bpf_get_current_task();

	find_vcpu(task, shared);
	regs->timeslices = BPF_CORE_READ(task, sched_info.pcount);
	regs->asleep = !bpf_core_field_exists(task->__state) || BPF_CORE_READ(task, __state);
	regs->between = 0;
	regs->lack = LACK_NO_VCPU;
	if (shared->vcpu)
		read_regs(task, (const void *)shared->vcpu, regs);
}

static void note(struct bpf_vcpu *shared, struct bpf_regs *regs)
{
	store_ordered(&regs->round, regs->round + 1);
	read_thread(shared, regs);
	store_ordered(&regs->round, regs->round + 1);
}

/* False: not in this moment. */
static bool answer(struct bpf_vcpu *shared, __u64 asked)
{
	shared->missing = 0;
	note(shared, &shared->now);
	if (shared->now.between)
		return false;
	if (shared->now.lack == LACK_NONE)
		copy_stacks(shared);
	store_ordered(&shared->answered, asked);
	bpf_ringbuf_output(&answers, &asked, sizeof(asked), BPF_RB_FORCE_WAKEUP);
	return true;
}

struct telling {
	struct bpf_memory *to;
	const struct hlist_head *buckets;
	__u32 link_offset; /* of a link of these buckets in what it links */
};

/* In one bucket there are none or one, usually: their numbers are small. */
#define IN_BUCKET 8

static long tell_bucket(__u64 bucket, struct telling *telling)
{
	struct bpf_memory *to = telling->to;
	const struct hlist_node *node = NULL;

	bpf_probe_read_kernel(&node, sizeof(node), (const void **)telling->buckets + bucket);
	for (int i = 0; i < IN_BUCKET && node; i++) {
		const struct kvm_memory_slot *slot = (const void *)node - telling->link_offset;
		const __u64 n = to->n++;

		if (n >= SHARED_SLOTS)
			return 1;
		to->slot[n].gpa = BPF_CORE_READ(slot, base_gfn) * host_page_size;
		to->slot[n].size = BPF_CORE_READ(slot, npages) * host_page_size;
		to->slot[n].hva = BPF_CORE_READ(slot, userspace_addr);
		node = BPF_CORE_READ(node, next);
	}
	return 0;
}

static void tell_memory(const struct kvm_vcpu *vcpu)
{
	const __u32 only = 0;
	struct bpf_told *to = bpf_map_lookup_elem(&told, &only);
	const __u64 asked = to ? to->asked : 0;
	const struct kvm_memslots *slots;
	struct telling telling;

	if (!bpf_core_field_exists(struct kvm_memslots, id_hash))
		return;
	if (!to || !vcpu || asked == to->taken ||
	    __sync_val_compare_and_swap(&to->taken, asked - 1, asked) != asked - 1)
		return;
	slots = BPF_CORE_READ(vcpu, kvm, memslots[0]);
	telling.to = &to->memory;
	telling.buckets = (const void *)slots + bpf_core_field_offset(struct kvm_memslots, id_hash);
	/* There are two copies, of which one is in use. */
	telling.link_offset =
		bpf_core_field_offset(struct kvm_memory_slot, id_node) +
		(BPF_CORE_READ(slots, node_idx) & 1) * bpf_core_type_size(struct hlist_node);
	to->memory.n = 0;
	to->generation = BPF_CORE_READ(slots, generation);
	bpf_loop(ID_BUCKETS, tell_bucket, &telling, 0);
	if (BPF_CORE_READ(vcpu, kvm, memslots[0]) != slots ||
	    BPF_CORE_READ(slots, generation) != to->generation)
		to->memory.n = 0;
	store_ordered(&to->answered, asked);
}

static struct bpf_vcpu *own_vcpu(void *ctx)
{
	const __u32 i = (__u32)bpf_get_attach_cookie(ctx);

	return bpf_map_lookup_elem(&vcpus, &i);
}

/* include/linux/sched/jobctl.h: set by PTRACE_INTERRUPT. */
#define JOBCTL_TRAP_STOP (1ul << 19)

/* More than there is time for. */
#define HOLD_ROUNDS 65536

struct holding {
	const struct task_struct *task;
	__u64 until_ns;
};

static long is_held_enough(__u64 round, struct holding *holding)
{
	const struct task_struct *task = holding->task;

	return BPF_CORE_READ(task, jobctl) & JOBCTL_TRAP_STOP ||
	       bpf_ktime_get_ns() > holding->until_ns;
}

/* Registers are compared with those of a stop: the guest must not go on before. */
static void hold(const struct bpf_vcpu *shared)
{
	struct holding holding = {.task = (const void *)bpf_get_current_task(),
				  .until_ns = bpf_ktime_get_ns() + shared->hold_ns};

	if (shared->hold_ns && shared->now.in_guest)
		bpf_loop(HOLD_ROUNDS, is_held_enough, &holding, 0);
}

/*
 * Comes once, a moment after it was asked for, when the thread is on a CPU; and
 * again after another moment, if this is 0.
 */
SEC("perf_event")
int at_tick(void *ctx)
{
	struct bpf_vcpu *shared = own_vcpu(ctx);
	const __u64 asked = shared ? shared->asked : 0;

	if (!shared)
		return 1;
	tell_memory((const void *)shared->vcpu);
	if (asked == shared->answered)
		return 1;
	if (!answer(shared, asked))
		return 0;
	hold(shared);
	return 1;
}

#ifdef __TARGET_ARCH_arm64

static void leave(void *ctx, struct bpf_vcpu *shared)
{
	note(shared, &shared->left);
}

#else

/* The host's side of vCPUs (--host). */

/* Set before loading: without it the verifier leaves out what is for --host alone. */
const volatile bool with_host = false;

SHARED_ARRAY(exits, struct bpf_exits); /* as many as there are vCPUs */

/* uniprof's own thread. */
__u64 sampler = 0;

/* Which vCPU's a thread is. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1);
	__type(key, __u64);
	__type(value, __u32);
} tasks SEC(".maps");

/* As note(), and the host's side. `leaves`: the thread is about to leave its CPU. */
static void note_host(void *ctx, struct bpf_vcpu *shared, struct bpf_regs *regs,
		      struct bpf_host *host, bool leaves)
{
	const struct task_struct *task = (const void *)bpf_get_current_task();

	store_ordered(&regs->round, regs->round + 1);
	read_thread(shared, regs);
	host->place = in_kvm_run() ? where_is(task, shared, regs, leaves) : PLACE_MONITOR;
	host->kernel = 0;
	host->user = 0;
	if (host->place != PLACE_GUEST && host->place != PLACE_SWITCH) {
		host->kernel = (__s32)bpf_get_stack(ctx, host->kernel_stack,
						    sizeof(host->kernel_stack), 0);
		host->user = (__s32)bpf_get_stack(ctx, host->user_stack, sizeof(host->user_stack),
						  BPF_F_USER_STACK);
	}
	store_ordered(&regs->round, regs->round + 1);
}

/* Notes the thread as it leaves its CPU, and whose it is, so that at_interrupt() knows it. */
static void leave(void *ctx, struct bpf_vcpu *shared)
{
	const __u64 task = bpf_get_current_task();
	const __u32 i = (__u32)bpf_get_attach_cookie(ctx);

	if (!with_host) {
		note(shared, &shared->left);
		return;
	}
	note_host(ctx, shared, &shared->left, &shared->host_left, true);
	if (shared->task != task && !bpf_map_update_elem(&tasks, &task, &i, BPF_ANY))
		shared->task = task;
}

static void answer_host(void *ctx, struct bpf_vcpu *shared)
{
	shared->missing = 0;
	note_host(ctx, shared, &shared->now, &shared->host_now, false);
	if (shared->host_now.place == PLACE_GUEST && !shared->now.between &&
	    shared->now.lack == LACK_NONE)
		copy_stacks(shared);
}

/*
 * Called in each interrupt by which a CPU is told to do something for another one. uniprof causes
 * one by asking the perf event of a vCPU's thread for nothing; so the thread is seen in the
 * moment that was chosen, whatever it does.
 */
SEC("raw_tp/call_function_single_entry")
int at_interrupt(void *ctx)
{
	const __u64 task = bpf_get_current_task();
	const __u32 *i = bpf_map_lookup_elem(&tasks, &task);
	struct bpf_vcpu *shared = i ? bpf_map_lookup_elem(&vcpus, i) : NULL;
	const __u64 asked = shared ? shared->asked_now : 0;

	if (!shared || asked == shared->answered_now)
		return 0;
	answer_host(ctx, shared);
	store_ordered(&shared->answered_now, asked);
	return 0;
}

/* uniprof runs it once, in its own thread. */
SEC("raw_tp")
int learn_sampler(void *ctx)
{
	sampler = bpf_get_current_task();
	return 0;
}

/*
 * Called when any thread is woken. The clock that wakes uniprof interrupts the thread of a vCPU if it is on the
 * same CPU, which then gives that up; what it did at that moment would be lost.
 */
SEC("raw_tp/sched_waking")
int at_wake(struct bpf_raw_tracepoint_args *ctx)
{
	const __u64 task = bpf_get_current_task();
	struct bpf_vcpu *shared = NULL;
	const __u32 *i;

	if (ctx->args[0] != sampler)
		return 0;
	i = bpf_map_lookup_elem(&tasks, &task);
	if (i)
		shared = bpf_map_lookup_elem(&vcpus, i);
	if (!shared || !shared->asked_wake)
		return 0;
	answer_host(ctx, shared);
	store_ordered(&shared->woken_ns, bpf_ktime_get_ns());
	shared->asked_wake = 0;
	return 0;
}

/* Called at each exit of any guest, in the vCPU's thread. */
SEC("raw_tp/kvm_exit")
int at_exit(void *ctx)
{
	const __u64 task = bpf_get_current_task();
	const __u32 *i = bpf_map_lookup_elem(&tasks, &task);
	struct bpf_exits *counts = i ? bpf_map_lookup_elem(&exits, i) : NULL;
	const struct bpf_vcpu *shared = i ? bpf_map_lookup_elem(&vcpus, i) : NULL;
	const struct kvm_vcpu *vcpu = shared ? (const void *)shared->vcpu : NULL;
	const struct vcpu_svm *svm = vcpu ? svm_of(vcpu) : NULL;
	__u32 reason;

	if (!counts || !svm)
		return 0;
	reason = BPF_CORE_READ(svm, vmcb, control.exit_code);
	if (exit_is_caused(reason))
		exits_count(counts, BPF_CORE_READ(vcpu, arch.regs[16]), reason,
			    BPF_CORE_READ(svm, vmcb, save.cpl) == 3);
	else
		exits_count(counts, 0, reason, 0);
	return 0;
}

#endif

/* Called each time that the thread leaves a CPU. */
SEC("perf_event")
int at_switch(void *ctx)
{
	struct bpf_vcpu *shared = own_vcpu(ctx);
	const __u64 asked = shared ? shared->asked : 0;

	if (!shared)
		return 1;
	leave(ctx, shared);
	copy_left(shared);
	tell_memory((const void *)shared->vcpu);
	if (asked != shared->answered)
		answer(shared, asked);
	return 1;
}
