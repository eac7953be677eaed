/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef UNIPROF_OUTPUT_DIFF_WRITE_H
#define UNIPROF_OUTPUT_DIFF_WRITE_H

/* A comparison, as text or JSON (docs/uniprof.1 tells its fields). `sides` are before and after. */

#include <stdio.h>

#include "output/diff.h"

/* So many rows at most; 0: all. */
struct error *diff_write_text(const struct diff *diff, const struct diff_side sides[2], size_t rows,
			      FILE *out);

struct error *diff_write_json(const struct diff *diff, const struct diff_side sides[2], FILE *out);

#endif
