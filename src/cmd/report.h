/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef UNIPROF_CMD_REPORT_H
#define UNIPROF_CMD_REPORT_H

/* The parts of `report`: a head, and the view below it, as text or as JSON. */

#include <regex.h>

#include "cmd/shared/load.h"
#include "symbol/names/display_name.h"
#include "view/disassemble.h"
#include "view/tty_writer.h"
#include "analysis/callers_callees.h"
#include "analysis/flat.h"
#include "analysis/interval.h"
#include "analysis/grouped_tree.h"
#include "profile/time_buckets.h"

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
	const char *function; /* of REPORT_CALLERS_CALLEES and REPORT_ANNOTATION */
	regex_t only;
	bool has_only;
	bool json, wide, no_pager, full_names;
	enum color_mode color;
};

/* An instruction with its samples; where there is no code, an address that was sampled. */
struct code_row {
	struct code_line line; /* of the file's addresses; len 0: no code */
	uint64_t addr;	       /* the guest's; with kind, for the symbolizer */
	uint8_t kind;
	struct profile_cell self; /* stacks that end there */
	/* Stacks through it: callers count at the call, before the return address; once for each stack. */
	struct profile_cell total;
	const struct location *at; /* innermost first */
	size_t n_at;
	uint32_t last; /* private */
};

/* The code of one function: several can have the same name, or one inlined into them. */
struct code_part {
	const char *name; /* of the function with the code */
	const char *path; /* NULL: no file is known */
	const char *build_id;
	uint64_t start, end, slide; /* of the file's addresses; the guest's are `slide` higher */
	bool whole; /* the function that was asked for, which others may be inlined into */
	bool nameless, patched, has_lines;
	bool guessed; /* nothing says where it ends */
	char *lacks;  /* a sentence on what is missing; NULL: nothing is */
	struct code_row *row;
	size_t n, room;
	struct profile_cell self, total; /* of all of its code */
	struct profile_cell
		own; /* of self, the function's that was asked for without what is inlined there */
	uint64_t misplaced; /* samples of self that are not where an instruction begins */
	uint32_t last;	    /* private */
};

struct annotation {
	const char *name;
	struct code_part *part; /* the one with most samples first */
	size_t n;
	struct images *images;	  /* private: files with code */
	struct symbolizer *lines; /* private */
};

/* A report, ready to be written in any format. */
struct report {
	const struct report_options *options;
	const struct loaded *loaded;
	struct grouped_tree grouped;
	struct short_names *names;		/* NULL: full names are wanted */
	struct flat *flat;			/* of REPORT_FLAT */
	struct callers_callees callers_callees; /* of REPORT_CALLERS_CALLEES */
	struct annotation annotation;		/* of REPORT_ANNOTATION */
	struct disassembler *disassembler;	/* NULL: none */
	struct heat heat;			/* of REPORT_HEAT */
	struct profile_cell matched;		/* samples that `only` lets pass */
	double draws;
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

/* Finds and counts options->function; `disassembler` may be NULL. annotation_free is due, also after an error. */
struct error *annotation_build(const struct report *report, struct disassembler *disassembler,
			       struct annotation *out);
void annotation_free(struct annotation *annotation);
struct error *annotation_put_text(const struct report *report, const struct tty_writer *writer);
/* NULL: no memory. */
struct json_t *annotation_json(const struct report *report);

/* Column `key` of a node's name, as it is shown; *len are its bytes. */
const char *report_column(const struct report *report, const char *name, size_t key, size_t *len);

/* For texts and JSON. */
const char *report_view_text(enum report_view view);

#endif
