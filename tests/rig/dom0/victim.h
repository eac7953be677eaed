/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef UNIPROF_TESTS_RIG_VICTIM_H
#define UNIPROF_TESTS_RIG_VICTIM_H

/* Profilers that are to die, and what has to hold afterwards. */

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

/* What deaths led to. Times are from the moment of death to when the guest is let go (watch.h). */
struct toll {
	unsigned rounds, guarded, paused, late, failures, read, empty;
	uint64_t worst_ns, sum_ns;
};

/*
 * To be called once: processes that lose their parent become our children, and
 * what else dom0 is busy with does not delay what we see.
 */
void victim_prepare(void);

/* Starts `uniprof record` of the domain. */
struct victim victim_start(uint32_t domid, const char *rate);

/* Waits until it has a guard, which is about when it samples; returns how long that took, us. */
uint64_t victim_wait_for_guard(const struct victim *victim);

/* The guard of a profiler that lives; 0 if it has none. */
pid_t victim_guard(const struct victim *victim);

/*
 * Kills it (signal 0: it dies by itself), and sees to it that the guest runs,
 * that the guard goes and that the recording can be read. What is not so is
 * printed, after `what`, and counted.
 */
void victim_bury(struct victim *victim, int signal, struct watch *watch, struct toll *toll,
		 const char *what);

/* One line, for the test that runs this; true if nothing failed. */
bool toll_print(const struct toll *toll);

#endif
