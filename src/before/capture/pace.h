/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef UNIPROF_SAMPLE_PACE_H
#define UNIPROF_SAMPLE_PACE_H

/*
 * When to sample. Time is cut into periods that start at fixed, absolute
 * times; each gets one sample, at a random moment of the period (jitter), or
 * at its start without jitter. A sampler that runs in step with something
 * periodic in the guest would always see the same part of it; a random moment
 * in each period cannot.
 *
 * Periods that passed without a sample are missed deadlines, and the next
 * sample weighs as much more. There is no busy waiting.
 */

#include <stdbool.h>
#include <stdint.h>

struct pace {
	uint64_t start_ns; /* CLOCK_MONOTONIC */
	uint64_t period_ns;
	uint64_t next; /* number of the period to sample next */
	uint64_t deadline_ns;
	uint64_t random;
	bool jitter;
};

/* `period_ns` at least 1. `seed` makes the jitter differ from run to run. */
void pace_start(struct pace *pace, uint64_t now_ns, uint64_t period_ns, bool jitter, uint64_t seed);

/* Puts all that is to come off by so much. */
void pace_delay(struct pace *pace, uint64_t ns);

/* When the next sample is due. */
uint64_t pace_deadline(const struct pace *pace);

/*
 * Called when a sample is taken at `now_ns`, at or after the deadline: moves on
 * to the next period, leaving out those that have passed entirely, and returns
 * how many periods the sample stands for (1, or more when some were missed).
 */
uint64_t pace_take(struct pace *pace, uint64_t now_ns);

/* Leaves out the periods before `now_ns`, in which there was nothing to sample. */
void pace_skip(struct pace *pace, uint64_t now_ns);

#endif
