/* SPDX-License-Identifier: BSD-3-Clause */
/* The local APIC's timer, which Xen and QEMU both have, calls timer_handler. */
#include "guest.h"
#include "platform.h"

#include "apic.h"

/*
 * Nanoseconds per count after the division by 16: QEMU's timer counts ns, Xen's
 * (vlapic.h) 10 ns.
 */
#define NS_PER_COUNT	 16
#define NS_PER_COUNT_XEN 160
/* Intel SDM 3A, 8.7: a task state segment's descriptor, and where it keeps the first of its stacks. */
#define TASK_STATE	 0x20
#define AVAILABLE_TSS	 0x89
#define INTERRUPT_STACK	 1
#define TASK_STATE_WORDS 26
#define FIRST_STACK_WORD 9
#define DESCRIPTORS	 6
/* Those that entry.S made. */
#define FIRST_DESCRIPTORS 4

extern const uint64_t gdt[];

static uint32_t task_state[TASK_STATE_WORDS];
static uint64_t descriptors[DESCRIPTORS];

/* A segment with one stack: descriptors alone name it to the processor. */
static void load_task_state(const void *stack_top)
{
	struct table_pointer pointer = {sizeof(descriptors) - 1, (unsigned long)descriptors};
	uint64_t base = (unsigned long)task_state;

	for (unsigned int i = 0; i < FIRST_DESCRIPTORS; i++)
		descriptors[i] = gdt[i];
	task_state[FIRST_STACK_WORD] = (uint32_t)(unsigned long)stack_top;
	descriptors[TASK_STATE / 8] = (sizeof(task_state) - 1) | (base & 0xffffff) << 16 |
				      (uint64_t)AVAILABLE_TSS << 40 | (base >> 24 & 0xff) << 56;
	descriptors[TASK_STATE / 8 + 1] = base >> 32;
	__asm__ volatile("lgdt %0\n\tltr %w1"
			 :
			 : "m"(pointer), "r"(TASK_STATE), "m"(descriptors), "m"(task_state));
}

bool platform_take_tick(void)
{
	*apic_register(APIC_EOI) = 0;
	return true;
}

void platform_start_timer(uint64_t period_ns, void *stack_top)
{
	static struct gate gates[TIMER_VECTOR + 1];

	if (stack_top)
		load_task_state(stack_top);
	gates[TIMER_VECTOR] = gate_to(timer_handler, stack_top ? INTERRUPT_STACK : 0);
	load_gates(gates);
	apic_enable_timer(APIC_PERIODIC);
	*apic_register(APIC_TIMER_COUNT) =
		(uint32_t)(period_ns / (platform.shared ? NS_PER_COUNT_XEN : NS_PER_COUNT));
	__asm__ volatile("sti" : : : "memory");
}

void platform_stop_timer(void)
{
	__asm__ volatile("cli" : : : "memory");
	*apic_register(APIC_TIMER) = APIC_MASKED | TIMER_VECTOR;
}
