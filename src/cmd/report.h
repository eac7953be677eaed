/* SPDX-License-Identifier: BSD-3-Clause */
#pragma once

/* The parts of `report`: a head, and the view below it, as text or as JSON. */

#include <regex.h>

#include "analysis/annotation.h"
#include "analysis/diff.h"
#include "analysis/functions.h"
#include "cmd/shared/load.h"
#include "profile/time_buckets.h"
#include "symbol/names/display_name.h"
#include "view/tty_writer.h"

enum report_view {
	REPORT_FLAT,
	REPORT_DOWN, /* the call tree from the outermost functions on */
	REPORT_UP,   /* from the innermost on: shows the callers of hot functions */
	REPORT_CALLERS_CALLEES,
	REPORT_ANNOTATION,
	REPORT_HEAT, /* seconds across, the offset in them down */
};

struct report_options {
	struct load_options load;
	enum report_view view;
	struct group_by keys;
	uint64_t rows; /* 0: all */
	bool by_total;
	double min_share;     /* of the total; rows below are left out */
	uint64_t depth;	      /* levels of trees; 0: all */
	const char *function; /* of REPORT_CALLERS_CALLEES; of REPORT_ANNOTATION also addresses */
	struct source_text_options sources;
	regex_t only;
	bool has_only;
	bool json, wide, no_pager, full_names;
	enum color_mode color;
};

/* A report, ready to be written in any format. */
struct report {
	const struct report_options *options;
	const struct loaded *loaded;
	struct grouped_tree grouped;		/* of the samples that `only` lets pass */
	struct short_names *names;		/* NULL: full names are wanted */
	struct callers_callees callers_callees; /* of REPORT_CALLERS_CALLEES */
	struct annotation annotation;		/* of REPORT_ANNOTATION */
	const char *annotated;			/* its function; NULL: it is of addresses */
	struct disassembler *disassembler;	/* NULL: none */
	struct heat_log *heat_log;		/* of REPORT_HEAT, as heat */
	struct heat heat;
};

/* A cell as a share of all selected samples, with its interval. */
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

void report_put_head(const struct report *report, const struct tty_writer *writer);
struct error *report_put_flat(const struct report *report, const struct tty_writer *writer);
struct error *report_put_tree(const struct report *report, const struct tty_writer *writer);
struct error *report_put_callers_callees(const struct report *report,
					 const struct tty_writer *writer);
void report_put_heat(const struct report *report, const struct tty_writer *writer);
struct error *report_put_json(const struct report *report, FILE *out);
struct json_t *report_cell_json(const struct report *report, const struct profile_cell *from);

struct error *report_put_annotation(const struct report *report, const struct tty_writer *writer);
/* NULL: no memory. */
struct json_t *report_annotation_json(const struct report *report);

/* Column `key` of a node's name, as it is shown; *len are its bytes. */
const char *report_column(const struct report *report, const char *name, size_t key, size_t *len);
