/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef UNIPROF_TARGET_KVM_VCPUS_H
#define UNIPROF_TARGET_KVM_VCPUS_H

/*
 * The vCPUs of a process that runs a guest by KVM, whatever program it is:
 * found by their descriptors, by the pages that it shares with KVM for each
 * (struct kvm_run), and by the system call that their threads are in.
 */

#include <stdio.h>

#include "target/host/threads.h"

struct kvm_vcpu {
	int id;	      /* KVM's own */
	int fd;	      /* of the process */
	uint64_t run; /* where struct kvm_run is in the process */
	pid_t tid;    /* 0: not known */
};

struct kvm_vcpus {
	uint32_t n;
	struct kvm_vcpu *at; /* by id, ascending */
};

/* How many vCPUs a process has; 0: none, or its descriptors cannot be seen. */
uint32_t kvm_vcpus_count(pid_t pid);

/* ... as its mappings (host/proc.h) tell, to whoever has opened them. */
uint32_t kvm_vcpus_mapped(FILE *maps);

/* Descriptors and pages. ERR_GUEST if the process runs no guest. */
struct error *kvm_vcpus_find(pid_t pid, struct kvm_vcpus *out);
void kvm_vcpus_free(struct kvm_vcpus *vcpus);

/*
 * Finds the threads by stopping each thread of the process for a moment; those
 * of vCPUs are then in `threads`, in the order of the vCPUs. A vCPU that is
 * never seen running keeps a tid of 0.
 */
struct error *kvm_vcpus_seize(struct kvm_vcpus *vcpus, struct threads *threads);

#endif
