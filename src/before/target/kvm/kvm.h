/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef UNIPROF_TARGET_KVM_KVM_H
#define UNIPROF_TARGET_KVM_KVM_H

/* Inside of the target "kvm": shared by its files alone. */

#include "target/host/guest_ram.h"
#include "target/host/stops.h"
#include "target/kvm/layout.h"
#include "target/kvm/run_page.h"
#include "target/kvm/unpaused.h"
#include "target/kvm/vcpus.h"

struct kvm {
	struct target base;
	struct stops stops;
	struct kvm_vcpus vcpus;
	struct kvm_pages pages;
	struct guard *guard;
	int memory;
	FILE *maps; /* of the monitor */
	struct layout *layout;
	struct guest_ram *ram;
	unsigned tries;
	uint64_t try_ns;
	struct unpaused *unpaused;
	struct sample *proving;	   /* for kvm_prove_more(); NULL: none was needed yet */
	uint64_t prove_ns;	   /* when to try that again */
	uint64_t changes_ns;	   /* when to look again for what was plugged in */
	uint32_t vcpus_told;	   /* how many there are, as far as has been told */
	bool by_slots;		   /* where memory is was told by KVM */
	bool told_of_unknown;	   /* ... that there is memory which is not known */
	struct error *why_stopped; /* NULL: vCPUs are read by `unpaused` */
	const char *via;	   /* the way that was asked for; NULL: none */
	char advice[256];
};

/* Reads vCPU `i` by ptrace, whose thread is stopped; *all is what x86_regs_take() was given. */
bool kvm_read_stopped(struct kvm *kvm, uint32_t i, struct x86_regs *all, struct vcpu_sample *vcpu);

/* As `peek` of struct stops, by kvm->unpaused. */
bool kvm_peek(void *kvm, uint32_t i, struct vcpu_sample *vcpu, struct thread_time *time,
	      bool *on_cpu);

/*
 * Makes kvm->unpaused prove that it sees of each vCPU what ptrace does; an
 * error with a sentence if it does not. The guest's memory must be known. vCPUs
 * that have not begun can prove nothing: they are read by ptrace until they do,
 * which is to be tried now and then.
 */
struct error *kvm_prove(struct kvm *kvm);
struct error *kvm_prove_more(struct kvm *kvm);

/* Memory and vCPUs that are added to the guest, or taken from it; to be asked now and then. */
void kvm_look_for_changes(struct kvm *kvm);

#endif
