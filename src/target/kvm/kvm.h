/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef UNIPROF_TARGET_KVM_KVM_H
#define UNIPROF_TARGET_KVM_KVM_H

/* Inside of the target "kvm": shared by its files alone. */

#include "target/host/memory.h"
#include "target/host/threads.h"
#include "target/kvm/bpf_reader.h"
#include "target/kvm/vcpus.h"

struct bpf_exits;
struct host_events;

struct kvm_target {
	struct target base;
	struct stops stops;
	struct kvm_vcpus vcpus;
	struct kvm_pages pages;
	int memory;
	FILE *maps; /* of the monitor */
	struct ram_search *search;
	struct guest_ram *ram;
	unsigned tries;
	uint64_t try_ns;
	struct bpf_reader *bpf;
	struct host_events
		*events; /* the host's side without BPF; NULL: it is not wanted, or comes by BPF */
	struct sample *crosscheck; /* for kvm_crosscheck_more(); NULL: none was needed yet */
	uint64_t crosscheck_ns;	   /* time of the next attempt */
	uint64_t hotplug_ns;	   /* next check for hotplug */
	uint32_t vcpus_told;	   /* vCPUs that the user has been told of */
	bool has_slots;		   /* memory slots come from KVM */
	bool told_of_unknown;	   /* the user has been told of memory whose place is not known */
	bool let_go;		   /* no vCPU is traced any more: all are read by `bpf` */
	bool told_of_32_bits;	   /* ... of code that is not sampled */
	struct error *why_stopped; /* NULL: vCPUs are read by `bpf` */
	const char *via;	   /* the way that was asked for; NULL: none */
	char advice[256];
};

/* Registers of vCPU `i`, whose thread is stopped; *all is set on x86 alone. False: there are none in this moment. */
bool kvm_registers(struct kvm_target *kvm, uint32_t i, struct x86_regs *all, struct regs *out);

/* Reads vCPU `i`, whose thread is stopped, by ptrace; on x86, *all is the input of x86_regs_convert(). */
bool kvm_read_stopped(struct kvm_target *kvm, uint32_t i, struct x86_regs *all,
		      struct vcpu_sample *vcpu);

/*
 * Compares what kvm->bpf sees of each vCPU with what ptrace does; a difference
 * is an error with a sentence. The guest's memory must be known. vCPUs that have
 * not begun have nothing to compare: they are read by ptrace until
 * kvm_crosscheck_more, called now and then, finds that they have.
 */
struct error *kvm_crosscheck(struct kvm_target *kvm);
struct error *kvm_crosscheck_more(struct kvm_target *kvm);

/* Has BPF proved right for all vCPUs, so that none has to be stopped for comparison any more? */
bool kvm_crosscheck_is_done(const struct kvm_target *kvm);

/* `read_nostop` of struct stops, through kvm->bpf. */
bool kvm_read_nostop(void *kvm, uint32_t i, struct vcpu_sample *vcpu, struct thread_time *time,
		     bool *on_cpu);

/* `wants_cpu` of struct stops, through kvm->bpf. */
bool kvm_wants_cpu(void *kvm, uint32_t i, const struct thread_time *time);

/* As target_ops.exits, of vCPU `i`: what was counted of its exits. */
void kvm_exits_tell(uint32_t i, const struct bpf_exits *exits,
		    void (*each)(void *ctx, const struct vcpu_exits *exits), void *ctx);

/* `read_nostop` with the host's side of the vCPU, in the moment in which it is called. */
bool kvm_read_host(void *kvm, uint32_t i, struct vcpu_sample *vcpu, struct thread_time *time,
		   bool *on_cpu);

/*
 * The host's side by perf events (host_events.c), for as many threads as there are vCPUs; ERR_DENIED with a
 * sentence. Call sleep() before uniprof sleeps until then: what the thread of a vCPU does when that time
 * comes is noted if it has uniprof's CPU. exits() is as target_ops.exits.
 */
struct error *host_events_new(const struct kvm_vcpus *vcpus, struct host_events **out);
void host_events_free(struct host_events *events);
void host_events_sleep(struct host_events *events, uint64_t until_ns);
void host_events_exits(struct host_events *events,
		       void (*each)(void *ctx, const struct vcpu_exits *exits), void *ctx);

/* `read_nostop` and `read` of struct stops, through kvm->events: a vCPU is stopped if it has the CPU, or its guest had it. */
bool kvm_events_read_nostop(void *kvm, uint32_t i, struct vcpu_sample *vcpu,
			    struct thread_time *time, bool *on_cpu);
bool kvm_events_read(void *kvm, uint32_t i, struct vcpu_sample *vcpu, uint64_t until_ns);

#endif
