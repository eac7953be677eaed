/* SPDX-License-Identifier: BSD-3-Clause */

/* Before vCPUs are read without being stopped: does that see what is seen when they are? */

#include "base/clock.h"
#include "target/kvm/kvm.h"

/* Bytes of stack that are compared. */
#define COMPARED 4096u

/* A thread may leave its CPU between the question and its stop: how often to try, and when again. */
#define TRIES	 100
#define AGAIN_NS 1000000u
#define STOP_NS	 20000000u

/* Between tries for those that have not begun. */
#define MORE_NS 200000000u

/* Of as many looks at a vCPU that runs, none may be without registers. */
#define LOOKS 8

static struct error *differs(const struct kvm *kvm, uint32_t i)
{
	return error_new(ERR_DENIED, "what BPF sees of vCPU %d is not what ptrace sees",
			 kvm->vcpus.at[i].id);
}

static struct error *never_compared(const struct kvm *kvm, uint32_t i)
{
	return error_new(ERR_DENIED, "BPF sees nothing of vCPU %d that could be compared",
			 kvm->vcpus.at[i].id);
}

static struct error *is_blind(void)
{
	return error_new(ERR_DENIED, "KVM leaves registers in this kind of processor, where BPF "
				     "cannot read them");
}

/* An interrupt finds less than a stop does, where KVM reads registers only when it needs them. */
static struct error *look_while_it_runs(struct kvm *kvm, uint32_t i, struct vcpu_sample *vcpu)
{
	for (int k = 0; k < LOOKS; k++)
		if (!unpaused_read(kvm->unpaused, i, vcpu) && unpaused_is_blind(kvm->unpaused, i))
			return is_blind();
	return NULL;
}

/* *begun: it has got to where there is something to compare. */
static enum unpaused_proof compare(struct kvm *kvm, uint32_t i, struct vcpu_sample *vcpu,
				   bool *begun)
{
	struct threads *threads = &kvm->stops.threads;
	enum unpaused_proof proof = PROOF_NONE;
	struct x86_regs all;

	*begun = true;
	unpaused_prepare(kvm->unpaused, i, vcpu->want);
	if (!thread_stop(threads, &threads->at[i], STOP_NS))
		return PROOF_NONE;
	if (kvm_read_stopped(kvm, i, &all, vcpu)) {
		proof = unpaused_compare(kvm->unpaused, i, &all, vcpu);
		*begun = vcpu->regs.mmu.mode != MMU_OFF;
	}
	thread_go(threads, &threads->at[i]);
	return proof;
}

static struct error *prove_vcpu(struct kvm *kvm, uint32_t i, struct vcpu_sample *vcpu)
{
	for (int k = 0; k < TRIES; k++) {
		bool begun;

		switch (compare(kvm, i, vcpu, &begun)) {
		case PROOF_SAME:
			return look_while_it_runs(kvm, i, vcpu);
		case PROOF_DIFFERS:
			return differs(kvm, i);
		case PROOF_NONE:
			if (!begun)
				return NULL;
			break;
		}
		threads_wait(&kvm->stops.threads, clock_now_ns() + AGAIN_NS);
	}
	return never_compared(kvm, i);
}

struct error *kvm_prove(struct kvm *kvm)
{
	struct sample *sample;
	struct error *err = sample_new(kvm->vcpus.n, COMPARED, &sample);
	bool any = false;

	if (err)
		return err;
	unpaused_map(kvm->unpaused, guest_ram_map(kvm->ram));
	for (uint32_t i = 0; i < kvm->vcpus.n && !err; i++) {
		if (kvm->vcpus.at[i].tid)
			err = prove_vcpu(kvm, i, &sample->vcpu[i]);
		any |= unpaused_is_proven(kvm->unpaused, i);
	}
	sample_free(sample);
	return err || any ? err : never_compared(kvm, 0);
}

struct error *kvm_prove_more(struct kvm *kvm)
{
	const uint64_t now_ns = clock_now_ns();
	struct error *err = NULL;
	bool begun;

	if (now_ns < kvm->prove_ns)
		return NULL;
	kvm->prove_ns = now_ns + MORE_NS;
	for (uint32_t i = 0; i < kvm->vcpus.n && !err; i++) {
		if (!kvm->vcpus.at[i].tid || unpaused_is_proven(kvm->unpaused, i) ||
		    thread_letter(&kvm->stops.threads.at[i]) != 'R')
			continue;
		if (!kvm->proving)
			err = sample_new(kvm->vcpus.n, COMPARED, &kvm->proving);
		if (!err && compare(kvm, i, &kvm->proving->vcpu[i], &begun) == PROOF_DIFFERS)
			err = differs(kvm, i);
	}
	return err;
}
