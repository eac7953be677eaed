/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef UNIPROF_TARGET_KVM_UNPAUSED_H
#define UNIPROF_TARGET_KVM_UNPAUSED_H

/*
 * Reads vCPUs of KVM without stopping them, by a program in the kernel
 * (vcpu.bpf.c) that perf events run: in an interrupt of the CPU that the vCPU
 * is on, or when its thread leaves a CPU. The build chooses between unpaused.c
 * (libbpf) and unpaused_none.c.
 *
 * Where code runs in 32 bits or in user mode, KVM's registers at hand do not
 * tell; so that is taken to be as it was when ptrace told last, and refused
 * where the processor's mode is not the same any more. Flags are not told.
 */

#include "arch/x86_regs.h"
#include "target/host/guest_ram.h"
#include "target/host/thread_time.h"
#include "target/kvm/vcpus.h"

struct unpaused;

/*
 * Loads the program, and attaches it to the threads of these vCPUs. `memory`
 * (host/memory.h) is for bringing pages that the kernel has put away.
 * ERR_DENIED with a sentence when this machine does not let us.
 */
struct error *unpaused_new(const struct kvm_vcpus *vcpus, int memory, struct unpaused **out);
void unpaused_free(struct unpaused *unpaused);

/* Where the guest's memory is; to be told before anything is asked, and when it has changed. */
void unpaused_map(struct unpaused *unpaused, const struct ram_map *map);

/*
 * Where KVM was told by the monitor that the guest's memory is. To be asked
 * until it is answered, which is when a vCPU is looked at, or its thread leaves
 * a CPU: false means not yet, or that this kernel keeps it elsewhere, or in too many pieces.
 */
bool unpaused_slots(struct unpaused *unpaused, struct ram_map *map);

/*
 * Reads registers and stacks of vCPU `i`, whose thread is on a CPU; waits a
 * millisecond for it at most. False if they are not to be had in this way.
 */
bool unpaused_read(struct unpaused *unpaused, uint32_t i, struct vcpu_sample *vcpu);

/*
 * The registers of vCPU `i` if its thread has not been on a CPU since it was
 * put on one for the time'th time; nothing is waited for. Who reads memory
 * afterwards asks again.
 */
bool unpaused_waits(const struct unpaused *unpaused, uint32_t i, const struct thread_time *time,
		    struct regs *regs);

enum unpaused_proof {
	PROOF_NONE, /* there was nothing to compare yet */
	PROOF_SAME,
	PROOF_DIFFERS,
};

/*
 * Compares, in two steps around the moment that a thread is stopped: what the
 * program saw when the thread left its CPU for that must be, bit by bit, what
 * ptrace tells, the copy of the stack included. From then on unpaused_read()
 * and unpaused_waits() have something to tell of this vCPU.
 */
void unpaused_prepare(struct unpaused *unpaused, uint32_t i, uint32_t want);
enum unpaused_proof unpaused_compare(struct unpaused *unpaused, uint32_t i,
				     const struct x86_regs *all, const struct vcpu_sample *vcpu);

/* Has it? */
bool unpaused_is_proven(const struct unpaused *unpaused, uint32_t i);

/* What ptrace has told of a vCPU since: how it now is where the registers at hand do not tell. */
void unpaused_told(struct unpaused *unpaused, uint32_t i, const struct x86_regs *all);

/* The last answer was without registers: KVM had left them in the processor (Intel's keep some). */
bool unpaused_is_blind(const struct unpaused *unpaused, uint32_t i);

/* What this uniprof or this machine lacks for it, as far as can be told before trying; NULL: nothing. */
const char *unpaused_missing(void);

/* For `uniprof -V`: "without BPF", ... */
extern const char unpaused_feature[];

#endif
