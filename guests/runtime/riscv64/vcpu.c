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

/* The hart that the firmware had begun with may still be on its way to a stop (entry.S). */
static bool stops(unsigned int vcpu)
{
	struct sbi_result status;

	do
		status = sbi_ask(SBI_HART_STATE, SBI_HART_STATUS, vcpu, 0, 0);
	while (!status.error && status.value != SBI_HART_STOPPED);
	return !status.error;
}

bool platform_start_vcpu(unsigned int vcpu, void *stack_top)
{
	static struct vcpu_start starts[MAX_VCPUS];

	starts[vcpu] = (struct vcpu_start){stack_top, vcpu};
	return stops(vcpu) && !sbi_call(SBI_HART_STATE, vcpu, (unsigned long)vcpu_boot,
					(unsigned long)&starts[vcpu]);
}
