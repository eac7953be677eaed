/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef UNIPROF_TOP_SUMMARY_H
#define UNIPROF_TOP_SUMMARY_H

/* What the last seconds come to: the numbers behind a picture of the live view. */

#include "analysis/callers_callees.h"
#include "analysis/flat.h"
#include "output/interval.h"
#include "output/keyed.h"
#include "top/recent.h"

struct summary_options {
	bool all_states; /* not only what runs */
	int64_t vcpu;	 /* -1: all */
	bool by_total;
	const regex_t *only; /* functions that are shown; NULL: all */
	const char *zoom; /* the name of one function whose callers and callees are; NULL: none */
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
	uint64_t span_ns; /* that the ticks stand for */
	double draws;
	struct keyed keyed;
	struct summary_row *rows;
	size_t n_rows;
	struct summary_row zoom; /* name NULL: none, or not in the samples now */
	uint32_t hottest;	 /* the stack with the most time; STACK_ROOT: none */
};

struct error *summary_make(struct recent *recent, struct stacks *stacks, uint32_t vcpus,
			   struct namer *namer, const struct summary_options *options,
			   struct summary *out);
void summary_free(struct summary *summary);

#endif
