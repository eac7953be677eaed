/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * As `interrupt`, but the handler is assembly without CFI that jumps and falls through from one label
 * into the next (handlers-entry.S), and runs on a stack of its own. main calls phase_1 and phase_2 by
 * turns, these spin; event_run calls timer_event, this tick, this tick_spin. Ends after `seconds`
 * (option, 60). Expected shares: phase_1 and phase_2 0.50 each, with the handler on top.
 */
#include "guest.h"
#include "platform.h"

#define PERIOD_NS  10000000
#define SPINS	   100000
#define TICK_SPINS 600000

enum { MAIN, PHASE_1, PHASE_2, TICK, ROWS };

struct truth truth[ROWS] = {{"main", 1, 0}, {"phase_1", 0, 0}, {"phase_2", 0, 0}, {"tick", 0, 0}};

/* In assembly. */
void event_entry(void);

VISIBLE void tick_spin(void)
{
	for (unsigned int i = 0; i < TICK_SPINS; i++)
		__asm__ volatile("");
}

VISIBLE void tick(void)
{
	TIMED(&truth[TICK], tick_spin());
}

VISIBLE void phase_1(void)
{
	spin(SPINS);
}

VISIBLE void phase_2(void)
{
	spin(SPINS);
}

int main(void)
{
	uint64_t end = clock_ns() + option_number("seconds", 60) * 1000000000ull;
	uint64_t from = cpu_time();

	print("handlers: every %lu ns\n", (unsigned long)PERIOD_NS);
	timer_handler = event_entry;
	start_timer(PERIOD_NS, tick, NULL);
	while (clock_ns() < end) {
		TIMED(&truth[PHASE_1], phase_1());
		TIMED(&truth[PHASE_2], phase_2());
	}
	stop_timer();
	truth[MAIN].ticks = cpu_time() - from;
	print_truth(truth, ROWS);
	return 0;
}
