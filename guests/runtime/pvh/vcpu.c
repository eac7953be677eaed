/* SPDX-License-Identifier: BSD-3-Clause */
#include "guest.h"
#include "platform.h"

#include <xen/hvm/hvm_vcpu.h>

#include "bare.h"
#include "xen.h"

extern uint64_t page_table_4[];

bool platform_start_vcpu(unsigned int vcpu, void *stack_top)
{
	struct vcpu_hvm_context context = {.mode = VCPU_HVM_MODE_64B};

	if (!platform.shared)
		return bare_start_vcpu(vcpu, stack_top);
	context.cpu_regs.x86_64.rip = (unsigned long)vcpu_entry;
	context.cpu_regs.x86_64.rsp = (unsigned long)stack_top;
	context.cpu_regs.x86_64.rdi = vcpu;
	context.cpu_regs.x86_64.rflags = 2;
	/* PG, WP, ET and PE; PAE; LMA and LME. */
	context.cpu_regs.x86_64.cr0 = 0x80010011;
	context.cpu_regs.x86_64.cr3 = (unsigned long)page_table_4;
	context.cpu_regs.x86_64.cr4 = 0x20;
	context.cpu_regs.x86_64.efer = 0x500;
	return xen_start_vcpu(vcpu, &context);
}
