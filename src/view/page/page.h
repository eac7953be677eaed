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
	const char *title;	      /* NULL: the name of the guest */
	unsigned states;	      /* shown at first; bit n: enum vcpu_state n */
	bool icicle;		      /* root at the top, at first */
	bool reverse;		      /* merged from the leaf, at first */
	const char *color_by;	      /* what colours tell apart at first; NULL: functions */
	bool full_names;	      /* in boxes and tables, too, and not only in hover texts */
	const struct page_code *code; /* NULL: none, as of two sides */
};

/* The code of the functions that take most: instructions and source lines, with their samples. */
struct page_code_options {
	const struct profile *profile;	 /* all that is in the page */
	const struct profile *chosen_by; /* the samples that choose the functions */
	const struct images *images;
	struct symbolizer *symbolizer;
	struct symbolizer_options naming;
	struct disassembler *disassembler; /* NULL: none */
	struct source_text_options sources;
};

/* Functions have at least this share, callees included; so many at most. */
#define PAGE_CODE_SHARE	    0.005
#define PAGE_CODE_FUNCTIONS 64

/* A row of code that stacks pass, on that of their caller. */
struct page_code_node {
	uint32_t parent; /* node 0 is no code; a smaller number than the node's own */
	uint32_t row;	 /* of the parts' rows, counted over all of them */
};

/* Ends of stacks, told beside their node: in other code, at an instruction of the node's row, or within one. */
enum { PAGE_CODE_PASSES, PAGE_CODE_SELF, PAGE_CODE_MISPLACED, PAGE_CODE_ENDS };

struct page_code {
	char *text; /* JSON that page_controls.js reads */
	struct page_code_node *nodes;
	uint32_t n_nodes;
	struct node_map of_stack; /* its node times PAGE_CODE_ENDS, and its end */
};

/* page_code_free is due, also after an error. */
struct error *page_code(const struct page_code_options *options, struct page_code *out);
void page_code_free(struct page_code *code);

/* `n` is 1, or 2 for a page of differences: before and after. */
struct error *page_write(const struct page_side *sides, unsigned n,
			 const struct page_options *options, FILE *out);

/* page.html with its style and scripts in it, in three parts; the build makes C of it (page_embed.py). */
extern const char page_before_title[];
extern const char page_before_data[];
extern const char page_behind_data[];

/* ... and history.html with its own: the load of a guest over days; its data are JSON, without "<". */
extern const char history_before_title[];
extern const char history_before_data[];
extern const char history_behind_data[];

#endif
