/* SPDX-License-Identifier: BSD-3-Clause */

/*
 * Where the time of threads that run guests of KVM goes, to the nanosecond, by the kernel's own tracepoints: what
 * tests/rig/kvm_host_test.py compares samples with. Loaded by bpftool, which reads `times`, too.
 */

#include <linux/bpf.h>
#include <stdbool.h>

#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>

#define SYS_IOCTL 16
#define KVM_RUN	  0xae80

char terms[] SEC("license") = "Dual BSD/GPL";

struct pt_regs {
	unsigned long si;
} __attribute__((preserve_access_index));

struct task_struct {
	int pid;
	unsigned int __state; /* 0: it wants a CPU */
} __attribute__((preserve_access_index));

enum place { GUEST, EXIT, MONITOR, IDLE, WAITS, PLACES };

struct times {
	__u64 since;
	__u64 ns[PLACES];
	__u64 exits;
	__u32 place;
	__u32 back; /* where the thread goes on when it has a CPU again */
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 64);
	__type(key, __u32);
	__type(value, struct times);
} times SEC(".maps");

static struct times *of(__u32 tid)
{
	return bpf_map_lookup_elem(&times, &tid);
}

static struct times *own(void)
{
	return of((__u32)bpf_get_current_pid_tgid());
}

static void move(struct times *t, __u32 place)
{
	const __u64 now = bpf_ktime_get_ns();

	if (!t)
		return;
	if (t->place < PLACES)
		t->ns[t->place] += now - t->since;
	t->since = now;
	t->place = place;
}

SEC("raw_tp/kvm_entry")
int entry(void *ctx)
{
	const __u32 tid = (__u32)bpf_get_current_pid_tgid();
	struct times *t = of(tid);

	if (!t) {
		const struct times first = {.since = bpf_ktime_get_ns(), .place = GUEST};

		bpf_map_update_elem(&times, &tid, &first, BPF_NOEXIST);
		return 0;
	}
	move(t, GUEST);
	return 0;
}

SEC("raw_tp/kvm_exit")
int leave(void *ctx)
{
	struct times *t = own();

	if (t)
		t->exits++;
	move(t, EXIT);
	return 0;
}

SEC("raw_tp/sys_enter")
int begin_call(struct bpf_raw_tracepoint_args *ctx)
{
	const struct pt_regs *regs = (const void *)ctx->args[0];

	if (ctx->args[1] == SYS_IOCTL && BPF_CORE_READ(regs, si) == KVM_RUN)
		move(own(), EXIT);
	return 0;
}

SEC("raw_tp/sys_exit")
int end_call(void *ctx)
{
	move(own(), MONITOR);
	return 0;
}

SEC("raw_tp/sched_wakeup")
int wake(struct bpf_raw_tracepoint_args *ctx)
{
	const struct task_struct *task = (const void *)ctx->args[0];
	struct times *t = of((__u32)BPF_CORE_READ(task, pid));

	if (t && t->place == IDLE)
		move(t, WAITS);
	return 0;
}

SEC("raw_tp/sched_switch")
int change(struct bpf_raw_tracepoint_args *ctx)
{
	const struct task_struct *from = (const void *)ctx->args[1],
				 *to = (const void *)ctx->args[2];
	struct times *t = of((__u32)BPF_CORE_READ(from, pid));

	if (t) {
		t->back = t->place;
		move(t, BPF_CORE_READ(from, __state) ? IDLE : WAITS);
	}
	t = of((__u32)BPF_CORE_READ(to, pid));
	if (t)
		move(t, t->back);
	return 0;
}
