/* SPDX-License-Identifier: BSD-3-Clause */
#pragma once

/*
 * A recording summed up: how many samples, and how much time, each stack got.
 * Everything that reports or draws starts from here; only what needs the
 * order of samples in time (raw export) reads the recording itself.
 */

#include <stdlib.h>

#include "base/histogram.h"
#include "base/owned.h"
#include "base/sample_types.h"
#include "profile/weighting.h"
#include "recording/recording.h"

/* Told of samples while a profile is loaded: what needs their order need not read them again. */
struct profile_listener {
	void *ctx;
	/* Each tick, whatever the filter selects, or what stands for exits if these count; NULL: not wanted. */
	struct error *(*tick)(void *ctx, const struct recording_info *info,
			      const struct tick *tick);
	/* Behind the last tick, before names are looked up; NULL: not wanted. */
	struct error *(*end)(void *ctx);
	/* Each selected sample; NULL: not wanted. */
	struct error *(*sample)(void *ctx, const struct tick *tick, const struct tick_entry *entry,
				uint64_t weight_ns);
};

/* Selects the ticks and entries that count. */
struct profile_filter {
	unsigned states; /* bit n: state n of samples; 0: all of vCPUs */
	int64_t vcpu;	 /* -1: all */
	enum weight_by weight;
	/* [RECORDING_MAX_VCPUS]: which vCPUs count, instead of `vcpu`; NULL: as that says. */
	const bool *vcpus;
	/* The stretch of time that there is at all; what is outside is as if it had not been recorded. */
	uint64_t from_ns, to_ns;	/* to_ns 0: to the end */
	struct progress_sink *progress; /* told while the recording is read, if not NULL */
	/* Exits count, one each, in place of samples; state and time do not select them. */
	bool exits;
	bool divide; /* tell vCPUs, states and threads apart: profile.breakdown */
	/* Lists of values with commas between them, one of which the thread has; NULL: all threads. */
	const char *comm; /* its name, or that of its process */
	const char *pid, *tid;
	const char *container;			 /* its name or path */
	const struct profile_listener *listener; /* NULL: none */
	/* That of a profile of the same recording, which outlives this one; NULL: one of its own. */
	struct stacks *stacks;
};

struct profile;

/*
 * The tick that stands for exits: so many samples of the weight 1, at no time. Its one entry is *entry, which has to
 * stay as long.
 */
struct tick profile_tick_of_exits(const struct recorded_exits *exits, struct tick_entry *entry);

#define PROFILE_ON_CPU ((struct profile_filter){.states = 1u << VCPU_RUNNING, .vcpu = -1})

struct profile_cell {
	uint64_t samples;
	uint64_t weight_ns;
	double squares; /* sum of the squares of the samples' weights, for profile_share_draws */
};

/* Weights are what a file says: sums stop at the top instead of starting again. */
static inline uint64_t weight_sum(uint64_t a, uint64_t b)
{
	return a + b < a ? UINT64_MAX : a + b;
}

/* True if its filter has exits count, in place of samples. */
bool profile_counts_exits(const struct profile *profile);

void profile_cell_add(struct profile_cell *to, const struct profile_cell *from);

/* Adds so many samples of this weight each. */
void profile_cell_count(struct profile_cell *cell, uint64_t times, uint64_t weight_ns);

/* A cell for each stack. Most nodes of a store are callers, and share the cell of nothing. */
struct profile_cells {
	struct profile_cell *at;
	uint32_t
		*of; /* [stacks_count]: where in `at`, and there 0 is of nothing; NULL: at the id */
	uint32_t n;  /* cells of a profile that was loaded */
};

static inline const struct profile_cell *profile_cell(const struct profile_cells *cells,
						      uint32_t stack)
{
	return &cells->at[cells->of ? cells->of[stack] : stack];
}

/* The number of a stack's cell in a profile that was loaded; below cells.n. */
static inline uint32_t profile_cell_number(const struct profile_cells *cells, uint32_t stack)
{
	return cells->of[stack];
}

/* Marks each stack that has samples in `cells`, and its callers; used: [stacks_count], all false. */
void profile_mark_used(const struct profile *profile, const struct profile_cells *cells,
		       bool *used);

/* Weight of one stack on one vCPU in one state, of one thread. */
struct breakdown_entry {
	struct profile_cell cell;
	uint32_t stack;
	uint32_t thread; /* its number; 0: not known */
	uint16_t vcpu;	 /* NO_VCPU: a thread that does not run */
	uint8_t state;	 /* of samples */
};

struct breakdown;

/*
 * A name that the recording carries for an address, and the source
 * locations, innermost first, of which the last one is of this function.
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
	bool shares_stacks; /* they are another profile's */

	struct profile_cells cells;   /* samples that end exactly there, filtered */
	struct profile_cell selected; /* their sum */
	struct breakdown *breakdown;  /* the same, divided; NULL unless the filter asks for it */

	bool seen[RECORDING_MAX_VCPUS]; /* vCPUs that were on-line in any tick, selected or not */
	/* All samples of the stretch, whatever their state and vCPU: */
	uint64_t ticks;
	struct profile_cell states[SAMPLE_STATES];
	/* Time of each vCPU in each state, ns. */
	uint64_t vcpu_states_ns[RECORDING_MAX_VCPUS][VCPU_STATES];
	/*
	 * Sums over the ticks of the selected samples: weight, and its square;
	 * see profile_draws.
	 */
	double tick_weights, tick_weights_squared;
	/* Ends of the selected samples' stacks. */
	uint64_t ends[UNWIND_ENDS];

	uint64_t ticks_read;	 /* in the file, whatever the filter */
	uint64_t last_ns;	 /* time of the last tick, of the stretch or not */
	uint64_t from_ns, to_ns; /* of the filter */
	bool by_cpu_time; /* weights of the selected ones are CPU time, of some vCPU at least */
	uint64_t
		not_sampled_ns; /* what the selected ones would stand for, if weights had no bound */
	uint64_t paused_ns;
	struct histogram pauses; /* ns, one value a tick; 0: none was needed */
	uint64_t without_pause;	 /* ticks of the latter kind */
	uint64_t ran;		 /* ticks in which a vCPU had run since the tick before */
	/*
	 * ... without a pause, and within the scheduler's rate limit after the tick before: the
	 * vCPU had the CPU that the sampler got, and must have yielded it.
	 */
	uint64_t at_yields;

	struct profile_name
		*names; /* sorted by (addr, kind), one for each; the nearest, if several */
	size_t n_names;
	struct recorded_locations *locations; /* what the names' frames belong to */
	struct recorded_thread *threads;      /* number 1 first; names may be any bytes */
	size_t n_threads;
};

/*
 * Reads a recording ("-": standard input); errors as of recording_read. Sums
 * of weights stop at UINT64_MAX. Memory grows with stacks and names alone.
 */
struct error *profile_load(const char *path, const struct profile_filter *filter,
			   struct profile **out);
void profile_free(struct profile *profile);
OWNED_POINTER(profile)

/* Frees the samples by stack, where nothing asks for them any more. */
static inline void profile_drop_cells(struct profile *profile)
{
	free(profile->cells.at);
	free(profile->cells.of);
	profile->cells = (struct profile_cells){0};
}

/*
 * Number of random draws that the selected samples are worth, for intervals.
 * Each tick is one draw, however many vCPUs were sampled, for these may do the
 * same at the same time; draws of unequal weight are worth fewer: (sum of w)^2
 * / sum of w^2 (Kish, 1965). With jitter each tick is at a random moment of its
 * period, independent of the others, so that no more than that is lost, in
 * whatever way the guest's work is correlated in time: the intervals are about
 * the time that was recorded, not about other runs.
 */
double profile_draws(const struct profile *profile);

/*
 * Number of draws for the share of one cell: fewer, if its samples weigh more
 * than others, by the linearized variance of a ratio (Cochran, Sampling
 * Techniques, 1977, 6.4); never more, for weights of few samples tell little.
 */
double profile_share_draws(const struct profile *profile, const struct profile_cell *cell);

/*
 * Number of the guest's vCPUs; for a process, whose recording has room for
 * threads that it may start, the threads that were seen.
 */
uint32_t profile_vcpus(const struct profile *profile);

/* The guest's images and their addresses, as known at the end. */
const struct recorded_images *profile_images(const struct profile *profile);

/* not_sampled_ns as a share of what was selected: 0 to 1. */
double profile_not_sampled(const struct profile *profile);

/* Length of the recorded stretch; up to the last tick, if the recording is cut. */
uint64_t profile_elapsed_ns(const struct profile *profile);

/* True if the filter lists the thread of an entry, or none. */
bool profile_selects_thread(const struct profile_filter *filter, const struct tick *tick,
			    const struct tick_entry *entry);

/* True if the filter lets this entry of a tick count. */
bool profile_selects(const struct profile_filter *filter, const struct tick *tick,
		     const struct tick_entry *entry);

/* The recorded name of a node, or NULL. */
const struct profile_name *profile_name(const struct profile *profile, uint64_t addr, uint8_t kind);

/* Samples by stack, vCPU, state and thread. */
struct error *breakdown_new(struct breakdown **out);
void breakdown_free(struct breakdown *breakdown);

struct error *breakdown_add(struct breakdown *breakdown, const struct tick_entry *entry,
			    uint64_t times, uint64_t weight_ns);

/* Entry i, i < breakdown_count; the order means nothing. */
size_t breakdown_count(const struct breakdown *breakdown);
const struct breakdown_entry *breakdown_at(const struct breakdown *breakdown, size_t i);

/* Quality of a profile, and the limits from which on the user is warned. */

#include <stdint.h>

#include "base/error.h"

/* Hardly a function is larger: symbols of those in between are missing, bytes. */
#define QUALITY_FAR (64u << 10)

struct quality {
	uint64_t stacks;
	uint64_t ticks;	  /* that have selected samples, at most; 0: not known */
	double draws;	  /* that the samples are worth */
	double at_yields; /* the share of samples that the guest made way for by yielding its CPU */
	const char *scheduler;	/* that held these samples back, as in xl sched-NAME */
	double stopped;		/* the share of the time that the guest was stopped for */
	double max_overhead;	/* the bound on that which was in force; 0: none */
	uint64_t truncated;	/* callers are missing */
	uint64_t broken;	/* no caller of the last frame was found, which may have one */
	uint64_t no_room;	/* the innermost functions are missing, for want of memory */
	uint64_t nameless_leaf; /* the code that was executed has no name */
	uint64_t nameless;	/* any of its frames has none, and is in no image that is known */
	uint64_t far_leaf;	/* the symbol that names it is farther than QUALITY_FAR before it */
	const char *far_name;	/* ... the name of one of these; NULL: none */
};

/* More sentences than these are not read. */
#define QUALITY_SENTENCES 3

/*
 * The first `most` of the sentences that are due, what matters most first, with
 * "; " between them, or NULL when there is nothing to say; the caller frees *text.
 */
struct error *quality_warning(const struct quality *quality, unsigned most, char **text);
