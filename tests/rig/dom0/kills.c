/* SPDX-License-Identifier: BSD-3-Clause */

/*
 * kills DOMID ROUNDS SEED SIGNAL...: records the domain again and again, and
 * ends each profiler by one of the signals (KILL, SEGV, ...; GUARD: SIGKILL of
 * the guard, and then of the profiler): every other one at a random moment,
 * the others while they hold the guest stopped. See victim.h for what has to
 * hold afterwards.
 */

#include "victim.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define RATE "10000"

/* Time in which a profiler notices that its guard is gone, and starts another. */
#define NEW_GUARD_US 500000

static const struct way {
	const char *name;
	int signal;
	bool guard_first;
} ways[] = {
	{"KILL", SIGKILL, false}, {"SEGV", SIGSEGV, false}, {"ABRT", SIGABRT, false},
	{"BUS", SIGBUS, false},	  {"QUIT", SIGQUIT, false}, {"TERM", SIGTERM, false},
	{"INT", SIGINT, false},	  {"GUARD", SIGKILL, true},
};

static const struct way *find_way(const char *name)
{
	for (size_t i = 0; i < sizeof(ways) / sizeof(*ways); i++)
		if (!strcmp(ways[i].name, name))
			return &ways[i];
	give_up("no way to end a profiler is called %s", name);
}

/* Measures how long a profiler lives before it samples. */
static uint64_t calibrate(uint32_t domid, struct watch *watch)
{
	struct victim victim = victim_start(domid, RATE);
	uint64_t us = victim_wait_for_guard(&victim);
	struct toll toll = {0};

	nap_us(us);
	victim_bury(&victim, SIGKILL, watch, &toll, "calibration");
	return us;
}

/* One in eight dies while it starts, the others while they prepare or sample. */
static void wait_for_any_moment(const struct victim *victim, uint64_t start_us)
{
	if (random() % 8 == 0) {
		nap_us((uint64_t)random() % start_us);
		return;
	}
	victim_wait_for_guard(victim);
	nap_us((uint64_t)random() % (2 * start_us));
}

static void one_round(uint32_t domid, const struct way *way, uint64_t start_us, struct watch *watch,
		      struct toll *toll)
{
	struct victim victim = victim_start(domid, RATE);
	char what[64];

	snprintf(what, sizeof(what), "round %u, %s", toll->rounds, way->name);
	if (toll->rounds % 2)
		victim_wait_for_a_pause(&victim, watch);
	else
		wait_for_any_moment(&victim, start_us);
	if (way->guard_first) {
		pid_t guard = victim_guard(&victim);

		if (guard)
			kill(guard, SIGKILL);
		nap_us(NEW_GUARD_US);
	}
	victim_bury(&victim, way->signal, watch, toll, what);
}

int main(int argc, char **argv)
{
	struct toll toll = {0};
	struct watch *watch;
	unsigned rounds;
	uint64_t start_us;
	uint32_t domid;

	if (argc < 5)
		give_up("usage: kills DOMID ROUNDS SEED SIGNAL...");
	domid = (uint32_t)strtoul(argv[1], NULL, 10);
	rounds = (unsigned)strtoul(argv[2], NULL, 10);
	srandom((unsigned)strtoul(argv[3], NULL, 10));
	victim_prepare();
	watch = watch_open(domid);
	start_us = calibrate(domid, watch);
	while (toll.rounds < rounds)
		one_round(domid, find_way(argv[4 + toll.rounds % (unsigned)(argc - 4)]), start_us,
			  watch, &toll);
	return toll_print(&toll) ? 0 : 1;
}
