/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef UNIPROF_TARGET_KVM_RUN_PAGE_H
#define UNIPROF_TARGET_KVM_RUN_PAGE_H

/*
 * Registers through the page that a monitor shares with KVM for each vCPU
 * (KVM_CAP_SYNC_REGS, Documentation/virt/kvm/api.rst): once told to, KVM leaves
 * them there each time that KVM_RUN returns, as it does when its thread is
 * stopped. No code is run in the monitor, and nothing of the guest is changed.
 */

#include "arch/x86_regs.h"
#include "target/guard.h"
#include "target/kvm/vcpus.h"

#define KVM_PAGES_MAX 1024u

/* Those that are told, and how they were before, for who puts them back. */
struct kvm_pages {
	int memory; /* of the monitor, for writing; -1: none */
	uint32_t n;
	uint64_t run[KVM_PAGES_MAX];
	uint64_t before[KVM_PAGES_MAX];
};

/* Adds a page, and notes how it is. ERR_DENIED with a sentence if it cannot be read. */
struct error *kvm_pages_add(struct kvm_pages *pages, uint64_t run);

/*
 * Tells KVM, for all of them: once the guard is there, so that nothing remains
 * of it whenever we die. ERR_DENIED if they cannot be written to.
 */
struct error *kvm_pages_tell(const struct kvm_pages *pages);

/*
 * A guard for the whole time: its undo puts back what KVM was told, and runs
 * when it is stopped as well as when we die.
 */
extern const struct guard_ops kvm_pages_guard;

/*
 * Reads what KVM has left; false if it has not left anything yet, or was told by
 * somebody else to leave no more. `memory` is for reading.
 */
bool kvm_page_read(int memory, uint64_t run, struct x86_regs *regs);

#endif
