/* SPDX-License-Identifier: BSD-3-Clause */
#pragma once

/*
 * Trees (analysis/tree.h) of the selected samples of a profile, whose nodes are
 * not only named by functions: a node's name has a column for each key, with
 * tabs between them, which no name has in it.
 *
 * Where the columns tell less than functions and lines, frames that follow one
 * another with the same name are one node.
 */

#include <regex.h>
#include <stdbool.h>
#include <stddef.h>

#include "analysis/functions.h"
#include "analysis/tree.h"
#include "base/intern.h"

/* Keys that samples are grouped by: the function, or another property of a frame or a sample. */

enum group_key {
	GROUP_FUNCTION,
	GROUP_LINE,  /* "FILE:LINE" of the source */
	GROUP_FILE,  /* of the source */
	GROUP_IMAGE, /* the file that the code came from */
	GROUP_VCPU,
	GROUP_STATE,	 /* of the vCPU, or of the thread that does not run */
	GROUP_CONTAINER, /* "docker:0123456789ab", "nginx.service", "/" of the thread that ran */
	GROUP_PROCESS,	 /* "NAME (PID)" of the thread that ran */
	GROUP_THREAD,	 /* "NAME (TID)", with the process's name if it has another */
	GROUP_KEYS
};

/* In the order of the columns; each at most once. */
struct group_by {
	enum group_key at[GROUP_KEYS];
	size_t n;
};

/* "function", ...: as in --by, as the head of a column, and in JSON. */
const char *group_key_text(enum group_key key);

bool group_by_have(const struct group_by *keys, enum group_key key);

/* True if any of them is a property of the thread that ran. */
bool group_by_threads(const struct group_by *keys);

/* True if any of them is a property of a whole sample. */
bool group_by_divide(const struct group_by *keys);

/*
 * "function,vcpu": names with commas between them; also as perf calls them (symbol, dso, cpu).
 * False, with *bad at what is wrong, when a name is unknown or there twice.
 */
bool group_by_parse(const char *text, struct group_by *keys, const char **bad);

struct grouped_tree_options {
	struct group_by keys;
	bool reverse;	     /* leaf first */
	const regex_t *only; /* stacks that hold a function whose name matches; NULL: all */
	bool flat;	     /* rows instead of a tree */
	/* A tree may lack nodes with a smaller share of all selected samples; 0: it has all. */
	double min_share;
};

struct grouped_tree {
	struct tree *tree;	   /* summed; NULL: `flat` was asked for */
	struct flat *flat;	   /* sorted by self time */
	struct profile_cell total; /* of all that is in them */
	struct pool *pool;	   /* the names */
	bool *passes;		   /* [n_passes], by stack: it passes `only`; NULL: all do */
	uint32_t n_passes;
};

/*
 * Keys of whole samples need a profile that was loaded with filter.divide.
 * `images` may be NULL. After an error *out is to be freed, too.
 */
struct error *grouped_tree_build(const struct profile *profile, struct symbolizer *symbolizer,
				 const struct images *images,
				 const struct grouped_tree_options *options,
				 struct grouped_tree *out);
void grouped_tree_free(struct grouped_tree *grouped);

/* Names the rows (options.flat) that samples have their own time in. */
struct group_rows {
	const struct profile *profile;
	struct symbolizer *symbolizer;
	const struct images *images; /* may be NULL */
	const struct group_by *keys;
	struct pool *pool; /* new names belong to it, others to the symbolizer */
};

/* The row's name; NULL: none, for a sample without a stack. Its stack and thread are the profile's. */
struct error *group_sample_name(const struct group_rows *rows, const struct tick_entry *entry,
				const char **name);

/*
 * The name of a thread by its number or, with GROUP_PROCESS, of its process, or with
 * GROUP_CONTAINER of its container, cleaned; those of the system itself are in brackets. The caller frees it; NULL: no memory.
 */
char *group_thread_name(const struct profile *profile, uint32_t thread, enum group_key key);

/* For struct tree_outer: names threads, or what they are in, as here. */
struct group_outer {
	const struct profile *profile;
	struct symbolizer *symbolizer; /* the names belong to it */
	enum group_key key;
};

struct error *group_outer_name(void *ctx, uint32_t thread, const char **name);

/* Column i of a node's name, to the tab or the end; *len are its bytes. */
const char *grouped_tree_column(const char *name, size_t i, size_t *len);
