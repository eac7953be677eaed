/* SPDX-License-Identifier: BSD-3-Clause */
#include "guest.h"
#include "platform.h"

#include "../pvh/bare.h"

void bare_sleep_until(uint64_t deadline_ns)
{
	while (bare_clock_ns() < deadline_ns)
		__asm__ volatile("pause");
}

/* No program needs more than the boot vCPU on 32 bits. */
bool platform_start_vcpu(unsigned int vcpu, void *stack_top)
{
	(void)vcpu;
	(void)stack_top;
	return false;
}
