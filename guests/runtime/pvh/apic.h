/* SPDX-License-Identifier: BSD-3-Clause */
/* The local APIC's registers, and the descriptors of interrupts. */
#pragma once

#include <stdint.h>

#define APIC_EOI	  0x0b0
#define APIC_SPURIOUS	  0x0f0
#define APIC_ENABLE	  0x100
#define APIC_COMMAND	  0x300
#define APIC_DESTINATION  0x310
#define APIC_TIMER	  0x320
#define APIC_PERIODIC	  0x20000
#define APIC_MASKED	  0x10000
#define APIC_TIMER_COUNT  0x380
#define APIC_TIMER_DIVIDE 0x3e0
#define DIVIDE_BY_16	  0x3
#define TIMER_VECTOR	  0x20
#define SPURIOUS_VECTOR	  0x2f
#define CODE_64		  0x08
#define INTERRUPT_GATE	  0x8e00

struct gate {
	uint16_t offset_low, selector, type, offset_middle;
	uint32_t offset_high, reserved;
};

struct table_pointer {
	uint16_t limit;
	uint64_t base;
} __attribute__((packed));

static inline volatile uint32_t *apic_register(unsigned int offset)
{
	return (volatile uint32_t *)(0xfee00000ul + offset);
}

/* stack: 0 for the interrupted one, or the number of a stack in the task state segment. */
static inline struct gate gate_to(void (*handler)(void), unsigned int stack)
{
	unsigned long address = (unsigned long)handler;

	return (struct gate){(uint16_t)address,
			     CODE_64,
			     (uint16_t)(INTERRUPT_GATE | stack),
			     (uint16_t)(address >> 16),
			     (uint32_t)(address >> 32),
			     0};
}

/* Vectors up to TIMER_VECTOR, the only one in use. */
static inline void load_gates(const struct gate *gates)
{
	struct table_pointer pointer = {(TIMER_VECTOR + 1) * sizeof(*gates) - 1,
					(unsigned long)gates};

	__asm__ volatile("lidt %0" : : "m"(pointer), "m"(gates[TIMER_VECTOR]));
}

/* Lets the timer's interrupts, and no others, reach the processor. */
void apic_enable_timer(uint32_t mode);
