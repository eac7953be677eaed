/* SPDX-License-Identifier: BSD-3-Clause */
#include "guest.h"
#include "platform.h"

void timer_entry(void);

void (*timer_handler)(void) = timer_entry;
static void (*on_tick)(void);

VISIBLE void timer_event(void)
{
	if (platform_take_tick())
		on_tick();
}

void start_timer(uint64_t period_ns, void (*tick)(void), void *stack_top)
{
	on_tick = tick;
	platform_start_timer(period_ns, stack_top);
}

void stop_timer(void)
{
	platform_stop_timer();
}
