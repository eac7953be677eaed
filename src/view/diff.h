/* SPDX-License-Identifier: BSD-3-Clause */
#pragma once

/* A comparison, as text or JSON (docs/man/uniprof-diff.1.in tells its fields). `sides` are before and after. */

#include <stdio.h>

#include "analysis/diff.h"
#include "symbol/names/display_name.h"
#include "view/tty_writer.h"

struct diff_style {
	size_t rows;		   /* at most; 0: all */
	double min_share;	   /* 0 to 1: only rows that have as much, before or after */
	struct short_names *names; /* NULL: full ones */
};

/* On narrow terminals without intervals; names are cut to the width. */
void diff_write_text(const struct diff *diff, const struct diff_side sides[2],
		     const struct diff_style *style, const struct tty_writer *writer);

struct error *diff_write_json(const struct diff *diff, const struct diff_side sides[2], FILE *out);
