/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef UNIPROF_PROFILE_QUALITY_H
#define UNIPROF_PROFILE_QUALITY_H

/* How much of a profile can be believed, and from where on a person must be told. */

#include <stdint.h>

#include "base/error.h"

struct quality {
	uint64_t stacks;
	uint64_t truncated;	/* callers are missing */
	uint64_t no_room;	/* the innermost functions are missing, for want of memory */
	uint64_t nameless_leaf; /* the code that was executed has no name */
	uint64_t nameless;	/* any of its frames has none */
};

/* Sentences with "; " between them, or NULL when there is nothing to say; the caller frees *text. */
struct error *quality_warning(const struct quality *quality, char **text);

#endif
