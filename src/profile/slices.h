/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef UNIPROF_PROFILE_SLICES_H
#define UNIPROF_PROFILE_SLICES_H

/*
 * A recording in slices of time: what each vCPU did in each of them, for
 * pictures with a time line. Samples of the same place, vCPU and state in one
 * slice are one row, so that long recordings become no larger than asked for:
 * where there would be more rows, slices become twice as long.
 */

#include "profile/profile.h"

struct slice_row {
	uint32_t slice;
	uint32_t vcpu;
	uint8_t state;	/* enum vcpu_state */
	uint32_t place; /* what `place_of` says of the stack */
	uint64_t samples, weight_ns;
	double squares; /* sum of the squares of the samples' weights, for profile_draws */
};

struct slices {
	uint64_t slice_ns; /* how long each is; a power of two times the shortest */
	uint32_t n;
	struct slice_row *rows; /* sorted by slice, vcpu, state, place */
	size_t n_rows;
};

/* As many slices as there are at first. */
#define SLICES_MAX 1024

/* But not so many that there are fewer looks at the guest for each, on average. */
#define SLICES_LOOKS 4

/*
 * Reads what `profile` was loaded from once more, so that must be a file and
 * not a pipe. `place_of` has a number for each stack ([stacks_count]). There
 * are more than `max_rows` rows only if one slice has more than half of that.
 */
struct error *slices_read(const char *path, const struct profile *profile,
			  const struct profile_filter *filter, const uint32_t *place_of,
			  size_t max_rows, struct slices *out);
void slices_free(struct slices *slices);

#endif
