/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef UNIPROF_VIEW_SVG_HEAT_MAP_H
#define UNIPROF_VIEW_SVG_HEAT_MAP_H

/*
 * A heat map of time as one self-contained SVG: seconds across, the offset in a
 * second down, hover text for each cell, no script, no network. See
 * docs/flamegraph.md.
 */

#include <stdio.h>

#include "base/error.h"
#include "profile/time_buckets.h"

/* Rows of a second: 20 ms each. */
#define HEAT_MAP_ROWS 50

struct heat_map_options {
	const char *title;    /* NULL: "Heat Map" */
	const char *subtitle; /* NULL: none */
	const char *warning;  /* a line at the top that cannot be overlooked; NULL: none */
	unsigned width;	      /* pixels; 0: 1200 */
};

/* The number of columns that a picture of this width has room for. */
uint32_t heat_map_columns(unsigned width);

/* `heat` has no more columns than that. Every text is escaped. */
void heat_map_write(const struct heat *heat, const struct heat_map_options *options, FILE *out);

#endif
