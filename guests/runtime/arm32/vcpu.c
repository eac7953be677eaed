/* SPDX-License-Identifier: BSD-3-Clause */
/* Starts further vCPUs by PSCI (Arm DEN0022), which Xen emulates. */
#include "guest.h"
#include "platform.h"

#define PSCI_CPU_ON	 0x84000003ul
#define AFFINITY_0	 16 /* vCPUs of one cluster, as Xen numbers them */
#define AFFINITY_1_SHIFT 8

/* As entry.S reads it. */
struct vcpu_start {
	void *stack_top;
	uint32_t vcpu;
};

void vcpu_boot(void);

bool platform_start_vcpu(unsigned int vcpu, void *stack_top)
{
	static struct vcpu_start starts[MAX_VCPUS];
	register unsigned long function __asm__("r0") = PSCI_CPU_ON;
	register unsigned long target __asm__("r1") =
		vcpu % AFFINITY_0 | vcpu / AFFINITY_0 << AFFINITY_1_SHIFT;
	register void (*entry)(void) __asm__("r2") = vcpu_boot;
	register struct vcpu_start *context __asm__("r3") = &starts[vcpu];

	starts[vcpu] = (struct vcpu_start){stack_top, vcpu};
	__asm__ volatile("hvc #0"
			 : "+r"(function), "+r"(target), "+r"(entry), "+r"(context)
			 :
			 : "memory");
	return !function;
}
