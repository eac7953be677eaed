/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef UNIPROF_SAMPLE_PRIORITY_H
#define UNIPROF_SAMPLE_PRIORITY_H

/*
 * While a guest is paused, nothing else on this host should get our CPU, and
 * none of our pages should have to be fetched: the guest would wait for it.
 * Takes the lowest real-time priority and locks what is in memory. Both are
 * as well as can be: without the rights for it, sampling works, if with
 * longer pauses at times.
 */

#include <sched.h>
#include <stdbool.h>

struct priority {
	int policy;
	struct sched_param param;
	bool raised, locked;
};

/* Child processes do not inherit it. */
void priority_raise(struct priority *before);
void priority_restore(const struct priority *before);

#endif
