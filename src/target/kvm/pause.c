/* SPDX-License-Identifier: BSD-3-Clause */

/*
 * Reads a vCPU whose thread is stopped. A stack lies in the frames in which it lay before, as a rule: these
 * are copied in the pause, and the page tables, which say whether it did, once the guest runs on. Where it
 * did not, the vCPU is stopped again, and all is read in that pause.
 */

#include "target/kvm/kvm.h"

#include <stdlib.h>
#include <string.h>

/* Pages of one stack. */
#define PAGES_MAX 8u

/* Pages that are remembered of a vCPU: a power of two. */
#define PAGES_SEEN 64u

/* A page of the guest, where it was found last; a hint that is proved after the pause. */
struct page_seen {
	uint64_t root; /* of the page tables */
	uint64_t va;   /* 0: nothing was seen */
	uint64_t gfn;
	bool there; /* false: it is not mapped */
};

struct kvm_pages_seen {
	struct page_seen at[PAGES_SEEN];
};

static struct page_seen *seen_of(struct kvm_pages_seen *seen, uint64_t root, uint64_t va)
{
	const uint64_t key = (root ^ va) >> FRAME_SHIFT;

	return &seen->at[(key * 0x9e3779b97f4a7c15ull >> 32) & (PAGES_SEEN - 1)];
}

/* Pages that window_copy() reads: the first, and how many. */
static uint32_t pages_of(const struct vcpu_sample *vcpu, uint64_t *first)
{
	const uint64_t below = red_zone(&vcpu->regs), sp = vcpu->regs.sp;
	const uint64_t begin = sp < below ? 0 : sp - below, end = sp + vcpu->request.want;

	*first = begin & ~(uint64_t)(FRAME_SIZE - 1);
	return end > begin ? (uint32_t)((end - 1 - *first) >> FRAME_SHIFT) + 1 : 0;
}

/* Copies the frames in which the stack lay before; false: that is not known of all its pages. */
static bool copy_frames(struct kvm_target *kvm, uint32_t i, const struct vcpu_sample *vcpu)
{
	const uint64_t root = vcpu->regs.mmu.root;
	uint64_t va;
	const uint32_t n = pages_of(vcpu, &va);

	if (!n || n > PAGES_MAX || vcpu->request.leads_on)
		return false;
	for (uint32_t k = 0; k < n; k++, va += FRAME_SIZE) {
		const struct page_seen *page = seen_of(&kvm->seen[i], root, va);

		if (!va || page->va != va || page->root != root ||
		    (page->there && !guest_ram_frame(kvm->ram, page->gfn)))
			return false;
	}
	return true;
}

/* Notes where the pages are by the page tables; false: one of them was not copied in the pause. */
static bool note_pages(struct kvm_target *kvm, uint32_t i, const struct vcpu_sample *vcpu)
{
	const struct paged_memory *memory = &kvm->base.memory;
	uint64_t va;
	const uint32_t n = pages_of(vcpu, &va);

	for (uint32_t k = 0; k < n && k < PAGES_MAX; k++, va += FRAME_SIZE) {
		struct xlate found = {0};
		const bool there = kvm_arch->translate(&vcpu->regs.mmu, va, &memory->frames,
						       &found) == XLATE_OK;
		const uint64_t gfn = found.addr >> FRAME_SHIFT;

		if (there && guest_ram_is_late(kvm->ram, gfn))
			return false;
		*seen_of(&kvm->seen[i], vcpu->regs.mmu.root, va) =
			(struct page_seen){vcpu->regs.mmu.root, va, gfn, there};
	}
	return true;
}

bool kvm_read_stopped(struct kvm_target *kvm, uint32_t i, struct x86_regs *all,
		      struct vcpu_sample *vcpu)
{
	if (!kvm_registers(kvm, i, all, &vcpu->regs))
		return false;
	guest_ram_forget(kvm->ram);
	paged_memory_copy_stacks(&kvm->base.memory, kvm_arch, vcpu);
	return true;
}

/* The number of frames bounds the length of a pause: there is no clock in a page walk. */
bool kvm_read_in_pause(void *ctx, uint32_t i, struct vcpu_sample *vcpu, uint64_t until_ns)
{
	struct kvm_target *kvm = ctx;
	struct x86_regs all;

	if (!kvm_registers(kvm, i, &all, &vcpu->regs))
		return false;
	guest_ram_forget(kvm->ram);
	kvm->walk_later = copy_frames(kvm, i, vcpu);
	if (!kvm->walk_later)
		paged_memory_copy_stacks(&kvm->base.memory, kvm_arch, vcpu);
	if (kvm->bpf)
		bpf_reader_note_ptrace(kvm->bpf, i, &all);
	return true;
}

bool kvm_prove(void *ctx, uint32_t i, struct vcpu_sample *vcpu)
{
	struct kvm_target *kvm = ctx;

	if (kvm->walk_later) {
		guest_ram_end_pause(kvm->ram);
		paged_memory_copy_stacks(&kvm->base.memory, kvm_arch, vcpu);
	}
	if (note_pages(kvm, i, vcpu))
		return true;
	memset(&kvm->seen[i], 0, sizeof(kvm->seen[i]));
	return false;
}

struct error *kvm_pages_seen_new(uint32_t vcpus, struct kvm_pages_seen **out)
{
	*out = calloc(vcpus, sizeof(**out));
	return *out ? NULL : error_no_memory();
}
