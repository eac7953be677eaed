/* SPDX-License-Identifier: BSD-3-Clause */

/* Registers through KVM's run page exist on x86 alone (KVM_CAP_SYNC_REGS of other architectures is another). */

#include "target/kvm/vcpus.h"
#include "target/target.h"

uint32_t kvm_vcpus_count(pid_t pid)
{
	return 0;
}

static struct error *no_open(const char *name, struct target **out)
{
	return error_new(ERR_DENIED, "guests of KVM can be profiled on x86-64 hosts only");
}

const struct target_ops target_kvm = {
	.scheme = "kvm",
	.open = no_open,
};
