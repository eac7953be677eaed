/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef UNIPROF_CAPTURE_PACE_H
#define UNIPROF_CAPTURE_PACE_H

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
#include <stddef.h>
#include <stdint.h>

struct pace {
	uint64_t start_ns; /* CLOCK_MONOTONIC */
	uint64_t period_ns;
	uint64_t next;	      /* number of the period to sample next */
	uint64_t deadline_ns; /* when the next sample is due */
	uint64_t random;
	bool jitter;
};

/* `period_ns` at least 1. `seed` makes the jitter differ from run to run. */
void pace_start(struct pace *pace, uint64_t now_ns, uint64_t period_ns, bool jitter, uint64_t seed);

/* Delays all future deadlines by `ns`. */
void pace_delay(struct pace *pace, uint64_t ns);

/*
 * Called when a sample is taken at `now_ns`, at or after the deadline: moves on
 * to the next period, leaving out those that have passed entirely, and returns
 * how many periods the sample stands for (1, or more when some were missed).
 */
uint64_t pace_take(struct pace *pace, uint64_t now_ns);

/* Skips the periods before `now_ns`, in which there was nothing to sample. */
void pace_skip(struct pace *pace, uint64_t now_ns);

/*
 * Throttle: leaves the guest alone after a sample, whatever the rate asks for.
 *
 * Over time, at least as long as samples take, so that at rates that cannot be
 * kept neither the guest nor this host stands still for us. Shorter for a moment:
 * two samples may be due shortly one after the other, and where dom0 and the
 * guest share a CPU, sleeping gives up the CPU for a while. Longer, if the share
 * of time that the guest is paused has a bound.
 */

struct throttle {
	double max_overhead; /* share of time that the guest may be paused, below 1; 0: no bound */
	/* Rest after one pause at most, so that a stall of the host makes no long gap; 0: no bound. */
	uint64_t max_rest_ns;
	uint64_t until_ns; /* no sample before */
	uint64_t last_ns;  /* when the last sample was over */
	uint64_t owed_ns;  /* time of samples that the guest was not left alone for yet */
};

/* A sample is over; true if the bound on the overhead makes the pause longer. */
bool throttle_after(struct throttle *throttle, uint64_t began_ns, uint64_t now_ns,
		    uint64_t paused_ns);

/* When to take the sample whose deadline is this. */
uint64_t throttle_due(const struct throttle *throttle, uint64_t deadline_ns);

/*
 * Rates of several samplers that share a budget of CPU time. All may take the
 * same; what one does not need is the others': a guest that is expensive to
 * sample is sampled less often, and does not slow the others' samplers down.
 */

struct rate_share {
	double rate_hz;
	double cpu; /* share of a CPU that its sampler took at this rate of late; below 0: not known yet */
};

struct rate_limits {
	double wanted_hz, least_hz;
	double max_cpu; /* share of a CPU for all together; 0: no bound */
	double others;	/* share of a CPU that was taken for anything but sampling */
	bool may_raise; /* the last change is long enough ago */
};

/* Lowers rates while all together take too much, and raises them while there is room; true if it has changed any. */
bool rates_fit(struct rate_share *shares, size_t n, const struct rate_limits *limits);

#endif
