/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef UNIPROF_PROFILE_QUALITY_H
#define UNIPROF_PROFILE_QUALITY_H

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

#endif
