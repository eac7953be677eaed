/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef UNIPROF_PROFILE_PROFILE_H
#define UNIPROF_PROFILE_PROFILE_H

/*
 * A recording summed up: how many samples, and how much time, each stack got.
 * Everything that reports or draws starts from here; only what needs the
 * order of samples in time (raw export) reads the recording itself.
 */

#include "base/histogram.h"
#include "recording/recording.h"
#include "profile/source_frame.h"

/* Which ticks and entries count. */
struct profile_filter {
	unsigned states; /* bit n: enum vcpu_state n; 0: all */
	int64_t vcpu;	 /* -1: all */
	bool by_cpu; /* weights are CPU time that was used, not the time that samples stand for */
	/* [RECORDING_MAX_VCPUS]: which vCPUs count, instead of `vcpu`; NULL: as that says. */
	const bool *vcpus;
	/* The stretch of time that there is at all; what is outside is as if it had not been recorded. */
	uint64_t from_ns, to_ns;	/* to_ns 0: to the end */
	struct progress_sink *progress; /* told while the recording is read, if not NULL */
	bool divide;			/* tell vCPUs and states apart: profile.parts */
};

#define PROFILE_ON_CPU ((struct profile_filter){.states = 1u << VCPU_RUNNING, .vcpu = -1})

struct profile_cell {
	uint64_t samples;
	uint64_t weight_ns;
};

/* What one stack got on one vCPU in one state. */
struct profile_part {
	struct profile_cell cell;
	uint32_t stack;
	uint16_t vcpu;
	uint8_t state; /* enum vcpu_state */
};

struct parts;

/*
 * A name that the recording carries for an address, and the places in the
 * source, innermost first, of which the last one is of this function.
 */
struct profile_name {
	uint64_t addr;
	uint64_t offset;
	char *name;
	const struct source_frame *frames; /* NULL: none */
	uint32_t n_frames;
	uint8_t kind;
};

struct profile {
	struct recording_info info;
	struct recording_end end; /* meaningful unless cut */
	bool cut;		  /* the writer died: complete up to its last tick */
	struct stacks *stacks;

	struct profile_cell *cells;   /* [stacks_count]: samples that end exactly there, filtered */
	struct profile_cell selected; /* their sum */
	struct parts *
		parts; /* the same, divided (profile/parts.h); NULL unless the filter asks for it */

	bool seen
		[RECORDING_MAX_VCPUS]; /* vCPUs that were on-line in any look, of the stretch or not */
	/* Of all samples of the stretch, whatever their state and vCPU: */
	uint64_t ticks;
	struct profile_cell states[VCPU_STATES];
	/* Of the selected ones: sums over ticks of their weight, and of its square; see profile_draws. */
	double tick_weights, tick_weights_squared;
	/* Of the selected ones: how the unwinding ended. */
	uint64_t ends[UNWIND_ENDS];

	uint64_t ticks_read;	 /* in the file, whatever the filter */
	uint64_t last_ns;	 /* time of the last tick, of the stretch or not */
	uint64_t from_ns, to_ns; /* of the filter */
	uint64_t paused_ns;
	struct histogram pauses; /* ns, one value a tick; 0: none was needed */
	uint64_t unpaused;	 /* ticks of the latter kind */

	struct profile_name
		*names; /* sorted by (addr, kind), one for each; the nearest, if several */
	size_t n_names;
	struct recorded_places *places; /* what the names' frames belong to */
};

/*
 * Reads a recording ("-": standard input); errors as of recording_read. Sums
 * of weights stop at UINT64_MAX. Memory grows with stacks and names alone.
 */
struct error *profile_load(const char *path, const struct profile_filter *filter,
			   struct profile **out);
void profile_free(struct profile *profile);

/*
 * How many random draws the selected samples are worth, for intervals. Each
 * tick is one draw, whatever number of vCPUs was looked at, for these may do
 * the same at the same time; draws of unequal weight are worth fewer: (sum
 * of w)^2 / sum of w^2 (Kish, 1965). With jitter each tick is at a random
 * moment of its period, independent of the others, so that no more than that
 * is lost, in whatever way the guest's work is correlated in time: the
 * intervals are about the time that was recorded, not about other runs.
 */
double profile_draws(const struct profile *profile);

/*
 * How many vCPUs the guest has: of a process, whose recording has room for
 * threads that it may start, the threads that were seen.
 */
uint32_t profile_vcpus(const struct profile *profile);

/* Where the guest's images were, as far as was known at the end. */
const struct recorded_images *profile_images(const struct profile *profile);

/* How long the stretch is, of what was recorded; up to the last tick, if the recording is cut. */
uint64_t profile_elapsed_ns(const struct profile *profile);

/* Does the filter let this entry of a tick count? */
bool profile_selects(const struct profile_filter *filter, const struct tick *tick,
		     const struct tick_entry *entry);

/* The recorded name of a node, or NULL. */
const struct profile_name *profile_name(const struct profile *profile, uint64_t addr, uint8_t kind);

#endif
