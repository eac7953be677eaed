/* SPDX-License-Identifier: BSD-3-Clause */
/* The local APIC, for a guest without Xen: its timer ends a halt, its messages start other CPUs. */
#include "guest.h"

#include "apic.h"
#include "bare.h"
#include "port.h"

/* The emulated timer counts nanoseconds. */
#define NS_PER_COUNT  16
#define COMMAND_INIT  0x4500
#define COMMAND_START 0x4600
#define PIC_1_MASK    0x21
#define PIC_2_MASK    0xa1
/* Start address of a new CPU, in real mode: a free page below 1 MiB. */
#define TRAMPOLINE	  0x8000ul
#define START_PATIENCE_NS 200000000

/* In assembly. */
extern const uint8_t trampoline[], trampoline_end[];
extern void *started_stack_top;
extern uint64_t started_vcpu;
void timer_interrupt(void);

void apic_enable_timer(uint32_t mode)
{
	out8(PIC_1_MASK, 0xff);
	out8(PIC_2_MASK, 0xff);
	*apic_register(APIC_SPURIOUS) = APIC_ENABLE | SPURIOUS_VECTOR;
	*apic_register(APIC_TIMER_DIVIDE) = DIVIDE_BY_16;
	*apic_register(APIC_TIMER) = mode | TIMER_VECTOR;
}

static void enable_timer(void)
{
	static struct gate gates[TIMER_VECTOR + 1];

	gates[TIMER_VECTOR] = gate_to(timer_interrupt, 0);
	load_gates(gates);
	apic_enable_timer(0);
}

VISIBLE void bare_sleep_until(uint64_t deadline_ns)
{
	uint64_t now = bare_clock_ns(), counts;

	if (now >= deadline_ns)
		return;
	counts = (deadline_ns - now) / NS_PER_COUNT + 1;
	enable_timer();
	*apic_register(APIC_TIMER_COUNT) = counts > UINT32_MAX ? UINT32_MAX : (uint32_t)counts;
	__asm__ volatile("sti; hlt; cli" : : : "memory");
}

static void send(unsigned int cpu, uint32_t command)
{
	*apic_register(APIC_DESTINATION) = cpu << 24;
	*apic_register(APIC_COMMAND) = command;
}

bool bare_start_vcpu(unsigned int vcpu, void *stack_top)
{
	uint64_t deadline = bare_clock_ns() + START_PATIENCE_NS;
	uint8_t *target = (uint8_t *)TRAMPOLINE;

	for (const uint8_t *from = trampoline; from < trampoline_end; from++)
		*target++ = *from;
	started_vcpu = vcpu;
	__atomic_store_n(&started_stack_top, stack_top, __ATOMIC_RELEASE);
	send(vcpu, COMMAND_INIT);
	send(vcpu, COMMAND_START | TRAMPOLINE >> 12);
	/* The CPU takes its stack and leaves NULL. */
	while (__atomic_load_n(&started_stack_top, __ATOMIC_ACQUIRE))
		if (bare_clock_ns() > deadline)
			return false;
	return true;
}
