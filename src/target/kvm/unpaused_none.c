/* SPDX-License-Identifier: BSD-3-Clause */
#include "target/kvm/unpaused.h"

const char unpaused_feature[] = "without BPF";

const char *unpaused_missing(void)
{
	return "BPF would not stop it, but this uniprof was built without";
}

struct error *unpaused_new(const struct kvm_vcpus *vcpus, int memory, struct unpaused **out)
{
	return error_new(ERR_DENIED, "this uniprof was built without BPF");
}

void unpaused_free(struct unpaused *unpaused)
{
}

void unpaused_map(struct unpaused *unpaused, const struct ram_map *map)
{
}

bool unpaused_read(struct unpaused *unpaused, uint32_t i, struct vcpu_sample *vcpu)
{
	return false;
}

bool unpaused_waits(const struct unpaused *unpaused, uint32_t i, const struct thread_time *time,
		    struct regs *regs)
{
	return false;
}

void unpaused_prepare(struct unpaused *unpaused, uint32_t i, uint32_t want)
{
}

enum unpaused_proof unpaused_compare(struct unpaused *unpaused, uint32_t i,
				     const struct x86_regs *all, const struct vcpu_sample *vcpu)
{
	return PROOF_NONE;
}

bool unpaused_slots(struct unpaused *unpaused, struct ram_map *map)
{
	return false;
}

bool unpaused_is_proven(const struct unpaused *unpaused, uint32_t i)
{
	return false;
}

void unpaused_told(struct unpaused *unpaused, uint32_t i, const struct x86_regs *all)
{
}

bool unpaused_is_blind(const struct unpaused *unpaused, uint32_t i)
{
	return true;
}
