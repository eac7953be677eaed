/* SPDX-License-Identifier: BSD-3-Clause */
#pragma once

/*
 * The vCPUs of a process that runs a guest by KVM, whatever program it is:
 * found by their descriptors, by the pages that it shares with KVM for each
 * (struct kvm_run), and by the system call that their threads are in.
 */

#include <stdio.h>

#include "arch/arch.h"
#include "arch/x86/x86.h"
#include "target/guard.h"
#include "target/host/threads.h"

struct kvm_thread {
	int id;	      /* KVM's own */
	int fd;	      /* of the process */
	uint64_t run; /* where struct kvm_run is in the process */
	pid_t tid;    /* 0: not known */
	uint64_t gdt; /* address of the guest's GDT when ptrace read registers last; x86 alone */
	uint64_t own; /* where the guest's kernel has the CPU's own data; 0: not known */
};

struct kvm_vcpus {
	uint32_t n;
	struct kvm_thread *at; /* by id, ascending */
};

/* Number of vCPUs of a process; 0: none, or its descriptors cannot be read. */
uint32_t kvm_vcpus_count(pid_t pid);

/* False if this host has no KVM. */
bool kvm_is_there(void);

/* ... counted in its mappings (host/proc.h), which were opened before. */
uint32_t kvm_vcpus_mapped(FILE *maps);

/*
 * Why nobody can look into the guest of a process, as it is encrypted, a sentence; NULL: nothing
 * of that kind is known.
 */
const char *kvm_protection(pid_t pid);

/*
 * Descriptors and pages. ERR_GUEST if the process runs no guest, or one that is protected: KVM
 * does not run a vCPU with encrypted registers that are asked for in its page.
 */
struct error *kvm_vcpus_find(pid_t pid, struct kvm_vcpus *out);
void kvm_vcpus_free(struct kvm_vcpus *vcpus);

/*
 * Finds the threads by stopping each thread of the process for a moment; those
 * of vCPUs are then in `threads`, in the order of the vCPUs. A vCPU that is
 * never seen running keeps a tid of 0.
 */
struct error *kvm_vcpus_seize(struct kvm_vcpus *vcpus, struct threads *threads);

/* What differs between hosts: arm64's is in vcpus_arm64.c. */

/* All registers that a stop tells of a vCPU: of the host's processors. */
union vcpu_regs {
	struct x86_regs x86;
	struct regs arm64;
};

/* The guests'. */
extern const struct arch *const kvm_arch;

/* A stop by ptrace, as `list` tells: on arm64 it takes ten times as many instructions (docs/cost.md). */
#ifdef __aarch64__
#define KVM_STOP "150 us"
#else
#define KVM_STOP "15 us"
#endif

/* Rights that reading registers takes: enum seccomp_role. */
extern const int kvm_role;

/* The descriptor of the vCPU that a stopped thread runs by KVM_RUN; negative: none. */
int kvm_thread_fd(struct threads *threads, struct thread *thread);

/*
 * Registers through the page that a monitor shares with KVM for each vCPU
 * (KVM_CAP_SYNC_REGS, Documentation/virt/kvm/api.rst): once told to, KVM leaves
 * them there each time that KVM_RUN returns, as it does when its thread is
 * stopped. No code is run in the monitor, and nothing of the guest is changed.
 */

#define KVM_PAGES_MAX 1024u

/* Pages of the vCPUs whose registers KVM leaves there, with their old contents to be restored. */
struct kvm_pages {
	struct guard *guard; /* NULL: KVM was told nothing */
	int memory;	     /* of the monitor, for writing */
	uint32_t n;
	uint64_t run[KVM_PAGES_MAX];
	uint64_t before[KVM_PAGES_MAX];
	/* arm64 alone, where `memory` stays open: code of the monitor that makes a call, and that loads a signal frame. */
	uint64_t svc, sigreturn;
};

/*
 * Tells KVM to leave registers in the pages of these vCPUs, and starts a guard
 * for the whole time: its undo restores KVM's settings when it is stopped
 * (guard_stop), as well as when we die. ERR_DENIED with a sentence if the pages
 * cannot be read or written to; there may be a guard even then. On arm64, KVM is told nothing:
 * looks for what calls of stopped threads take.
 */
struct error *kvm_pages_start(pid_t pid, const struct kvm_vcpus *vcpus, struct kvm_pages *pages);

/*
 * Reads the registers that KVM has left; false if it has not left any yet, or
 * somebody else has told it to stop that. `memory` is for reading.
 */
bool kvm_page_read(int memory, uint64_t run, struct x86_regs *regs);
