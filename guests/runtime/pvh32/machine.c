/* SPDX-License-Identifier: BSD-3-Clause */
#include "guest.h"
#include "platform.h"

/* No program needs more than the boot vCPU on 32 bits. */
bool platform_start_vcpu(unsigned int vcpu, void *stack_top)
{
	(void)vcpu;
	(void)stack_top;
	return false;
}
