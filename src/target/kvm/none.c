/* SPDX-License-Identifier: BSD-3-Clause */

/* Registers through KVM's run page exist on x86 alone (KVM_CAP_SYNC_REGS of other architectures is another). */

#include "target/kvm/vcpus.h"
#include "target/target.h"

uint32_t kvm_vcpus_count(pid_t pid)
{
	return 0;
}

struct error *kvm_vcpus_find(pid_t pid, struct kvm_vcpus *out)
{
	return error_new(ERR_GUEST, "guests of KVM share registers with it on x86-64 hosts only");
}

void kvm_vcpus_free(struct kvm_vcpus *vcpus)
{
}

struct error *kvm_pages_start(pid_t pid, const struct kvm_vcpus *vcpus, struct kvm_pages *pages)
{
	return NULL;
}

bool kvm_page_read(int memory, uint64_t run, struct x86_regs *regs)
{
	return false;
}

static struct error *no_open(const char *name, const char *via, struct target **out)
{
	return error_new(ERR_DENIED, "guests of KVM can be profiled on x86-64 hosts only");
}

const struct target_ops target_kvm = {
	.scheme = "kvm",
	.open = no_open,
};
