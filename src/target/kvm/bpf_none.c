/* SPDX-License-Identifier: BSD-3-Clause */

/* Built in place of the reader by BPF where it is left out: vCPUs are stopped. */

#include "target/kvm/kvm.h"

const char bpf_feature[] = "without BPF";

const char *bpf_missing(void)
{
	return "BPF would not stop it, but this uniprof was built without";
}

struct error *bpf_try(void)
{
	return error_new(ERR_DENIED, "this uniprof was built without BPF");
}

struct error *bpf_reader_new(const struct kvm_vcpus *vcpus, int memory, bool host,
			     struct bpf_reader **out)
{
	return error_new(ERR_DENIED, "this uniprof was built without BPF");
}

void bpf_reader_free(struct bpf_reader *bpf)
{
}

void bpf_reader_map(struct bpf_reader *bpf, const struct ram_map *map)
{
}

bool bpf_reader_slots(struct bpf_reader *bpf, struct ram_map *map)
{
	return false;
}

void bpf_reader_note_ptrace(struct bpf_reader *bpf, uint32_t i, const struct x86_regs *all)
{
}

struct error *kvm_crosscheck(struct kvm_target *kvm)
{
	return NULL;
}

struct error *kvm_crosscheck_more(struct kvm_target *kvm)
{
	return NULL;
}

bool kvm_read_nostop(void *kvm, uint32_t i, struct vcpu_sample *vcpu, struct thread_time *time,
		     bool *on_cpu)
{
	return false;
}

bool kvm_read_host(void *kvm, uint32_t i, struct vcpu_sample *vcpu, struct thread_time *time,
		   bool *on_cpu)
{
	return false;
}

void bpf_reader_host_sleeps(struct bpf_reader *bpf, uint64_t until_ns)
{
}

void bpf_reader_exits(const struct bpf_reader *bpf,
		      void (*each)(void *ctx, const struct vcpu_exits *exits), void *ctx)
{
}
