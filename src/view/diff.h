/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef UNIPROF_VIEW_DIFF_H
#define UNIPROF_VIEW_DIFF_H

/* A comparison, as text or JSON (docs/man/uniprof-diff.1.in tells its fields). `sides` are before and after. */

#include <stdio.h>

#include "analysis/diff.h"
#include "symbol/names/display_name.h"

/* Writes at most `rows` rows; 0: all. Short names are of `names`; NULL: full ones. */
struct error *diff_write_text(const struct diff *diff, const struct diff_side sides[2],
			      struct short_names *names, size_t rows, FILE *out);

struct error *diff_write_json(const struct diff *diff, const struct diff_side sides[2], FILE *out);

#endif
