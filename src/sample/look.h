/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef UNIPROF_SAMPLE_LOOK_H
#define UNIPROF_SAMPLE_LOOK_H

/*
 * One look at a guest: a sample of all vCPUs, unwound and put into the stack
 * store. How much of each stack is copied follows what was needed lately; when
 * that was too little, the sample is taken again at once.
 */

#include "capture/sampler.h"

struct look;

/* Takes what concerns it from the options. `target` and `stacks` must outlive it. */
struct error *look_new(struct target *target, struct stacks *stacks,
		       const struct sampler_options *options, struct look **out);
void look_free(struct look *look);

/*
 * A look at `now_ns`, CLOCK_MONOTONIC, just read; 0: it was not.
 * Fills in the tick but for its weight: time_ns is CLOCK_MONOTONIC, paused_ns
 * holds the pauses of all takes, entries are valid until the next look. Errors
 * are those of the target's sample(), and of a lack of memory.
 */
struct error *look_take(struct look *look, uint64_t now_ns, struct tick *tick);

/* The sample that the last look_take ended with; valid until the next. */
const struct sample *look_sample(const struct look *look);

/* Stacks that were not or not wholly read, so as not to stop the guest for too long. */
uint64_t look_given_up(const struct look *look);

/* How long the last look_take searched for images, while the guest ran. */
uint64_t look_settle_ns(const struct look *look);

/* Samples that were taken again, since the beginning; 0 for NULL. */
uint64_t look_retakes(const struct look *look);

/* Stacks whose innermost frames found no room in the store, since the beginning; 0 for NULL. */
uint64_t look_no_room(const struct look *look);

#endif
