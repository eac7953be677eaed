/* SPDX-License-Identifier: BSD-3-Clause */
#pragma once

/*
 * The weight of each sample: one rule for reports, pictures and exports, so
 * that they cannot disagree. Samples are weighed in the order of the file, and
 * a weight depends on nothing behind it: each pass over a recording comes to
 * the same weights.
 */

#include "base/histogram.h"
#include "recording/recording.h"

enum weight_by {
	WEIGHT_BY_BEST, /* CPU time of a vCPU that it is known of, else time */
	WEIGHT_BY_CPU,
	WEIGHT_BY_TIME,
	WEIGHT_BY_SAMPLES,
	/*
	 * The best weight of a running vCPU, divided by how many run at that moment: a part of the
	 * time in which the guest was at work, whatever ran beside it.
	 */
	WEIGHT_BY_LATENCY,
};

/*
 * A sample stands for no more than so many times the median stretch between
 * samples: one that came late would else speak for a time that nobody saw.
 */
#define WEIGHTING_STRETCHES 4

/* The time that a sample could stand for, in two parts. */
struct weight {
	uint64_t sampled_ns, not_sampled_ns;
};

struct weighting {
	enum weight_by by;
	bool bounded;
	uint64_t period_ns; /* asked for; 1 if that is not known */
	uint64_t bound_ns;
	uint32_t running; /* vCPUs, in this tick */
	struct histogram stretches;
	struct weight stretch;		   /* of all ticks so far: the time that they stand for */
	bool has_cpu[RECORDING_MAX_VCPUS]; /* its CPU time is known */
};

/*
 * Waiting vCPUs and threads use no CPU time: the best weight of a selection with others
 * than running ones (`states`, as in struct profile_filter) is time. Weights of
 * an imported profile have no bound.
 */
void weighting_start(struct weighting *weighting, enum weight_by by, unsigned states,
		     const struct recording_info *info);

/* Every tick, selected or not, before its entries are weighed. */
void weighting_tick(struct weighting *weighting, const struct tick *tick);

/* True if the weight is the CPU time that the vCPU has used. */
bool weighting_is_cpu_time(const struct weighting *weighting, const struct tick_entry *entry);

struct weight weighting_entry(const struct weighting *weighting, const struct tick *tick,
			      const struct tick_entry *entry);

/* The time that the tick stands for, whatever the vCPUs did. */
struct weight weighting_time(const struct weighting *weighting, const struct tick *tick);
