/* SPDX-License-Identifier: BSD-3-Clause */
#pragma once

/*
 * The sampling loop: wait, sample, unwind, intern, hand on. Only the second
 * step is felt by the guest.
 */

#include <sched.h>
#include <signal.h>
#include <stdbool.h>

#include "capture/image_locator.h"
#include "recording/recording.h"
#include "symbol/names/symbolizer.h"
#include "target/target.h"

/* Rates beyond these are refused: below, a profile takes days; above, the guest would stand still. */
#define RATE_MIN 0.1
#define RATE_MAX 10000.0

/* Threads that are looked at in a tick, where those that do not run are wanted; at most: TICK_WAITS_MAX. */
#define WAITS_DEFAULT 32u
/* Share of a CPU that looking at them may take. */
#define WAITS_COST_DEFAULT 0.03

#define FRAMES_DEFAULT 4096u
#define FRAMES_MAX     65536u
#define STACK_DEFAULT  (256u << 10) /* bytes */

/* Memory for distinct stacks, bytes. */
#define MEMORY_DEFAULT (64ull << 20)
#define MEMORY_MIN     (1ull << 20)
#define MEMORY_MAX     (1ull << 30)

struct sampler_options {
	double rate_hz;
	/* rate_hz was lowered from this, so that all samplers of the agent together keep within `max_cpu`; 0: it was not. */
	double wanted_rate_hz;
	double max_cpu;	      /* share of a CPU */
	uint64_t duration_ns; /* 0: until stopped or the guest ends */
	bool no_jitter;
	/* Share of time that the guest may be paused, 0 to 1 (no bound); 0: the target's usual. */
	double max_overhead;
	uint64_t
		max_pause_ns; /* rather than stop the guest for longer, stacks are given up; 0: no bound */
	uint32_t max_frames; /* 0: FRAMES_DEFAULT */
	uint32_t max_stack;  /* bytes; 0: STACK_DEFAULT */
	uint32_t
		first_stack; /* bytes that are copied of a stack before it is known how deep it is; 0: 4 KiB */
	uint64_t max_memory;	       /* bytes that distinct stacks may take; 0: MEMORY_DEFAULT */
	const struct images *images;   /* bounds and tables for the unwinder; may be NULL */
	struct image_locator *locator; /* shown every sample before it is unwound; may be NULL */
	bool threads;		       /* tell which thread of the guest runs; needs the locator */
	uint32_t
		waits; /* threads that are looked at in each tick for those that do not run; 0: none */
	double waits_cost; /* CPU time that this takes at most, as a share of time; 0: no bound */
	/* Gets the functions of an interpreter (runtime/runtime.h), if the guest is one; NULL: they are not wanted. */
	struct stand_ins *stand_ins;
	/* Files of the host's kernel and of the monitor, by their addresses; NULL: the host's side is not wanted. */
	const struct images *host_images;
	enum unwind_method method;	   /* UNWIND_AUTO is the default */
	const volatile sig_atomic_t *stop; /* the loop ends soon after this is set */
	/* The loop ends as if its time were over soon after this is not `change` any more, but lasts a second; NULL: none. */
	const _Atomic uint32_t *changes;
	uint32_t change;
};

/* Receiver of the loop's events, called from it; NULL functions are skipped. */
struct sampler_sink {
	void *ctx;
	/* An error ends the loop. */
	struct error *(*tick)(void *ctx, const struct tick *tick);
	/* Before the first tick that tells of this thread; the first one is number 1. */
	struct error *(*thread)(void *ctx, const struct recorded_thread *thread);
	/* Deadlines were missed: `late_ns` behind the oldest of them. */
	void (*missed)(void *ctx, uint64_t periods, uint64_t late_ns);
	/* About ten times a second. */
	void (*progress)(void *ctx, uint64_t elapsed_ns, uint64_t ticks);
};

enum sampler_outcome {
	SAMPLED_TIME,	     /* the duration is over */
	SAMPLED_INTERRUPTED, /* *stop was set */
	SAMPLED_SHUT_DOWN,   /* the guest ended by itself, or was shut down */
	SAMPLED_CRASHED,
	SAMPLED_GONE, /* destroyed */
};

/* As recorded and printed: "time", "interrupted", "the guest shut down", ... */
const char *sampler_outcome_text(enum sampler_outcome outcome);

/* True if this state means that the guest has ended; *outcome is then set. */
bool sampler_ended(enum target_life life, enum sampler_outcome *outcome);

struct sampler_result {
	enum sampler_outcome outcome;
	uint64_t ticks;
	uint64_t elapsed_ns;
	uint64_t paused_ns; /* the guest stood still for so long in all */
	uint64_t missed;
	uint64_t retakes;
	uint64_t failed;
	uint64_t no_room;    /* stacks that could not be kept whole, because of max_memory */
	uint64_t given_up;   /* stacks that were not read, or not wholly, because of max_pause_ns */
	uint64_t waiting;    /* samples of threads that do not run */
	uint64_t unproven;   /* threads that ran while they were read as waiting ones */
	uint64_t lost_turns; /* lists of threads that led nowhere */
	char runtime[48];    /* the interpreter that was found: "CPython 3.11.2" */
	struct runtime_counts merged; /* ... and its stacks */
	double max_overhead; /* bound on the share of time paused that was in force; 0: none */
	bool no_priority, no_lock; /* what priority_raise was refused */
	uint64_t slowed;	   /* samples that were put off to keep within it */
};

/*
 * Samples until something ends it. The result is filled in every case, errors
 * included: what was handed on before an error is good.
 */
struct error *sampler_run(struct target *target, struct stacks *stacks,
			  const struct sampler_options *options, const struct sampler_sink *sink,
			  struct sampler_result *result);

/*
 * Puts what the guest was left for into the recording, if the target tells: as stacks, so that names
 * are found as for these. Before names are looked up.
 */
struct error *host_exits_record(struct target *target, const struct images *images,
				struct stand_ins *stand_ins, struct stacks *stacks,
				struct recording_writer *writer);

/*
 * While a guest is paused, nothing else on this host should get our CPU, and
 * none of our pages should have to be fetched: the guest would wait for it.
 * Takes the lowest real-time priority and locks what is in memory. Both are
 * as well as can be: without the rights for it, sampling works, if with
 * longer pauses at times.
 */
struct priority {
	int policy;
	struct sched_param param;
	bool raised, locked;
};

/* Child processes do not inherit it. */
void priority_raise(struct priority *before);
void priority_restore(const struct priority *before);

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
