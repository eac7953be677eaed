/* SPDX-License-Identifier: BSD-3-Clause */
/* The supervisor's timer, which the firmware sets, calls timer_handler. */
#include "guest.h"
#include "platform.h"

#include "sbi.h"

/* Bits of sie and sstatus (RISC-V Privileged Architecture, 4.1). */
#define TIMER_INTERRUPT 0x20ul
#define INTERRUPTS_ON	0x2ul

#define NEVER (~0ul)

static uint64_t period_ticks;

void timer_entry(void);
void unexpected_trap(void);

bool platform_take_tick(void)
{
	sbi_call(SBI_TIMER, ticks() + period_ticks, 0, 0);
	return true;
}

/* The handler has the interrupted stack. */
void platform_start_timer(uint64_t period_ns, void *stack_top)
{
	period_ticks = period_ns / (1000000000 / TICKS_PER_S);
	__asm__ volatile("csrw stvec, %0" : : "r"(timer_handler) : "memory");
	sbi_call(SBI_TIMER, ticks() + period_ticks, 0, 0);
	__asm__ volatile("csrs sie, %0\n\tcsrs sstatus, %1"
			 :
			 : "r"(TIMER_INTERRUPT), "r"(INTERRUPTS_ON)
			 : "memory");
}

void platform_stop_timer(void)
{
	__asm__ volatile("csrc sstatus, %0\n\tcsrw stvec, %1"
			 :
			 : "r"(INTERRUPTS_ON), "r"(unexpected_trap)
			 : "memory");
	sbi_call(SBI_TIMER, NEVER, 0, 0);
}
