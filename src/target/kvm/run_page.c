/* SPDX-License-Identifier: BSD-3-Clause */
#include "target/kvm/run_page.h"

#include <errno.h>
#include <linux/kvm.h>
#include <stddef.h>
#include <string.h>
#include <unistd.h>

#include "target/host/memory.h"

#define WANTED (KVM_SYNC_X86_REGS | KVM_SYNC_X86_SREGS)

static bool put(int memory, uint64_t va, const void *bytes, size_t len)
{
	return pwrite(memory, bytes, len, (off_t)va) == (ssize_t)len;
}

/* CR0.ET is always set: zero means that KVM has not been there. */
static bool wipe(int memory, uint64_t run)
{
	const __u64 nothing = 0;

	return put(memory, run + offsetof(struct kvm_run, s.regs.sregs.cr0), &nothing,
		   sizeof(nothing));
}

static uint64_t valid_at(uint64_t run)
{
	return run + offsetof(struct kvm_run, kvm_valid_regs);
}

struct error *kvm_pages_add(struct kvm_pages *pages, uint64_t run)
{
	__u64 valid;

	if (pages->n == KVM_PAGES_MAX)
		return error_new(ERR_GUEST, "more than %u vCPUs are too many", KVM_PAGES_MAX);
	if (host_memory_read(pages->memory, valid_at(run), &valid, sizeof(valid)) != sizeof(valid))
		return error_new(ERR_DENIED, "the page that KVM shares with the monitor cannot "
					     "be read");
	pages->run[pages->n] = run;
	pages->before[pages->n++] = valid;
	return NULL;
}

struct error *kvm_pages_tell(const struct kvm_pages *pages)
{
	for (uint32_t i = 0; i < pages->n; i++) {
		const __u64 valid = pages->before[i] | WANTED;

		/* A monitor that has asked for registers itself is not to find zeros there. */
		if ((pages->before[i] || wipe(pages->memory, pages->run[i])) &&
		    put(pages->memory, valid_at(pages->run[i]), &valid, sizeof(valid)))
			continue;
		return error_errno(ERR_DENIED, errno,
				   "the page that KVM shares with the monitor cannot be written "
				   "to");
	}
	return NULL;
}

static void keeps(void *ctx, struct descriptors *keep)
{
	descriptors_add(keep, ((struct kvm_pages *)ctx)->memory);
}

static bool prepare(void *ctx)
{
	return ((struct kvm_pages *)ctx)->memory >= 0;
}

static void undo(void *ctx, enum guard_phase phase)
{
	const struct kvm_pages *pages = ctx;

	for (uint32_t i = 0; i < pages->n; i++)
		(void)put(pages->memory, valid_at(pages->run[i]), &pages->before[i],
			  sizeof(pages->before[i]));
}

const struct guard_ops kvm_pages_guard = {.keeps = keeps, .prepare = prepare, .undo = undo};

static void take(const struct kvm_regs *regs, const struct kvm_sregs *sregs, struct x86_regs *out)
{
	*out = (struct x86_regs){
		.gp = {regs->rax, regs->rcx, regs->rdx, regs->rbx, regs->rsp, regs->rbp, regs->rsi,
		       regs->rdi, regs->r8, regs->r9, regs->r10, regs->r11, regs->r12, regs->r13,
		       regs->r14, regs->r15},
		.rip = regs->rip,
		.rflags = regs->rflags,
		.cr0 = sregs->cr0,
		.cr3 = sregs->cr3,
		.cr4 = sregs->cr4,
		.efer = sregs->efer,
		.cs_base = sregs->cs.base,
		.ss_base = sregs->ss.base,
		.cs_long = sregs->cs.l,
		.cpl = sregs->ss.dpl,
	};
}

bool kvm_page_read(int memory, uint64_t run, struct x86_regs *regs)
{
	struct {
		__u64 valid, dirty;
		struct kvm_regs regs;
		struct kvm_sregs sregs;
	} page;

	_Static_assert(offsetof(struct kvm_run, s.regs) ==
				       sizeof(page.valid) + sizeof(page.dirty) +
					       offsetof(struct kvm_run, kvm_valid_regs) &&
			       offsetof(struct kvm_sync_regs, sregs) == sizeof(page.regs),
		       "all are read in one piece");
	if (host_memory_read(memory, valid_at(run), &page, sizeof(page)) != sizeof(page) ||
	    (page.valid & WANTED) != WANTED || !page.sregs.cr0)
		return false;
	take(&page.regs, &page.sregs, regs);
	return true;
}
