/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef UNIPROF_SAMPLE_REST_H
#define UNIPROF_SAMPLE_REST_H

/*
 * How long the guest is left alone after a sample, whatever the rate asks for.
 *
 * Over time, at least as long as samples take, so that at rates that cannot be
 * kept neither the guest nor this host stands still for us. For a moment less
 * is allowed: two samples may be due shortly one after the other, and where
 * dom0 and the guest share a CPU, who sleeps gives up the CPU for a while.
 * Longer, if the share of time that the guest is paused has a bound.
 */

#include <stdbool.h>
#include <stdint.h>

struct rest {
	double max_overhead; /* share of time that the guest may be paused, below 1; 0: no bound */
	uint64_t until_ns;   /* no sample before */
	uint64_t last_ns;    /* when the last sample was over */
	uint64_t owed_ns;    /* what samples took, and was not rested for yet */
};

/* A sample is over; true if the bound on the overhead makes the rest longer. */
bool rest_after(struct rest *rest, uint64_t began_ns, uint64_t now_ns, uint64_t paused_ns);

/* When to take the sample whose deadline is this. */
uint64_t rest_due(const struct rest *rest, uint64_t deadline_ns);

#endif
