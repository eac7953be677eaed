/* SPDX-License-Identifier: BSD-3-Clause */
#pragma once

/* Profilers that are killed, and checks of the guest afterwards. */

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "watch.h"

/* Within which a guest runs again after a profiler's death, and the guard is gone. */
#define MUST_RUN_MS 100

struct victim {
	pid_t pid;
	const char *recording;
};

/* Results of killing profilers. Times are from the moment of death to the unpause (watch.h). */
struct toll {
	unsigned rounds, guarded, paused, late, failures, read, empty;
	uint64_t worst_ns, sum_ns;
};

/* Call once: makes orphans our children, and gives us precedence over dom0's other work. */
void victim_prepare(void);

/* Starts `uniprof record` of the domain. */
struct victim victim_start(uint32_t domid, const char *rate);

/* Waits until it has a guard, which is about when it samples; returns how long that took, us. */
uint64_t victim_wait_for_guard(const struct victim *victim);

/*
 * Returns while it holds the guest, or after many looks: nothing of it runs
 * between the look that finds the pause and the caller's next step.
 */
void victim_wait_for_a_pause(const struct victim *victim, struct watch *watch);

/* The guard of a living profiler; 0 if it has none. */
pid_t victim_guard(const struct victim *victim);

/*
 * Kills it (signal 0: it dies by itself), and sees to it that the guest runs,
 * that the guard goes and that the recording can be read. Failures are printed,
 * after `what`, and counted.
 */
void victim_bury(struct victim *victim, int signal, struct watch *watch, struct toll *toll,
		 const char *what);

/* One line, for the test that runs this; true if nothing failed. */
bool toll_print(const struct toll *toll);
