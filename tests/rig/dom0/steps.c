/* SPDX-License-Identifier: BSD-3-Clause */

/*
 * steps DOMID POINTS SEED: profilers die between two instructions of their
 * sampling loop, at POINTS places in each stretch between two system calls:
 * right before the call that ends it, and after one of its first instructions.
 * A single place is either. See victim.h for what has to hold afterwards.
 */

#include "stepper.h"
#include "victim.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>

#define RATE "1000"

/* Time after which a profiler has mapped what it needs, by some samples. */
#define MAPPED_US 20000

/*
 * Instructions that matter of each stretch: from a hypercall to the store that
 * tells the guard of its outcome. In the middle of a stretch the guard's phase
 * stays the same.
 */
#define FIRST 128

static struct victim start(uint32_t domid)
{
	struct victim victim = victim_start(domid, RATE);

	victim_wait_for_guard(&victim);
	nap_us(MAPPED_US);
	stepper_to_loop(victim.pid);
	return victim;
}

/* False if a turn has no such stretch. */
static bool die_in(uint32_t domid, unsigned stretch, bool at_end, struct watch *watch,
		   struct toll *toll)
{
	const unsigned steps = (unsigned)random() % FIRST;
	struct victim victim = start(domid);
	bool there = stepper_to_stretch(victim.pid, stretch);
	char what[64];

	if (there && at_end)
		stepper_to_call(victim.pid);
	else if (there)
		stepper_step(victim.pid, steps);
	if (at_end)
		snprintf(what, sizeof(what), "stretch %u, its end", stretch);
	else
		snprintf(what, sizeof(what), "stretch %u, instruction %u", stretch, steps);
	victim_bury(&victim, SIGKILL, watch, toll, what);
	return there;
}

int main(int argc, char **argv)
{
	struct toll toll = {0};
	struct watch *watch;
	unsigned points;
	uint32_t domid;

	if (argc != 4)
		give_up("usage: steps DOMID POINTS SEED");
	domid = (uint32_t)strtoul(argv[1], NULL, 10);
	points = (unsigned)strtoul(argv[2], NULL, 10);
	srandom((unsigned)strtoul(argv[3], NULL, 10));
	victim_prepare();
	watch = watch_open(domid);
	for (unsigned stretch = 0; stretch < MOST_STRETCHES; stretch++) {
		const unsigned end = (unsigned)random() % (points > 1 ? points : 2);

		for (unsigned point = 0; point < points; point++)
			if (!die_in(domid, stretch, point == end, watch, &toll))
				return toll_print(&toll) ? 0 : 1;
	}
	return toll_print(&toll) ? 0 : 1;
}
