/* SPDX-License-Identifier: BSD-3-Clause */
/* Blocks for ever, but for a tick a second: its one vCPU has next to no CPU time. */
#include "guest.h"

#define SECOND_NS 1000000000

struct truth truth[] = {{"tick", 0, 0}};

VISIBLE void tick(void)
{
	print("tick %llu\n", (unsigned long long)truth[0].calls);
}

VISIBLE void wait_for(uint64_t deadline_ns)
{
	while (clock_ns() < deadline_ns)
		sleep_until(deadline_ns);
}

int main(void)
{
	uint64_t deadline = clock_ns();

	print("idle\n");
	for (;;) {
		deadline += SECOND_NS;
		wait_for(deadline);
		TIMED(&truth[0], tick());
	}
}
