/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef UNIPROF_OUTPUT_DIFF_H
#define UNIPROF_OUTPUT_DIFF_H

/*
 * Two flat profiles side by side, function by function. Shares are of what
 * each profile selected, so that recordings of different length and rate can
 * be compared. Functions are the same when their names are.
 */

#include "analysis/interval.h"
#include "analysis/flat.h"

struct diff_row {
	const char *name;		       /* belongs to one of the namers */
	struct profile_cell self[2], total[2]; /* before, after */
	struct difference self_change, total_change;
	bool unresolved; /* the name is an address */
};

struct diff {
	struct diff_row *rows; /* what changed most first: significant changes, then noise */
	size_t n;
	size_t significant; /* so many rows changed, in what they use themselves or in all */
	double draws[2];
};

enum diff_order { DIFF_BY_SELF, DIFF_BY_TOTAL };

struct diff_side {
	const struct flat *flat;
	const struct profile *profile;
	const char *warning; /* what to know before believing it; may be NULL */
};

/*
 * Everything in `before` and `after` must outlive the result. All changes, of
 * self and total, are judged together (differences_mark).
 */

struct error *diff_new(const struct diff_side *before, const struct diff_side *after,
		       enum diff_order order, struct diff **out);
void diff_free(struct diff *diff);

/* Is any of its two changes significant? */
bool diff_row_changed(const struct diff_row *row);

#endif
