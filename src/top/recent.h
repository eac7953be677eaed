/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef UNIPROF_TOP_RECENT_H
#define UNIPROF_TOP_RECENT_H

/* The ticks of the last seconds, for a live view; older ones are forgotten. */

#include "analysis/diff.h"
#include "analysis/functions.h"
#include "analysis/grouped_tree.h"
#include "recording/recording.h"

/* No more entries are kept, whatever the span: 16 MiB. */
#define RECENT_MAX_ENTRIES (1u << 20)

struct recent_ticks;

struct error *recent_new(uint64_t span_ns, struct recent_ticks **out);
void recent_free(struct recent_ticks *recent);

/* A shorter span forgets at once; a longer one fills up again. */
void recent_set_span(struct recent_ticks *recent, uint64_t span_ns);
void recent_clear(struct recent_ticks *recent);

struct error *recent_add(struct recent_ticks *recent, const struct tick *tick);

/* Oldest first; i < recent_count. The tick's entries are valid until the next recent_add. */
size_t recent_count(const struct recent_ticks *recent);
void recent_get(const struct recent_ticks *recent, size_t i, struct tick *tick);

/* Sums of the last seconds: the numbers behind a picture of the live view. */

struct summary_options {
	bool all_states; /* not only running vCPUs */
	double rate_hz;	 /* asked for; 0: not known */
	int64_t vcpu;	 /* -1: all */
	uint32_t spare;	 /* vCPUs that are there for what may begin later: not told unless seen */
	bool by_total;
	const regex_t *only; /* functions that are shown; NULL: all */
	const char *zoom; /* the name of one function whose callers and callees are; NULL: none */
	/* Rows are functions or, with GROUP_PROCESS and GROUP_THREAD, what ran. */
	enum group_key by;
	const char *inside; /* the name of one of these, whose functions are rows; NULL: none */
	struct recorded_thread *threads; /* [n_threads], number 1 first */
	size_t n_threads;
};

struct vcpu_use {
	bool seen;
	uint64_t weight_ns[VCPU_STATES];
};

/* A function that can be chosen. */
struct summary_row {
	const char *name;
	struct profile_cell self, total;
	bool unresolved;
	enum { ROW_FUNCTION, ROW_CALLER, ROW_CALLEE } kind;
};

struct summary {
	struct profile profile; /* of these seconds; its stacks are the sampler's */
	struct vcpu_use *vcpus; /* [n_vcpus] */
	uint32_t n_vcpus;
	/* Those that are shown as the guest's: without spare ones that were not seen. */
	uint32_t told_vcpus;
	uint64_t span_ns; /* that the ticks stand for */
	struct grouped_tree grouped;
	struct summary_row *rows;
	size_t n_rows, rows_room;
	struct summary_row zoom; /* name NULL: none, or not in the samples now */
	uint32_t hottest;	 /* the stack with the most time; STACK_ROOT: none */
};

/* The options' names and threads, and the stacks, are needed as long as the summary. */
struct error *summary_make(struct recent_ticks *recent, struct stacks *stacks, uint32_t vcpus,
			   struct symbolizer *symbolizer, const struct summary_options *options,
			   struct summary *out);
void summary_free(struct summary *summary);

#endif
