/* SPDX-License-Identifier: BSD-3-Clause */
/* Works and sleeps by turns, 5 ms of sleep each, for ever: its one vCPU is halted most of the time. */
#include "guest.h"

#define ROUNDS 2000000
#define NAP_NS 5000000

struct truth truth[] = {{"work", 0, 0}};

VISIBLE void work(void)
{
	spin(ROUNDS);
}

VISIBLE void nap(void)
{
	const uint64_t deadline_ns = clock_ns() + NAP_NS;

	while (clock_ns() < deadline_ns)
		sleep_until(deadline_ns);
}

int main(void)
{
	print("naps\n");
	for (;;) {
		TIMED(&truth[0], work());
		nap();
	}
}
