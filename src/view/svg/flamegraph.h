/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef UNIPROF_VIEW_SVG_FLAMEGRAPH_H
#define UNIPROF_VIEW_SVG_FLAMEGRAPH_H

/*
 * A flame graph as one self-contained SVG: search by regular expression,
 * zoom, reset, hover text, keyboard, no network. See docs/flamegraph.md.
 */

#include <stdio.h>

#include "analysis/diff.h"
#include "symbol/names/display_name.h"

struct flamegraph_options {
	const char *title;    /* NULL: "Flame Graph" */
	const char *subtitle; /* NULL: none */
	const char *warning;  /* a line at the top that cannot be overlooked; NULL: none */
	unsigned width;	      /* pixels; 0: 1200 */
	double min_width;     /* frames narrower than this many pixels are left out; < 0: 0.1 */
	bool icicle;	      /* root at the top, growing down */
	bool cold;	      /* time that was waited: blue */
	bool reverse;	      /* the tree was built leaf first: says so in texts */
	/* [nodes]: the tree is that of a tree_pair, and this is how it differs; NULL: of one profile */
	const struct tree_change *changes;
	bool full_names; /* in boxes, too, and not only in their hover texts */
};

/* Widths are shares of weight_ns; texts give samples and percent. Every name is escaped. */
struct error *flamegraph_write(const struct tree *tree, const struct flamegraph_options *options,
			       FILE *out);

/* Frames with a smaller share of all are not drawn. */
double flamegraph_min_share(const struct flamegraph_options *options);

/* The files flamegraph.css and flamegraph.js, word for word; the build makes C of them (embed.py). */
extern const char flamegraph_css[];
extern const char flamegraph_js[];

#endif
