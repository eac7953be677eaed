/* SPDX-License-Identifier: BSD-3-Clause */
#pragma once

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
#include "base/bytes.h"
#include "symbol/source/source.h"

/* A stack, and the thread that had it. */
struct page_pair {
	uint32_t stack, thread;
};

/*
 * All samples that a page tells of, taken down while the profile is loaded, so that
 * the recording is read once. They take some ten bytes each; of more than some
 * millions those of one stack are joined that are near each other in time.
 */
struct page_samples {
	struct profile_listener listener; /* of the filter that the profile is loaded with */
	struct page_pair *pairs; /* keys of samples are numbers of these; NULL: they are stacks */
	uint32_t n_pairs;
	bool weighted;	      /* some sample has a weight */
	struct page_log *log; /* private */
};

/* Those that `filter`, which must outlive them, lets pass; by stack and thread, if it divides. */
struct error *page_samples_new(const struct profile_filter *filter, struct page_samples **out);
void page_samples_free(struct page_samples *samples);

/* Forgets the samples, which take more memory than their rows. */
void page_samples_drop(struct page_samples *samples);

/* A recording in the page. */
struct page_side {
	const struct profile *profile; /* its samples do not matter */
	struct page_samples *samples;  /* taken down when it was loaded; page_write drops them */
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

/* Groups of rows as a page has them. */
struct page_rows {
	uint64_t bucket_ns;
	uint64_t groups;
	struct bytes written;
};

/* The code of the functions that take most: instructions and source lines, with their samples. */
struct page_code_options {
	/* Its samples choose the functions; then it gets all that are in the page. */
	struct profile *profile;
	const struct page_samples *samples;
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
	struct page_rows
		rows; /* of samples, at their nodes times PAGE_CODE_ENDS, plus their ends */
};

/* page_code_free is due, also after an error. */
struct error *page_code(const struct page_code_options *options, struct page_code *out);
void page_code_free(struct page_code *code);

/* `n` is 1, or 2 for a page of differences: before and after. */
struct error *page_write(const struct page_side *sides, unsigned n,
			 const struct page_options *options, FILE *out);

/* Private to page*.c: samples on their way into the page. */

struct page_sample {
	uint64_t time_ns;
	uint64_t samples;
	uint64_t weight_ns; /* of each; of all, if they were joined */
	double squares; /* sum of the squares of the weights, if they were joined; maybe of others, too */
	uint32_t key; /* its stack, or the number of its pair */
	uint16_t vcpu;
	uint8_t state; /* enum vcpu_state */
	bool joined;
};

static inline struct profile_cell page_sample_cell(const struct page_sample *sample)
{
	struct profile_cell cell = {0};

	if (sample->joined)
		return (struct profile_cell){sample->samples, sample->weight_ns, sample->squares};
	profile_cell_count(&cell, sample->samples, sample->weight_ns);
	return cell;
}

struct page_sample_reader {
	const struct page_chunk *chunk;
	struct cursor in;
	struct page_sample sample; /* the one that was read */
};

/* Goes over the samples in order of time; false at the end. */
struct page_sample_reader page_samples_start(const struct page_samples *samples);
bool page_samples_next(struct page_sample_reader *reader);

static inline uint32_t page_samples_stack(const struct page_samples *samples, uint32_t key)
{
	return samples->pairs ? samples->pairs[key].stack : key;
}

/* The nodes that samples end in, by key, or by the stacks of these pairs. */
struct page_places {
	const uint32_t *node; /* [n]; 0 for all others */
	uint32_t n;
	const struct page_pair *pairs;
};

/* Buckets become longer until there are no more rows than `max_rows`, or one bucket alone. */
struct error *page_samples_rows(const struct page_samples *samples, const struct profile *profile,
				const struct page_places *places, uint64_t max_rows,
				struct page_rows *out);

/* The tree of all stacks of the sides, in preorder. */
struct page_tree;

struct error *page_tree_new(const struct page_side *sides, unsigned n, struct page_tree **out);
void page_tree_free(struct page_tree *tree);
struct page_places page_tree_places(const struct page_tree *tree, unsigned side);

/* The number of its nodes but the root, and all of them as a page has them. */
uint32_t page_tree_nodes(const struct page_tree *tree, const struct bytes **written);

/* Names are numbered in bytewise order. */
uint32_t page_tree_names(const struct page_tree *tree);
const char *page_tree_name(const struct page_tree *tree, uint32_t number, bool *unresolved);

/* page.html with its style and scripts in it, in three parts; the build makes C of it (page_embed.py). */
extern const char page_before_title[];
extern const char page_before_data[];
extern const char page_behind_data[];

/* ... and history.html with its own: the load of a guest over days; its data are JSON, without "<". */
extern const char history_before_title[];
extern const char history_before_data[];
extern const char history_behind_data[];
