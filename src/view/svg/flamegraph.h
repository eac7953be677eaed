/* SPDX-License-Identifier: BSD-3-Clause */
#pragma once

/*
 * Pictures as one self-contained SVG, without a network: the flame graph (search by
 * regular expression, zoom, reset, hover text, keyboard), and two of time, with
 * hover texts alone: stack chart and heat map. See docs/flamegraph.md.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "analysis/diff.h"
#include "analysis/name_code.h"
#include "profile/time_buckets.h"
#include "symbol/names/display_name.h"

enum flamegraph_color_by {
	FLAMEGRAPH_BY_FUNCTION,
	FLAMEGRAPH_BY_PACKAGE,
	FLAMEGRAPH_BY_IMAGE,
	FLAMEGRAPH_BY_KIND
};

struct flamegraph_options {
	const char *title;    /* NULL: "Flame Graph", or what it is */
	const char *subtitle; /* NULL: none */
	const char *warning;  /* a line at the top that cannot be overlooked; NULL: none */
	unsigned width;	      /* pixels; 0: 1200 */
	double min_width;     /* frames narrower than this many pixels are left out; < 0: 0.1 */
	bool icicle;	      /* root at the top, growing down */
	bool cold;	      /* time that was waited: blue */
	bool reverse;	      /* the tree was built leaf first: says so in texts */
	/* [nodes]: the tree is that of a tree_pair, and this is how it differs; NULL: of one profile */
	const struct tree_change *changes;
	enum flamegraph_color_by color_by;
	const struct name_codes *codes; /* of images and kinds */
	bool full_names;		/* in boxes, too, and not only in their hover texts */
};

/* Widths are shares of weight_ns; texts give samples and percent. Every name is escaped. */
struct error *flamegraph_write(const struct tree *tree, const struct flamegraph_options *options,
			       FILE *out);

/* Frames with a smaller share of all are not drawn. */
double flamegraph_min_share(const struct flamegraph_options *options);

/*
 * Stacks in order of time: x is time, y is depth, a lane for each vCPU, or for each of
 * the outermost nodes. A column shows what took most of its time, and no less than
 * a pixel; what is the same in neighbours is one box. Nothing is drawn where there are
 * no samples for some of their mean distances.
 */
struct flamegraph_chart {
	const struct tree *tree;	    /* sums do not count */
	const struct time_buckets *buckets; /* by its nodes, of all states: others are gaps */
	unsigned states;		    /* bit n: those of state n are drawn */
	bool outer;			    /* lanes are the root's children */
	uint64_t from_ns, to_ns;	    /* the stretch */
	uint64_t tick_ns;		    /* mean distance of samples */
};

/* What is above this level is not drawn. */
#define FLAMEGRAPH_CHART_LEVELS 256

/* The number of columns that a picture of this width has room for. */
uint32_t flamegraph_chart_columns(const struct flamegraph_options *options);

/* Of the options, title, subtitle, warning, width, colours and full_names count. */
struct error *flamegraph_chart_write(const struct flamegraph_chart *chart,
				     const struct flamegraph_options *options, FILE *out);

/*
 * Heat map of time: seconds across, the offset in a second down. `heat` has no more
 * columns than there is room for. Of the options, title, subtitle, warning and width count.
 */
#define HEAT_MAP_ROWS 50 /* of a second: 20 ms each */
uint32_t heat_map_columns(const struct flamegraph_options *options);
void heat_map_write(const struct heat *heat, const struct flamegraph_options *options, FILE *out);

/* Of a box that is no change. */
uint32_t flamegraph_node_color(const struct flamegraph_options *options,
			       const struct tree_node *node);

/* The element of a picture, open for more attributes; then its title, and the begin of its description. */
void flamegraph_put_svg(FILE *out, const char *class, unsigned width, unsigned height);
void flamegraph_put_title(FILE *out, const char *title);

/* What pictures begin with, and what colours stand for; `title` unless the options have one. The width is never 0. */
unsigned flamegraph_width(const struct flamegraph_options *options);
unsigned flamegraph_heading_height(const struct flamegraph_options *options);
void flamegraph_put_heading(FILE *out, const struct flamegraph_options *options, const char *title);

/* The files flamegraph.css and flamegraph.js, word for word; the build makes C of them (embed.py). */
extern const char flamegraph_css[];
extern const char flamegraph_js[];

/*
 * Selects the frames of a tree that are drawn, and places them: a walk that
 * gives each parent before its children, without recursion.
 *
 * Offsets and values are in units of the tree: nanoseconds of weight, or
 * samples when no sample has a weight. Children stand side by side from their
 * parent's left edge, those that are drawn first; so an offset is the parent's
 * plus the values of the siblings that were drawn before, and readers of the
 * picture can compute it again.
 */

/* A guest can have stacks as deep as its memory; nobody looks at more than this. */
#define FLAMEGRAPH_MAX_LEVELS 4096

struct flamegraph_frame {
	uint32_t node;
	uint32_t level; /* 0: the root */
	uint64_t offset;
	uint64_t value;
};

struct flamegraph_layout {
	/* Set by flamegraph_layout_init: */
	const struct tree *tree;
	bool by_samples;
	uint64_t total;	  /* value of the root */
	double unit;	  /* pixels for a unit, before any zoom */
	double min_width; /* pixels */

	/* Whole once flamegraph_layout_next returned false: */
	uint32_t drawn;	     /* frames */
	uint32_t levels;     /* that have a frame */
	uint64_t left_out;   /* value of the subtrees that were left out */
	uint64_t n_left_out; /* ... and their number */
	bool too_deep;	     /* some of them because of their level */

	/* Private: the last frame, and where the next one of each level begins and must end. */
	bool ended;
	uint32_t node, level;
	uint64_t next[FLAMEGRAPH_MAX_LEVELS + 1];
	uint64_t end[FLAMEGRAPH_MAX_LEVELS + 1];
};

/* `tree` is summed; `width` is the root's in pixels. */
void flamegraph_layout_init(struct flamegraph_layout *layout, const struct tree *tree, double width,
			    double min_width);

/* Gives the next frame, the root first; false behind the last. */
bool flamegraph_layout_next(struct flamegraph_layout *layout, struct flamegraph_frame *frame);

/*
 * Text and numbers in XML. Names come from guests and files and may hold any
 * byte: characters that XML cannot hold, that cannot be seen or that would turn
 * the direction of writing are shown as \x1b, \u202e or \U000e0001 (bytes that
 * are no UTF-8 as \xff); the others are escaped, for content and between double
 * quotes alike.
 *
 * Lengths are in cells of a fixed-width font: one for Latin, Greek, Cyrillic
 * and their neighbours, two for everything from U+1100 on, which is never too
 * few.
 */

/* Writes `text` in at most `cells` cells; when that is not all of it, the last one is "…". */
void flamegraph_put_text(FILE *out, const char *text, size_t cells);

/* Writes a number with two decimals, whatever the locale; 0 for negative numbers and NaN. */
void flamegraph_put_fixed(FILE *out, double value);

/* Writes nanoseconds as seconds, "1.500 s", with 3 or 6 decimals, whatever the locale. */
void flamegraph_put_seconds(FILE *out, uint64_t ns, int decimals);

/* Writes 1234567 as 1,234,567. */
void flamegraph_put_count(FILE *out, uint64_t value);

/*
 * The colour of a function depends on its name alone, so that it is the same
 * in every picture: warm ones, or blue ones for time that was waited, all light
 * enough for black text (contrast of 6 to 1 and more); grey for addresses that have no name.
 */

/* 0xrrggbb */
uint32_t flamegraph_color(const char *name, bool unresolved, bool cold);

/* One hue for each text, a package or an image; light enough for black text, as those of kinds are. */
uint32_t flamegraph_text_color(const char *text, size_t len);
uint32_t flamegraph_kind_color(enum name_kind kind);

/* Of what has no name, or no image. */
#define FLAMEGRAPH_GREY 0xbebec2

/*
 * Colour and text of a box in a picture of differences. Red: more of the time
 * than before, blue: less, the stronger the larger the change is beside the box
 * itself. Changes that chance may have made are grey, however large.
 */

#define FLAMEGRAPH_CHANGE_LEGEND                                                        \
	"red: more of the time than before, blue: less, grey: no more than chance may " \
	"do; widths: half of each"

/* 0xrrggbb, light enough for black text. */
uint32_t flamegraph_change_color(const struct tree_change *change);

/* "12.00 % before, 15.00 % after: +3.00, may be chance" */
void flamegraph_put_change(FILE *out, const struct tree_change *change);

/* Attributes of the box: shares in percent, and whether the change is significant. */
void flamegraph_put_change_data(FILE *out, const struct tree_change *change);
