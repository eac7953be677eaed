/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef UNIPROF_PROFILE_PROFILE_H
#define UNIPROF_PROFILE_PROFILE_H

/*
 * A recording summed up: how many samples, and how much time, each stack got.
 * Everything that reports or draws starts from here; only what needs the
 * order of samples in time (raw export) reads the recording itself.
 */

#include "base/histogram.h"
#include "profile/recording.h"

/* Which ticks and entries count. */
struct profile_filter {
	unsigned states; /* bit n: enum vcpu_state n; 0: all */
	int64_t vcpu;	 /* -1: all */
};

#define PROFILE_ON_CPU ((struct profile_filter){.states = 1u << VCPU_RUNNING, .vcpu = -1})

struct profile_cell {
	uint64_t samples;
	uint64_t weight_ns;
};

/* A name that the recording carries for an address. */
struct profile_name {
	uint64_t addr;
	uint64_t offset;
	char *name;
	uint8_t kind;
};

struct profile {
	struct recording_info info;
	struct recording_end end; /* meaningful unless cut */
	bool cut;		  /* the writer died: complete up to its last tick */
	struct stacks *stacks;

	struct profile_cell *cells;   /* [stacks_count]: samples that end exactly there, filtered */
	struct profile_cell selected; /* their sum */

	/* Of all samples, whatever the filter: */
	uint64_t ticks;
	struct profile_cell states[VCPU_STATES];
	/* Of the selected ones: how the unwinding ended. */
	uint64_t ends[UNWIND_ENDS];

	uint64_t last_ns; /* time of the last tick */
	uint64_t paused_ns;
	struct histogram pauses; /* ns, one value a tick */

	struct profile_name
		*names; /* sorted by (addr, kind), one for each; the nearest, if several */
	size_t n_names;
};

/*
 * Reads a recording ("-": standard input); errors as of recording_read. Sums
 * of weights stop at UINT64_MAX. Memory grows with stacks and names alone.
 */
struct error *profile_load(const char *path, const struct profile_filter *filter,
			   struct profile **out);
void profile_free(struct profile *profile);

/* The recorded name of a node, or NULL. */
const struct profile_name *profile_name(const struct profile *profile, uint64_t addr, uint8_t kind);

#endif
