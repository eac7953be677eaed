/* SPDX-License-Identifier: BSD-3-Clause */
#pragma once

/*
 * Bounds the work on data of a guest or a file. A search spends a step for each
 * item that it compares, some nanoseconds; once the budget is exhausted or the
 * search cancelled, each further step fails, and the search returns without a
 * result.
 */

#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"

struct budget {
	uint64_t left;	    /* steps */
	uint64_t unchecked; /* steps since the last check */
	bool exhausted;
	bool cancelled;
	/* Called about every BUDGET_CHECK steps; false cancels the search. NULL: no check. */
	bool (*check)(void *ctx);
	void *ctx;
};

/* Steps between two checks, some ten microseconds. */
#define BUDGET_CHECK (1u << 14)

/* False: no step is left, or the search is cancelled. NULL: there is no bound. */
bool budget_spend(struct budget *budget, uint64_t steps);

/* True once a step has failed. */
bool budget_over(const struct budget *budget);

/*
 * Runs a search with a budget in slices, on the caller's thread: urgent work is
 * done between two slices.
 */

struct background;

/* `search` spends from the budget, `steps` in all, and returns soon once that fails. */
struct error *background_new(struct error *(*search)(void *ctx, struct budget *budget), void *ctx,
			     uint64_t steps, struct background **out);

/* Cancels the search if it has not ended. NULL is allowed. */
void background_free(struct background *background);

/*
 * Runs the search until `until_ns` (CLOCK_MONOTONIC), by some ten microseconds
 * more. False: it has ended; *err is then its error, and NULL otherwise.
 */
bool background_run(struct background *background, uint64_t until_ns, struct error **err);

/* True if the search ended because its steps were spent. */
bool background_exhausted(const struct background *background);
