/* SPDX-License-Identifier: BSD-3-Clause */
#pragma once

/* Inside of the target "kvm": shared by its files alone, but for bpf_feature. */

#include "target/host/memory.h"
#include "target/host/threads.h"
#include "target/kvm/vcpus.h"

struct bpf_exits;
struct bpf_reader;
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
	struct sample *opened; /* the last one that searched the guest's memory as it was opened */
	struct sample *crosscheck; /* for comparisons; NULL: nothing was compared yet */
	uint64_t crosscheck_ns;	   /* time of the next attempt */
	uint64_t hotplug_ns;	   /* next check for hotplug */
	uint64_t sleeps_until_ns;  /* when uniprof was to be woken last */
	uint32_t vcpus_told;	   /* vCPUs that the user has been told of */
	bool has_slots;		   /* memory slots come from KVM */
	bool told_of_unknown;	   /* the user has been told of memory whose place is not known */
	bool let_go;		   /* no vCPU is traced any more: all are read by `bpf` */
	bool told_of_32_bits;	   /* ... of code that is not sampled */
	struct error *why_stopped; /* NULL: vCPUs are read by `bpf` */
	const char *via;	   /* the way that was asked for; NULL: none */
	const struct thread_request *thread; /* of the sample that is taken; NULL: none */
	char advice[256];
};

/* Registers of vCPU `i`, whose thread is stopped. False: there are none in this moment. */
bool kvm_registers(struct kvm_target *kvm, uint32_t i, union vcpu_regs *all, struct regs *out);

/* Reads vCPU `i`, whose thread is stopped, by ptrace; *all is what vcpu->regs were made of. */
bool kvm_read_stopped(struct kvm_target *kvm, uint32_t i, union vcpu_regs *all,
		      struct vcpu_sample *vcpu);

/* Nothing is known of the guest but for registers. */
static inline void kvm_forget_stacks(struct vcpu_sample *vcpu)
{
	vcpu->stack.len = 0;
	vcpu->thread.there = false;
	for (unsigned k = 0; k < UNWIND_OTHERS; k++)
		vcpu->others[k].len = 0;
}

/* Copies the thread that vCPU `i` runs, which stands still with these registers, if that is wanted. */
void kvm_copy_thread(struct kvm_target *kvm, uint32_t i, struct vcpu_sample *vcpu);

/*
 * Finds where the CPU of vCPU `i` has its own data: on arm64 TPIDR_EL1 tells, if it was read. On x86 no
 * register that is read here does while a program runs: the number of the CPU is in its GDT, and the
 * kernel has a table.
 */
void kvm_find_own(struct kvm_target *kvm, uint32_t i, const struct regs *regs);

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
 * sentence. What the thread of a vCPU does when uniprof is woken (kvm->sleeps_until_ns) is noted if it has
 * uniprof's CPU. exits() is as target_ops.exits.
 */
struct error *host_events_new(const struct kvm_vcpus *vcpus, struct host_events **out);
void host_events_free(struct host_events *events);
void host_events_exits(struct host_events *events,
		       void (*each)(void *ctx, const struct vcpu_exits *exits), void *ctx);

/* `read_nostop` and `read` of struct stops, through kvm->events: a vCPU is stopped if it has the CPU, or its guest had it. */
bool kvm_events_read_nostop(void *kvm, uint32_t i, struct vcpu_sample *vcpu,
			    struct thread_time *time, bool *on_cpu);
bool kvm_events_read(void *kvm, uint32_t i, struct vcpu_sample *vcpu, uint64_t until_ns);

/*
 * Reads vCPUs of KVM without stopping them, by a program in the kernel
 * (vcpu.bpf.c) that perf events run: in an interrupt of the CPU that the vCPU
 * is on, or when its thread leaves a CPU. The build has bpf_reader.c (libbpf), or
 * left_out.c answers in its place.
 *
 * Registers that the guest can change without KVM are read where the processor stores them:
 * with AMD's nested paging, in the VMCB. Where that is not to be had, nothing is
 * (bpf_reader_lack()). Flags, and whether code runs in 32 bits or in user mode,
 * only a VMCB tells; else that is taken to be as ptrace told it last, and refused
 * where the processor's mode is not the same any more. On arm64, KVM has all of them in
 * memory where the host's kernel runs at EL1: vcpu_arm64.h.
 */

/*
 * Loads the program, and attaches it to the threads of these vCPUs. `memory`
 * (host/memory.h) is for bringing pages that the kernel has put away; `host`:
 * the host's side is wanted, too. ERR_DENIED with a sentence when this
 * machine does not let us.
 */
struct error *bpf_reader_new(const struct kvm_vcpus *vcpus, int memory, bool host,
			     struct bpf_reader **out);
void bpf_reader_free(struct bpf_reader *bpf);

/* Sets the map of the guest's memory; call before anything is asked, and when it has changed. */
void bpf_reader_map(struct bpf_reader *bpf, const struct ram_map *map);

/*
 * The guest's memory as the monitor has told KVM. Ask until it is answered, which happens when a
 * vCPU is sampled, or its thread leaves a CPU: false means not yet, or that this kernel keeps it
 * elsewhere, or in too many pieces.
 */
bool bpf_reader_slots(struct bpf_reader *bpf, struct ram_map *map);

/* Sets what is copied, with stacks, of the guest's thread; NULL: nothing. `own`: as of struct regs. */
void bpf_reader_want_thread(struct bpf_reader *bpf, uint32_t i,
			    const struct thread_request *request, uint64_t own);

/* Address of the GDT of vCPU `i` (x86); 0: not known. */
uint64_t bpf_reader_gdt(const struct bpf_reader *bpf, uint32_t i);

/*
 * Reads registers and stacks of vCPU `i`, whose thread is on a CPU; waits a
 * millisecond for it at most. False if this does not work.
 */
bool bpf_reader_read(struct bpf_reader *bpf, uint32_t i, struct vcpu_sample *vcpu);

/*
 * The registers of vCPU `i` if its thread has not been put on a CPU since
 * `time` was read; waits for nothing. A caller that reads memory with them has
 * to ask again afterwards.
 */
bool bpf_reader_waits(const struct bpf_reader *bpf, uint32_t i, const struct thread_time *time,
		      struct regs *regs);

/*
 * Call before uniprof sleeps until then (CLOCK_MONOTONIC): the program copies the stack of a vCPU whose thread
 * leaves its CPU from then on, once.
 */
void bpf_reader_sleeps(struct bpf_reader *bpf, uint64_t until_ns);

/*
 * Reads the registers and the stack that were copied so, if the thread has not been put on a CPU since it left,
 * as `time` tells. False: nothing was copied, or less than is wanted.
 */
bool bpf_reader_left(struct bpf_reader *bpf, uint32_t i, const struct thread_time *time,
		     struct vcpu_sample *vcpu);

/*
 * The host's side of vCPU `i`, into vcpu->host, with the guest's registers and stack where
 * the guest ran and they are believed. By host_waits() if its thread has not been put on a CPU since
 * `time` was read: as bpf_reader_waits(), stacks in memory that the caller reads.
 * host_now() reads a thread that is on a CPU, in an interrupt that comes at once. False: it is on none.
 */
bool bpf_reader_host_waits(const struct bpf_reader *bpf, uint32_t i, const struct thread_time *time,
			   struct vcpu_sample *vcpu);
bool bpf_reader_host_now(struct bpf_reader *bpf, uint32_t i, struct vcpu_sample *vcpu);

/*
 * Before uniprof sleeps until then: the interrupt that wakes it may be the end of a vCPU's time on the CPU
 * that both share. By host_woken(), to be asked first and once after that, if it was, the vCPU is told as it was then.
 */
void bpf_reader_host_sleeps(struct bpf_reader *bpf, uint64_t until_ns);
bool bpf_reader_host_woken(struct bpf_reader *bpf, uint32_t i, struct vcpu_sample *vcpu);

/* As target_ops.exits. */
void bpf_reader_exits(const struct bpf_reader *bpf,
		      void (*each)(void *ctx, const struct vcpu_exits *exits), void *ctx);

enum check_result {
	CHECK_NOTHING, /* there was nothing to compare yet */
	CHECK_SAME,
	CHECK_DIFFERS,
};

/* Registers are KVM's own at some times only: each of the two is checked by itself. */
enum check_when {
	WHEN_WAITING, /* while KVM, or the monitor, has the CPU */
	WHEN_RUNNING, /* in an interrupt that takes the CPU from the guest */
};

/*
 * Compares, in steps before and after the moment that a thread is to be stopped, what the
 * program saw with what ptrace tells, bit by bit, the stack included: in the
 * interrupt before, if the guest has not run since, and when the thread left
 * its CPU for the stop, at which its thread's time was read. Enough
 * equal readings check a vCPU (`when`): it is read by BPF from then on. The
 * caller ends reading by BPF at the first difference. From bpf_reader_prepare() on
 * the interrupt waits for the stop; bpf_reader_stopped() ends that, whether it has come or not.
 */
void bpf_reader_prepare(struct bpf_reader *bpf, uint32_t i, uint32_t want);
void bpf_reader_stopped(struct bpf_reader *bpf, uint32_t i);
enum check_result bpf_reader_compare(struct bpf_reader *bpf, uint32_t i,
				     const struct thread_time *time, const union vcpu_regs *all,
				     const struct vcpu_sample *vcpu);
bool bpf_reader_is_checked(const struct bpf_reader *bpf, uint32_t i, enum check_when when);

/* True if something of this vCPU was withheld because it was not compared yet. */
bool bpf_reader_wants_check(const struct bpf_reader *bpf, uint32_t i);

/* Passes on what ptrace told of a vCPU: fills the state that the registers at hand lack. */
void bpf_reader_note_ptrace(struct bpf_reader *bpf, uint32_t i, const union vcpu_regs *all);

/*
 * bpf_regs_convert() reads what the program has seen (bpf_shared.h) as registers of this host; for x86 in
 * vcpus.c. `last`: what ptrace told last, for what they lack; false: that is of another mode.
 */
struct bpf_regs;
bool bpf_regs_convert(const struct bpf_regs *seen, const union vcpu_regs *last, struct regs *out);

/* True if they are those that ptrace tells. */
bool bpf_regs_same(const struct bpf_regs *seen, const union vcpu_regs *all);

/* True if KVM had nothing to do for the guest from one to the other, both being of the same exit. */
bool bpf_regs_untouched(const struct bpf_regs *seen, const struct bpf_regs *left);

/* Why vCPUs of this kind cannot be read, as the last answer shows; NULL: they can. */
const char *bpf_reader_lack(const struct bpf_reader *bpf, uint32_t i);

/*
 * Reason why this uniprof or this machine cannot do it, as far as it shows
 * before trying; NULL: none.
 */
const char *bpf_missing(void);

/* Loads the program and forgets it: whether this kernel takes it, and keeps registers of its vCPUs where it sees them. */
struct error *bpf_try(void);

/*
 * Sets *protection to what keeps others from looking into the guest of a process (enum
 * bpf_protection), by what KVM notes of each of its vCPUs and of the guest, which may run or not;
 * and *lack to what BPF lacks of any vCPU of this host (enum bpf_lack). A pid of 0: of all guests.
 * False: there is no vCPU, or this kernel, or the lack of a right, does not let us see.
 */
bool bpf_examine(pid_t pid, uint32_t *protection, uint32_t *lack);

/* For `uniprof -V`: "without BPF", ... */
extern const char bpf_feature[];
