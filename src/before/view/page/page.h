/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef UNIPROF_OUTPUT_PAGE_H
#define UNIPROF_OUTPUT_PAGE_H

/*
 * One or two recordings as one self-contained HTML page: flame graph, sandwich
 * of one function, time line, filters, differences. See docs/flamegraph.md.
 *
 * The page holds no stack twice: the tree of all stacks by name, and for each
 * slice of time what each vCPU did in which of its nodes.
 */

#include <stdio.h>

#include "analysis/tree.h"

/* A recording in the page. */
struct page_side {
	const char *path;	       /* read once more: not "-" */
	const struct profile *profile; /* loaded with `filter` */
	const struct profile_filter *filter;
	struct namer *namer;
	const char *subtitle;
	const char *warning; /* NULL: none */
};

struct page_options {
	const char *title; /* NULL: "Flame Graph" */
	unsigned states;   /* that are shown at first; bit n: enum vcpu_state n */
	bool icicle;	   /* root at the top, at first */
	bool reverse;	   /* merged from the leaf, at first */
};

/* `n` is 1, or 2 for a page of differences: before and after. */
struct error *page_write(const struct page_side *sides, unsigned n,
			 const struct page_options *options, FILE *out);

#endif
