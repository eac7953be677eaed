/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef UNIPROF_VIEW_PAGE_PAGE_H
#define UNIPROF_VIEW_PAGE_PAGE_H

/*
 * One or two recordings as one self-contained HTML page: flame graph, sandwich
 * of one function, time line, filters, differences. See docs/flamegraph.md.
 *
 * The page holds no stack twice: the tree of all stacks by name, and for each
 * time bucket what each vCPU did in which of its nodes.
 */

#include <stdio.h>

#include "analysis/annotation.h"
#include "analysis/tree.h"
#include "symbol/source/source.h"

/* A recording in the page. */
struct page_side {
	const char *path;	       /* read once more: not "-" */
	const struct profile *profile; /* loaded with `filter` */
	const struct profile_filter *filter;
	struct symbolizer *symbolizer;
	const char *subtitle;
	const char *warning; /* NULL: none */
	/* NULL: none; of two sides, neither has any. Its names belong to the symbolizer. */
	const struct tree_outer *outer;
};

struct page_options {
	const char *title;    /* NULL: the name of the guest */
	unsigned states;      /* shown at first; bit n: enum vcpu_state n */
	bool icicle;	      /* root at the top, at first */
	bool reverse;	      /* merged from the leaf, at first */
	const char *color_by; /* what colours tell apart at first; NULL: functions */
	bool full_names;      /* in boxes and tables, too, and not only in hover texts */
	const char *code;     /* of page_code; NULL: none, as of two sides */
};

/* The code of the functions that take most: instructions and source lines, with their samples. */
struct page_code_options {
	const struct profile *profile; /* with the samples that count */
	const struct images *images;
	struct symbolizer *symbolizer;
	struct symbolizer_options naming;
	struct disassembler *disassembler; /* NULL: none */
	struct source_text_options sources;
};

/* Functions have at least this share, callees included; so many at most. */
#define PAGE_CODE_SHARE	    0.005
#define PAGE_CODE_FUNCTIONS 64

/* *out is JSON that page_controls.js reads; the caller frees it. */
struct error *page_code(const struct page_code_options *options, char **out);

/* `n` is 1, or 2 for a page of differences: before and after. */
struct error *page_write(const struct page_side *sides, unsigned n,
			 const struct page_options *options, FILE *out);

/* page.html with its style and scripts in it, in three parts; the build makes C of it (page_embed.py). */
extern const char page_before_title[];
extern const char page_before_data[];
extern const char page_behind_data[];

#endif
