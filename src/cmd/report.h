/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef UNIPROF_CMD_REPORT_H
#define UNIPROF_CMD_REPORT_H

/* The parts of `report`: a head, and what it shows below, as text or as JSON. */

#include <regex.h>

#include "cmd/load.h"
#include "cmd/paper.h"
#include "analysis/callers_callees.h"
#include "analysis/flat.h"
#include "output/interval.h"
#include "output/keyed.h"

enum report_view {
	REPORT_FLAT,
	REPORT_DOWN, /* the call tree from the outermost functions on */
	REPORT_UP,   /* from the innermost on: who calls what is hot */
	REPORT_AROUND,
};

struct report_options {
	struct load_options load;
	enum report_view view;
	struct keys keys;
	uint64_t rows; /* 0: all */
	bool by_total;
	double min_share; /* of the total; rows below are left out */
	uint64_t depth;	  /* levels of trees; 0: all */
	const char *around;
	regex_t only;
	bool has_only;
	bool json, wide, no_pager;
	enum color_mode color;
};

/*
 * Takes the command line. Whatever it says, regfree(&options->only) is due
 * afterwards if options->has_only.
 */
struct error *report_parse(int argc, char **argv, struct report_options *options);
extern const char report_help[];

/* What is to be shown. */
struct report {
	const struct report_options *options;
	const struct loaded *loaded;
	struct keyed keyed;
	struct flat *flat;	   /* of REPORT_FLAT */
	struct around around;	   /* of REPORT_AROUND */
	struct profile_cell shown; /* samples that `only` lets pass */
	double draws;
};

/* A cell as a share of all that was selected, with its interval. */
struct share {
	double value, low, high; /* 0 to 1 */
};

struct share report_share(const struct report *report, const struct profile_cell *cell);

/* Children of a node of a tree, the largest first, without those below the least share. */
struct branches {
	uint32_t *at;
	size_t n;
	size_t left_out;
};

struct error *report_branches(const struct report *report, const struct tree *tree, uint32_t node,
			      struct branches *out);

struct error *report_put_head(const struct report *report, const struct paper *paper);
struct error *report_put_flat(const struct report *report, const struct paper *paper);
struct error *report_put_tree(const struct report *report, const struct paper *paper);
struct error *report_put_around(const struct report *report, const struct paper *paper);
struct error *report_put_json(const struct report *report, FILE *out);

/* For texts and JSON. */
const char *report_view_text(enum report_view view);

#endif
