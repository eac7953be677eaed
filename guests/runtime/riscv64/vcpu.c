/* SPDX-License-Identifier: BSD-3-Clause */
/* Further vCPUs are started by the firmware. */
#include "guest.h"
#include "platform.h"

#include "sbi.h"

/* As entry.S reads it. */
struct vcpu_start {
	void *stack_top;
	uint64_t vcpu;
};

void vcpu_boot(void);

bool platform_start_vcpu(unsigned int vcpu, void *stack_top)
{
	static struct vcpu_start starts[MAX_VCPUS];

	starts[vcpu] = (struct vcpu_start){stack_top, vcpu};
	return !sbi_call(SBI_HART_STATE, vcpu, (unsigned long)vcpu_boot,
			 (unsigned long)&starts[vcpu]);
}
