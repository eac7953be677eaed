/* SPDX-License-Identifier: BSD-3-Clause */

/* KVM leaves registers for its user on x86 alone. */

#include <stddef.h>

#include "target/qemu/shared.h"

struct shared *shared_new(pid_t pid, int memory, uint32_t vcpus)
{
	return NULL;
}

void shared_free(struct shared *shared)
{
}

bool shared_is_believed(const struct shared *shared, uint32_t vcpu)
{
	return false;
}

void shared_compare(struct shared *shared, uint32_t vcpu, const struct regs *told)
{
}

bool shared_take(struct shared *shared, uint32_t vcpu, struct regs *out)
{
	return false;
}
