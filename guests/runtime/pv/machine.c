/* SPDX-License-Identifier: BSD-3-Clause */
#include "machine.h"

#include "guest.h"
#include "hypercall.h"
#include "platform.h"
#include "xen.h"

void map_page(void *address, uint64_t entry)
{
	HYPERCALL3(__HYPERVISOR_update_va_mapping, address, entry, UVMF_INVLPG);
}

bool platform_start_vcpu(unsigned int vcpu, void *stack_top)
{
	static struct vcpu_guest_context contexts[MAX_VCPUS];
	struct vcpu_guest_context *context = &contexts[vcpu];

	context->flags = VGCF_in_kernel;
	context->user_regs.rip = (unsigned long)vcpu_entry;
	context->user_regs.cs = FLAT_KERNEL_CS;
	context->user_regs.ss = FLAT_KERNEL_SS;
	context->user_regs.rsp = (unsigned long)stack_top;
	context->user_regs.rdi = vcpu;
	context->kernel_ss = FLAT_KERNEL_SS;
	context->kernel_sp = (unsigned long)stack_top;
	context->ctrlreg[3] = xen_pfn_to_cr3(machine_frame_of(boot_page_tables()));
	return xen_start_vcpu(vcpu, context);
}
