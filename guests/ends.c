/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Works in known_work for `seconds` (option, 5) and ends by itself: powers off, or crashes with the
 * option `crash`. Expected share of known_work: 1.00.
 */
#include "guest.h"

#define SPINS 1000000

enum { MAIN, KNOWN_WORK, ROWS };

struct truth truth[ROWS] = {{"main", 1, 0}, {"known_work", 0, 0}};

VISIBLE void known_work(void)
{
	spin(SPINS);
}

int main(void)
{
	bool crash = option_given("crash");
	uint64_t end = clock_ns() + option_number("seconds", 5) * 1000000000ull;
	uint64_t from = cpu_time();

	print("ends: will %s\n", crash ? "crash" : "power off");
	while (clock_ns() < end)
		TIMED(&truth[KNOWN_WORK], known_work());
	truth[MAIN].ticks = cpu_time() - from;
	print_truth(truth, ROWS);
	shut_down(crash ? ENDING_CRASH : ENDING_POWEROFF);
}
