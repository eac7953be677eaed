/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Two phases by turns, interrupted every 10 ms by a timer whose handler does visible work, also by
 * turns: whatever stands under a handler's frames was interrupted, and goes on afterwards. main
 * calls phase_1 and phase_2, these burn_1 and burn_2, these spin; timer_entry calls timer_event,
 * this tick, this tick_1 and tick_2, these tick_spin. Nothing is in both chains. Ends after
 * `seconds` (option, 60). Expected shares: phase_1 and phase_2 0.50 each, with the handlers on top.
 *
 * The handler runs on the interrupted stack; with the word `stack=own` on a stack that it switches
 * to itself, and with `stack=ist` (PVH) on one that the processor switches to.
 */
#include "guest.h"

#define PERIOD_NS  10000000
#define SPINS	   100000
#define TICK_SPINS 600000
#define STACK_SIZE 16384

enum { MAIN, PHASE_1, PHASE_2, TICK_1, TICK_2, ROWS };

struct truth truth[ROWS] = {
	{"main", 1, 0}, {"phase_1", 0, 0}, {"phase_2", 0, 0}, {"tick_1", 0, 0}, {"tick_2", 0, 0}};

static uint8_t stack[STACK_SIZE] __attribute__((aligned(16)));
static bool switch_stacks;

#define PHASE(number)                     \
	VISIBLE void burn_##number(void)  \
	{                                 \
		spin(SPINS);              \
	}                                 \
	VISIBLE void phase_##number(void) \
	{                                 \
		burn_##number();          \
	}

PHASE(1)
PHASE(2)

VISIBLE void tick_spin(void)
{
	for (unsigned int i = 0; i < TICK_SPINS; i++)
		__asm__ volatile("");
}

VISIBLE void tick_1(void)
{
	tick_spin();
	truth[TICK_1].calls++;
}

VISIBLE void tick_2(void)
{
	tick_spin();
	truth[TICK_2].calls++;
}

VISIBLE void tick(void)
{
	void (*work)(void) = truth[TICK_1].calls > truth[TICK_2].calls ? tick_2 : tick_1;
	struct truth *row = work == tick_2 ? &truth[TICK_2] : &truth[TICK_1];
	uint64_t from = cpu_time();

	if (switch_stacks)
		call_on_stack(work, stack + STACK_SIZE);
	else
		work();
	row->ticks += cpu_time() - from;
}

int main(void)
{
	uint64_t end = clock_ns() + option_number("seconds", 60) * 1000000000ull;
	uint64_t from = cpu_time();

	switch_stacks = option_given("stack=own");
	print("interrupt: every %lu ns\n", (unsigned long)PERIOD_NS);
	start_timer(PERIOD_NS, tick, option_given("stack=ist") ? stack + STACK_SIZE : NULL);
	while (clock_ns() < end) {
		TIMED(&truth[PHASE_1], phase_1());
		TIMED(&truth[PHASE_2], phase_2());
	}
	stop_timer();
	truth[MAIN].ticks = cpu_time() - from;
	print_truth(truth, ROWS);
	return 0;
}
