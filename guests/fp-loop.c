/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Spins with rbp in a chain of frame records that never ends: by turns in a record that points to
 * itself and in two that point to each other. The CFI still tells the truth. Ends after `seconds`
 * (option, 60). Expected shares: spin_in_self_loop 0.50, spin_in_two_cycle 0.50.
 */
#include "guest.h"

#define SPINS 300000

enum { MAIN, SELF_LOOP, TWO_CYCLE, ROWS };

struct truth truth[ROWS] = {{"main", 1, 0},
			    {"spin_in_self_loop", 0, 0},
			    {"spin_in_two_cycle", 0, 0}};

/* In assembly: each calls spin(rounds). */
void spin_in_self_loop(uint64_t rounds);
void spin_in_two_cycle(uint64_t rounds);

int main(void)
{
	uint64_t end = clock_ns() + option_number("seconds", 60) * 1000000000ull;
	uint64_t from = cpu_time();

	print("fp-loop\n");
	while (clock_ns() < end) {
		TIMED(&truth[SELF_LOOP], spin_in_self_loop(SPINS));
		TIMED(&truth[TWO_CYCLE], spin_in_two_cycle(SPINS));
	}
	truth[MAIN].ticks = cpu_time() - from;
	print_truth(truth, ROWS);
	return 0;
}
