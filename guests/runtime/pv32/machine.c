/* SPDX-License-Identifier: BSD-3-Clause */
#include "../pv/machine.h"

#include "guest.h"
#include "hypercall.h"
#include "platform.h"

/* An entry takes two registers. */
void map_page(void *address, uint64_t entry)
{
	HYPERCALL4(__HYPERVISOR_update_va_mapping, address, entry, entry >> 32, UVMF_INVLPG);
}

/* No program needs more than the boot vCPU on 32 bits. */
bool platform_start_vcpu(unsigned int vcpu, void *stack_top)
{
	(void)vcpu;
	(void)stack_top;
	return false;
}
