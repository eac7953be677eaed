/* SPDX-License-Identifier: BSD-3-Clause */

/* Reads vCPUs without stopping them, once such readings were compared with those of stopped ones. */

#include "base/clock.h"
#include "target/kvm/bpf_shared.h"
#include "target/kvm/kvm.h"

/* Bytes of stack that are compared. */
#define COMPARED 4096u

/*
 * A thread may leave its CPU between the question and its stop: attempts, and
 * the time between them. The guest runs meanwhile, since what an exit has left
 * behind would always agree.
 */
#define TRIES	 50
#define AGAIN_NS 1000000u
#define STOP_NS	 20000000u

/* Time between attempts for vCPUs that have not begun. */
#define MORE_NS 200000000u

/* Attempts of one round once sampling has begun. */
#define TRIES_LATER 8

/* Attempts for a vCPU that does not run: only registers while it waits can be compared. */
#define TRIES_ASLEEP 5

static struct error *differs(const struct kvm_target *kvm, uint32_t i)
{
	return error_new(ERR_DENIED, "what BPF sees of vCPU %d is not what ptrace sees",
			 kvm->vcpus.at[i].id);
}

static struct error *never_compared(const struct kvm_target *kvm, uint32_t i)
{
	return error_new(ERR_DENIED, "BPF sees nothing of vCPU %d that could be compared",
			 kvm->vcpus.at[i].id);
}

/* *begun: the vCPU has something to compare. */
static enum check_result compare(struct kvm_target *kvm, uint32_t i, struct vcpu_sample *vcpu,
				 bool *begun)
{
	struct threads *threads = &kvm->stops.threads;
	enum check_result result = CHECK_NOTHING;
	struct thread_time time;
	union vcpu_regs all;
	bool stopped;

	*begun = true;
	bpf_reader_prepare(kvm->bpf, i, vcpu->request.want);
	stopped = thread_stop(threads, &threads->at[i], STOP_NS);
	bpf_reader_stopped(kvm->bpf, i);
	if (!stopped)
		return CHECK_NOTHING;
	if (kvm_read_stopped(kvm, i, &all, vcpu)) {
		thread_time(&threads->at[i], &time);
		result = bpf_reader_compare(kvm->bpf, i, &time, &all, vcpu);
		*begun = vcpu->regs.mmu.mode != MMU_OFF;
	}
	thread_go(threads, &threads->at[i]);
	return result;
}

static bool runs(const struct kvm_target *kvm, uint32_t i)
{
	return thread_letter(&kvm->stops.threads.at[i]) == 'R';
}

/* *done: this vCPU needs no further comparison now. */
static struct error *compare_once(struct kvm_target *kvm, uint32_t i, struct vcpu_sample *vcpu,
				  bool *done)
{
	bool begun;
	const enum check_result result = compare(kvm, i, vcpu, &begun);
	const char *lack = bpf_reader_lack(kvm->bpf, i);

	*done = !begun || bpf_reader_is_checked(kvm->bpf, i, WHEN_RUNNING);
	if (result == CHECK_DIFFERS)
		return differs(kvm, i);
	if (lack)
		return error_new(ERR_DENIED, "%s", lack);
	if (!*done)
		threads_wait(&kvm->stops.threads, clock_now_ns() + AGAIN_NS);
	return NULL;
}

static struct error *crosscheck_vcpu(struct kvm_target *kvm, uint32_t i, struct vcpu_sample *vcpu)
{
	unsigned asleep = 0;
	bool done = false;

	for (int k = 0; k < TRIES && asleep < TRIES_ASLEEP && !done; k++) {
		asleep += !runs(kvm, i);
		TRY(compare_once(kvm, i, vcpu, &done));
	}
	return done || bpf_reader_is_checked(kvm->bpf, i, WHEN_WAITING) ? NULL
									: never_compared(kvm, i);
}

struct error *kvm_crosscheck(struct kvm_target *kvm)
{
	bool any = false;

	TRY(sample_new(kvm->vcpus.n, COMPARED, &kvm->crosscheck));
	bpf_reader_map(kvm->bpf, guest_ram_map(kvm->ram));
	for (uint32_t i = 0; i < kvm->vcpus.n; i++) {
		if (kvm->vcpus.at[i].tid)
			TRY(crosscheck_vcpu(kvm, i, &kvm->crosscheck->vcpu[i]));
		any |= bpf_reader_is_checked(kvm->bpf, i, WHEN_WAITING);
	}
	return any ? NULL : never_compared(kvm, 0);
}

/* Nothing is waited for while samples are taken. */
static struct error *crosscheck_now(struct kvm_target *kvm, uint32_t i)
{
	enum check_result result = CHECK_NOTHING;
	bool begun = true;

	for (int k = 0; k < TRIES_LATER && begun && result != CHECK_DIFFERS; k++)
		result = compare(kvm, i, &kvm->crosscheck->vcpu[i], &begun);
	return result == CHECK_DIFFERS ? differs(kvm, i) : NULL;
}

struct error *kvm_crosscheck_more(struct kvm_target *kvm)
{
	const uint64_t now_ns = clock_now_ns();

	if (now_ns < kvm->crosscheck_ns)
		return NULL;
	kvm->crosscheck_ns = now_ns + MORE_NS;
	for (uint32_t i = 0; i < kvm->vcpus.n; i++)
		if (kvm->vcpus.at[i].tid && bpf_reader_wants_check(kvm->bpf, i) && runs(kvm, i))
			TRY(crosscheck_now(kvm, i));
	return NULL;
}

bool kvm_crosscheck_is_done(const struct kvm_target *kvm)
{
	for (uint32_t i = 0; i < kvm->vcpus.n; i++)
		if (kvm->vcpus.at[i].tid && !(bpf_reader_is_checked(kvm->bpf, i, WHEN_RUNNING) &&
					      bpf_reader_is_checked(kvm->bpf, i, WHEN_WAITING)))
			return false;
	return true;
}

/*
 * A vCPU that is on a CPU is read from within an interrupt of that CPU. One
 * whose thread waits, for a CPU or for something else, stands still anyway: it
 * is read as it left its CPU, and if it has not run meanwhile, that holds.
 */

/* Lets the program copy threads that run from now on. */
static void want_thread(struct kvm_target *kvm, uint32_t i)
{
	bpf_reader_want_thread(kvm->bpf, i, kvm->thread, kvm->vcpus.at[i].own);
}

/* Reads the memory of a vCPU whose registers, as it left its CPU, are there. */
static void read_waiting(struct kvm_target *kvm, uint32_t i, struct vcpu_sample *vcpu)
{
	guest_ram_forget(kvm->ram);
	paged_memory_copy_stacks(&kvm->base.memory, kvm_arch, vcpu);
	kvm_copy_thread(kvm, i, vcpu);
}

/* The vCPU may come and go between the two readings; one that cannot be stopped is met in the end. */
#define NOSTOP_ROUNDS 3
#define MANY_ROUNDS   16

bool kvm_read_nostop(void *ctx, uint32_t i, struct vcpu_sample *vcpu, struct thread_time *time,
		     bool *on_cpu)
{
	struct kvm_target *kvm = ctx;
	const struct thread *thread = &kvm->stops.threads.at[i];

	want_thread(kvm, i);
	*on_cpu = false;
	if (bpf_reader_left(kvm->bpf, i, time, vcpu)) {
		kvm_find_own(kvm, i, &vcpu->regs);
		return true;
	}
	/* Larger stacks: fall back to ptrace. */
	if (thread->seized && vcpu->request.want > SHARED_STACK_MAX)
		return false;
	for (int round = 0; round < (thread->seized ? NOSTOP_ROUNDS : MANY_ROUNDS); round++) {
		const uint64_t timeslices = time->timeslices;

		*on_cpu = !bpf_reader_waits(kvm->bpf, i, time, &vcpu->regs);
		if (*on_cpu && bpf_reader_read(kvm->bpf, i, vcpu)) {
			thread_time(thread, time);
			kvm_find_own(kvm, i, &vcpu->regs);
			return true;
		}
		if (!*on_cpu)
			read_waiting(kvm, i, vcpu);
		thread_time(thread, time);
		if (!*on_cpu && time->timeslices == timeslices)
			return true;
	}
	*on_cpu = false;
	return false;
}

bool kvm_read_host(void *ctx, uint32_t i, struct vcpu_sample *vcpu, struct thread_time *time,
		   bool *on_cpu)
{
	struct kvm_target *kvm = ctx;
	const struct thread *thread = &kvm->stops.threads.at[i];

	want_thread(kvm, i);
	*on_cpu = bpf_reader_host_woken(kvm->bpf, i, vcpu);
	if (*on_cpu) {
		kvm_find_own(kvm, i, &vcpu->regs);
		return true;
	}
	for (int round = 0; round < MANY_ROUNDS; round++) {
		const uint64_t timeslices = time->timeslices;

		*on_cpu = !bpf_reader_host_waits(kvm->bpf, i, time, vcpu);
		if (*on_cpu && bpf_reader_host_now(kvm->bpf, i, vcpu)) {
			thread_time(thread, time);
			if (vcpu->host->guest_known)
				kvm_find_own(kvm, i, &vcpu->regs);
			return true;
		}
		if (!*on_cpu && vcpu->host->place == HOST_GUEST && vcpu->host->guest_known)
			read_waiting(kvm, i, vcpu);
		thread_time(thread, time);
		if (!*on_cpu && time->timeslices == timeslices)
			return true;
	}
	return false;
}
