/* SPDX-License-Identifier: BSD-3-Clause */

/* What is plugged into a guest while it is sampled: memory, of which KVM knows where it is, and vCPUs. */

#include "base/clock.h"
#include "target/kvm/kvm.h"

#define AGAIN_NS 500000000u

static void look_at_memory(struct kvm *kvm)
{
	struct ram_map *map = guest_ram_map(kvm->ram), now;
	uint64_t before = ram_map_size(map), after;

	if (!map->n || !unpaused_slots(kvm->unpaused, &now) || ram_map_is_same(map, &now))
		return;
	after = ram_map_size(&now);
	/* What mappings have proven to be its memory need not have been all of it. */
	if (kvm->by_slots && after != before)
		kvm->base.news =
			after > before ? "the guest has more memory than before, which is seen, too"
				       : "the guest has less memory than before";
	kvm->by_slots = true;
	*map = now;
	unpaused_map(kvm->unpaused, map);
	guest_ram_forget(kvm->ram);
}

/* Where nothing but mappings tell where memory is, nothing proves where what is added would be. */
static void look_for_unknown_memory(struct kvm *kvm)
{
	struct layout *now = NULL;
	bool grown;

	if (kvm->told_of_unknown || !guest_ram_missed(kvm->ram))
		return;
	error_free(layout_new(kvm->maps, &now));
	grown = now && layout_size(now) > layout_size(kvm->layout);
	layout_free(now);
	if (!grown)
		return;
	kvm->told_of_unknown = true;
	kvm->base.news = "the guest uses memory that seems to have been plugged in: stacks there "
			 "can be seen by BPF only";
}

static void look_at_vcpus(struct kvm *kvm)
{
	const uint32_t vcpus = kvm_vcpus_mapped(kvm->maps);

	/* One thing at a time: this will be found again. */
	if (vcpus <= kvm->vcpus_told || kvm->base.news)
		return;
	kvm->vcpus_told = vcpus;
	kvm->base.news = "a vCPU was plugged in, which is not sampled: record the guest anew";
}

void kvm_look_for_changes(struct kvm *kvm)
{
	const uint64_t now_ns = clock_now_ns();

	if (now_ns < kvm->changes_ns)
		return;
	kvm->changes_ns = now_ns + AGAIN_NS;
	if (kvm->unpaused)
		look_at_memory(kvm);
	else
		look_for_unknown_memory(kvm);
	look_at_vcpus(kvm);
}
