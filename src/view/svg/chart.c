/* SPDX-License-Identifier: BSD-3-Clause */
#include "view/svg/flamegraph.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/owned.h"

/* Pixels. */
#define PAD	   10
#define ROW	   16
#define LABEL	   20 /* a lane's name */
#define LANE_GAP   10
#define AXIS	   20
#define FOOT	   28
#define TEXT_PAD   4
#define CELL	   7.3 /* width of a character in a box */
#define GAP	   0.5 /* between neighbours, unless they are narrower than */
#define GAP_FROM   3.0
#define NARROW	   6.0 /* inlined ones have no border of their own */
#define MIN_CELLS  3
#define NAME_CELLS 1000
#define AXIS_LABEL 90 /* between the times that are written */

#define MAX_LANES  64 /* the heaviest */
#define MAX_LEVELS FLAMEGRAPH_CHART_LEVELS
#define MAX_BOXES  (1u << 17) /* of more, columns become wider */

#define TITLE	  "Stack Chart"
#define NO_SAMPLE UINT32_MAX

/* A sample stands until the next one, but no longer than so many times the mean distance. */
#define REACH 3

struct lane {
	uint32_t key; /* vCPU, or the outermost node */
	uint64_t weight;
	unsigned y, levels;
};

struct box {
	uint32_t lane, level, node;
	uint32_t from, to; /* columns */
};

struct chart {
	const struct flamegraph_chart *in;
	const struct flamegraph_options *options;
	FILE *out;
	uint32_t *top;	 /* [nodes]: the outermost function or thread */
	uint16_t *level; /* [nodes]: 0: the root; stops at MAX_LEVELS */
	struct lane *lane;
	size_t n_lanes, lanes_room, lanes_left_out;
	uint32_t columns;
	uint32_t *pick; /* [lanes * columns]: the node that is drawn there */
	struct box *box;
	size_t n_boxes, boxes_room;
	bool too_deep;
	struct short_names *names; /* NULL: full ones are wanted */
	unsigned width, lanes_y, height;
};

uint32_t flamegraph_chart_columns(const struct flamegraph_options *options)
{
	return flamegraph_width(options) - 2 * PAD;
}

static uint64_t stretch_of(const struct flamegraph_chart *in)
{
	return in->to_ns > in->from_ns ? in->to_ns - in->from_ns : 1;
}

static uint64_t weight_of(const struct time_bucket_row *row)
{
	return row->weight_ns ? row->weight_ns : row->samples;
}

static uint32_t key_of(const struct chart *chart, const struct time_bucket_row *row)
{
	return chart->in->outer ? chart->top[row->node] : row->vcpu;
}

/* The lane's number; n_lanes if it is not drawn. */
static size_t lane_of(const struct chart *chart, const struct time_bucket_row *row)
{
	const uint32_t key = key_of(chart, row);
	size_t i = 0;

	while (i < chart->n_lanes && chart->lane[i].key != key)
		i++;
	return i;
}

static int by_weight(const void *a, const void *b)
{
	const struct lane *left = a, *right = b;

	return COMPARE(right->weight, left->weight);
}

static int by_key(const void *a, const void *b)
{
	const struct lane *left = a, *right = b;

	return COMPARE(left->key, right->key);
}

static struct error *find_lanes(struct chart *chart)
{
	const struct time_buckets *buckets = chart->in->buckets;
	ENDED_BY(ids_end) struct ids *ids = NULL;

	TRY(ids_new(&ids));
	for (size_t i = 0; i < buckets->n_rows; i++) {
		const struct time_bucket_row *row = &buckets->rows[i];
		uint32_t number = 0;
		bool added = false;

		if (!(chart->in->states >> row->state & 1) || (chart->in->outer && !row->node))
			continue;
		TRY(ids_get(ids, key_of(chart, row), 0, &number, &added));
		if (added) {
			TRY(ARRAY_RESERVE(&chart->lane, &chart->lanes_room, number + (size_t)1));
			chart->lane[chart->n_lanes++] = (struct lane){.key = key_of(chart, row)};
		}
		chart->lane[number].weight = weight_sum(chart->lane[number].weight, weight_of(row));
	}
	if (!chart->n_lanes)
		return NULL;
	qsort(chart->lane, chart->n_lanes, sizeof(*chart->lane), by_weight);
	if (chart->n_lanes > MAX_LANES) {
		chart->lanes_left_out = chart->n_lanes - MAX_LANES;
		chart->n_lanes = MAX_LANES;
	}
	if (!chart->in->outer)
		qsort(chart->lane, chart->n_lanes, sizeof(*chart->lane), by_key);
	return NULL;
}

static struct error *find_levels(struct chart *chart)
{
	const struct tree *tree = chart->in->tree;

	chart->top = calloc(tree->n, sizeof(*chart->top));
	chart->level = calloc(tree->n, sizeof(*chart->level));
	if (!chart->top || !chart->level)
		return error_no_memory();
	for (uint32_t i = 1; i < tree->n; i++) {
		const uint32_t parent = tree->nodes[i].parent;

		chart->top[i] = parent ? chart->top[parent] : i;
		chart->level[i] = chart->level[parent] < MAX_LEVELS
					  ? (uint16_t)(chart->level[parent] + 1)
					  : MAX_LEVELS;
	}
	return NULL;
}

/* The column of a bucket's beginning; columns if it is outside of the stretch. */
static uint32_t column_of(const struct chart *chart, uint32_t bucket)
{
	const struct time_buckets *buckets = chart->in->buckets;
	const uint64_t ns = buckets->first_ns + bucket * buckets->bucket_ns;
	const double at = ((double)ns - (double)chart->in->from_ns) * chart->columns /
			  (double)stretch_of(chart->in);

	return at >= 0 && at < chart->columns ? (uint32_t)at : chart->columns;
}

/* What the samples of one cell, a lane's column, say. All is 0 between two cells. */
struct tally {
	struct tally_node {
		uint64_t self, total;
		uint32_t best; /* the heaviest child */
	} * at;		       /* [nodes] */
	uint32_t *touched;
	uint32_t n;
};

static void tally_add(struct tally *tally, const struct tree *tree, uint32_t node, uint64_t weight)
{
	tally->at[node].self = weight_sum(tally->at[node].self, weight);
	for (uint32_t at = node; at; at = tree->nodes[at].parent) {
		if (!tally->at[at].total)
			tally->touched[tally->n++] = at;
		tally->at[at].total = weight_sum(tally->at[at].total, weight);
	}
}

/* From the root on to what took most of each function's time, until that is the function itself. */
static uint32_t tally_heaviest(struct tally *tally, const struct tree *tree)
{
	uint32_t at = 0;

	for (uint32_t i = 0; i < tally->n; i++) {
		const uint32_t node = tally->touched[i];
		uint32_t *best = &tally->at[tree->nodes[node].parent].best;
		const uint64_t most = *best ? tally->at[*best].total : 0;

		if (tally->at[node].total > most || (tally->at[node].total == most && node < *best))
			*best = node;
	}
	while (tally->at[at].best &&
	       (!at || tally->at[tally->at[at].best].total >= tally->at[at].self))
		at = tally->at[at].best;
	for (uint32_t i = 0; i < tally->n; i++)
		tally->at[tally->touched[i]] = (struct tally_node){0};
	tally->at[0] = (struct tally_node){0};
	tally->n = 0;
	return at;
}

/* Rows in order of their cells. */
struct cells {
	uint32_t *cell; /* [rows]: lane * columns + column; NO_SAMPLE: none */
	uint32_t *row;	/* [rows]: by cell */
	size_t *first;	/* [cells + 2]: 0 at first */
};

static void sort_rows(const struct chart *chart, const struct cells *cells)
{
	const struct time_buckets *buckets = chart->in->buckets;
	const size_t n = chart->n_lanes * chart->columns;

	for (size_t i = 0; i < buckets->n_rows; i++) {
		const uint32_t column = column_of(chart, buckets->rows[i].bucket);
		const size_t lane = lane_of(chart, &buckets->rows[i]);

		cells->cell[i] = NO_SAMPLE;
		if (column >= chart->columns || lane >= chart->n_lanes)
			continue;
		cells->cell[i] = (uint32_t)(lane * chart->columns) + column;
		cells->first[cells->cell[i] + 2]++;
	}
	for (size_t i = 0; i < n; i++)
		cells->first[i + 2] += cells->first[i + 1];
	for (size_t i = 0; i < buckets->n_rows; i++)
		if (cells->cell[i] != NO_SAMPLE)
			cells->row[cells->first[cells->cell[i] + 1]++] = (uint32_t)i;
}

/* Samples of other states end what was drawn before, but where there are some that count these do. */
static uint32_t pick_cell(const struct chart *chart, const struct cells *cells, size_t cell,
			  struct tally *tally)
{
	const struct time_bucket_row *rows = chart->in->buckets->rows;

	if (cells->first[cell] == cells->first[cell + 1])
		return NO_SAMPLE;
	for (size_t i = cells->first[cell]; i < cells->first[cell + 1]; i++) {
		const struct time_bucket_row *row = &rows[cells->row[i]];

		if (chart->in->states >> row->state & 1)
			tally_add(tally, chart->in->tree, row->node, weight_of(row));
	}
	return tally_heaviest(tally, chart->in->tree);
}

/* Fills columns that are narrower than the distance of samples. */
static void extend(const struct chart *chart, uint32_t *pick)
{
	const double reach =
		REACH * (double)chart->in->tick_ns * chart->columns / (double)stretch_of(chart->in);
	uint32_t last = 0, since = UINT32_MAX;

	for (uint32_t i = 0; i < chart->columns; i++) {
		if (pick[i] != NO_SAMPLE) {
			last = pick[i];
			since = 0;
			continue;
		}
		pick[i] = since < reach ? last : 0;
		since += since < UINT32_MAX;
		if (pick[i] == 0)
			since = UINT32_MAX;
	}
}

static struct error *choose_picks(struct chart *chart)
{
	const uint32_t nodes = chart->in->tree->n;
	const size_t rows = chart->in->buckets->n_rows + 1;
	const size_t n = chart->n_lanes * chart->columns;
	FREED struct tally_node *at = calloc(nodes, sizeof(*at));
	FREED uint32_t *touched = malloc(nodes * sizeof(*touched));
	FREED uint32_t *cell = malloc(rows * sizeof(*cell));
	FREED uint32_t *row = malloc(rows * sizeof(*row));
	FREED size_t *first = calloc(n + 2, sizeof(*first));
	const struct cells cells = {cell, row, first};
	struct tally tally = {at, touched, 0};

	free(chart->pick);
	chart->pick = malloc((n + 1) * sizeof(*chart->pick));
	if (!at || !touched || !cell || !row || !first || !chart->pick)
		return error_no_memory();
	sort_rows(chart, &cells);
	for (size_t i = 0; i < n; i++)
		chart->pick[i] = pick_cell(chart, &cells, i, &tally);
	for (size_t i = 0; i < chart->n_lanes; i++)
		extend(chart, chart->pick + i * chart->columns);
	return NULL;
}

/* Boxes that are open at a column: from the lane's outermost function on. */
struct open {
	uint32_t node[MAX_LEVELS], from[MAX_LEVELS];
	uint32_t n;
};

static struct error *close_boxes(struct chart *chart, struct open *open, uint32_t keep,
				 uint32_t lane, uint32_t column)
{
	while (open->n > keep) {
		const uint32_t level = --open->n;

		TRY(ARRAY_RESERVE(&chart->box, &chart->boxes_room, chart->n_boxes + 1));
		chart->box[chart->n_boxes++] =
			(struct box){lane, level, open->node[level], open->from[level], column};
	}
	return NULL;
}

/* Writes the functions of `node`, the outermost first; returns their number. */
static uint32_t path_of(struct chart *chart, uint32_t node, uint32_t *path)
{
	const struct tree_node *nodes = chart->in->tree->nodes;
	const uint32_t outer = chart->in->outer ? 1 : 0;
	uint32_t n;

	while (node && chart->level[node] >= MAX_LEVELS) {
		chart->too_deep = true;
		node = nodes[node].parent;
	}
	n = chart->level[node] > outer ? chart->level[node] - outer : 0;
	for (uint32_t i = n; i > 0; node = nodes[node].parent)
		path[--i] = node;
	return n;
}

/* Equal functions side by side, called by the same, are one box. */
static struct error *add_lane(struct chart *chart, uint32_t lane)
{
	const uint32_t *pick = chart->pick + (size_t)lane * chart->columns;
	uint32_t path[MAX_LEVELS];
	struct open open = {.n = 0};

	chart->lane[lane].levels = 1;
	for (uint32_t column = 0; column < chart->columns; column++) {
		uint32_t n, same = 0;

		if (column && pick[column] == pick[column - 1])
			continue;
		n = path_of(chart, pick[column], path);
		while (same < n && same < open.n && open.node[same] == path[same])
			same++;
		TRY(close_boxes(chart, &open, same, lane, column));
		for (; open.n < n; open.n++) {
			open.node[open.n] = path[open.n];
			open.from[open.n] = column;
		}
		if (n > chart->lane[lane].levels)
			chart->lane[lane].levels = n;
	}
	return close_boxes(chart, &open, 0, lane, chart->columns);
}

static struct error *find_boxes(struct chart *chart)
{
	const struct time_buckets *buckets = chart->in->buckets;
	const uint64_t most = stretch_of(chart->in) / buckets->bucket_ns;

	chart->columns = flamegraph_chart_columns(chart->options);
	if (chart->columns > most)
		chart->columns = most ? (uint32_t)most : 1;
	for (;;) {
		chart->n_boxes = 0;
		TRY(choose_picks(chart));
		for (uint32_t i = 0; i < chart->n_lanes; i++)
			TRY(add_lane(chart, i));
		if (chart->n_boxes <= MAX_BOXES || chart->columns == 1)
			return NULL;
		chart->columns = (chart->columns + 1) / 2;
	}
}

static struct error *measure(struct chart *chart)
{
	const struct flamegraph_options *options = chart->options;
	const struct tree_node *nodes = chart->in->tree->nodes;
	unsigned y = flamegraph_heading_height(options) + AXIS;

	if (!options->full_names)
		TRY(short_names_new(&chart->names));
	for (size_t i = 0; i < chart->n_boxes; i++) {
		const char *name = nodes[chart->box[i].node].name;

		TRY(short_names_add(chart->names, name, strlen(name)));
	}
	chart->lanes_y = y;
	for (size_t i = 0; i < chart->n_lanes; i++) {
		chart->lane[i].y = y;
		y += LABEL + chart->lane[i].levels * ROW + LANE_GAP;
	}
	chart->height = y + AXIS + FOOT;
	return NULL;
}

static double ns_at(const struct chart *chart, double column)
{
	return (double)chart->in->from_ns + column / chart->columns * (double)stretch_of(chart->in);
}

static double x_of(const struct chart *chart, double column)
{
	return PAD + column * (chart->width - 2.0 * PAD) / chart->columns;
}

static void put_seconds(const struct chart *chart, double ns)
{
	const bool fine = stretch_of(chart->in) / chart->columns < 100000;

	flamegraph_put_seconds(chart->out, ns > 0 ? (uint64_t)ns : 0, fine ? 6 : 3);
}

static void put_summary(const struct chart *chart)
{
	FILE *out = chart->out;

	if (!chart->n_lanes)
		fputs("no samples; ", out);
	fputs("Stacks in order of time, the outermost function at the top; a column is ", out);
	put_seconds(chart, (double)stretch_of(chart->in) / chart->columns);
	fputs(", and shows what took most of it", out);
	if (chart->lanes_left_out) {
		fputs("; ", out);
		flamegraph_put_count(out, chart->lanes_left_out);
		fprintf(out, " more %s left out",
			chart->in->outer ? "threads or processes are" : "vCPUs are");
	}
	if (chart->too_deep)
		fprintf(out, "; stacks are cut above %d levels", MAX_LEVELS);
}

static void put_head(const struct chart *chart)
{
	FILE *out = chart->out;

	flamegraph_put_svg(out, "flamegraph", chart->width, chart->height);
	fprintf(out,
		" data-order=\"chart\" data-from=\"%" PRIu64 "\" data-to=\"%" PRIu64
		"\" data-columns=\"%" PRIu32 "\"",
		chart->in->from_ns, chart->in->to_ns, chart->columns);
	flamegraph_put_title(out, chart->options->title ?: TITLE);
	put_summary(chart);
	fprintf(out,
		"</desc>\n<style><![CDATA[\n%s]]></style>\n"
		"<rect class=\"ground\" width=\"100%%\" height=\"100%%\" fill=\"#fff\"/>\n",
		flamegraph_css);
}

/* Times, a whole number of 1, 2 or 5 times a power of ten apart. */
static void put_axis(const struct chart *chart, unsigned y)
{
	static const unsigned steps[] = {2, 5, 10};
	const double room = AXIS_LABEL / (chart->width - 2.0 * PAD) * (double)stretch_of(chart->in);
	const uint64_t from = chart->in->from_ns;
	uint64_t step = 1000, power = 1000;

	for (unsigned i = 0; (double)step < room && power < UINT64_MAX / 100; i++) {
		step = power * steps[i % 3];
		if (i % 3 == 2)
			power *= 10;
	}
	for (uint64_t at = (from + step - 1) / step * step; at < chart->in->to_ns; at += step) {
		const double x = PAD + (double)(at - from) * (chart->width - 2.0 * PAD) /
					       (double)stretch_of(chart->in);

		if (x + AXIS_LABEL / 2.0 > chart->width)
			break;
		fputs("<text class=\"subtitle\" x=\"", chart->out);
		flamegraph_put_fixed(chart->out, x);
		fprintf(chart->out, "\" y=\"%u\">", y);
		put_seconds(chart, (double)at);
		fputs("</text>\n", chart->out);
	}
}

static void put_label(const struct chart *chart, const struct lane *lane)
{
	fprintf(chart->out, "<text x=\"%d\" y=\"%u\">", PAD, lane->y + LABEL - 6);
	if (!chart->in->outer)
		fprintf(chart->out, "vCPU %" PRIu32, lane->key);
	else
		flamegraph_put_text(chart->out, chart->in->tree->nodes[lane->key].name,
				    (size_t)((chart->width - 2 * PAD) / CELL));
	fputs("</text>\n", chart->out);
}

static void put_box(const struct chart *chart, const struct box *box)
{
	const struct tree_node *node = &chart->in->tree->nodes[box->node];
	const double x = x_of(chart, box->from), width = x_of(chart, box->to) - x;
	const double from = ns_at(chart, box->from), to = ns_at(chart, box->to);
	const unsigned y = chart->lane[box->lane].y + LABEL + box->level * ROW;
	size_t len = strlen(node->name);
	const char *name = short_names_get(chart->names, node->name, &len);
	FILE *out = chart->out;

	fputs("<g data-name=\"", out);
	flamegraph_put_text(out, node->name, NAME_CELLS);
	fprintf(out,
		"\" data-lane=\"%" PRIu32 "\" data-level=\"%" PRIu32 "\" data-from=\"%.0f\" "
		"data-to=\"%.0f\"%s><title>",
		box->lane, box->level, from, to,
		node->inlined && width >= NARROW ? " class=\"inlined\"" : "");
	flamegraph_put_text(out, node->name, NAME_CELLS);
	fputs(" (", out);
	put_seconds(chart, from);
	fputs(" to ", out);
	put_seconds(chart, to);
	fputs(": ", out);
	put_seconds(chart, to - from);
	fprintf(out, "%s)</title><rect x=\"", node->inlined ? ", inlined" : "");
	flamegraph_put_fixed(out, x);
	fprintf(out, "\" y=\"%u\" width=\"", y);
	flamegraph_put_fixed(out, width >= GAP_FROM ? width - GAP : width);
	fprintf(out, "\" height=\"%d\" fill=\"#%06x\"/>", ROW - 1,
		flamegraph_node_color(chart->options, node));
	if ((width - 2 * TEXT_PAD) / CELL >= MIN_CELLS) {
		fputs("<text x=\"", out);
		flamegraph_put_fixed(out, x + TEXT_PAD);
		fprintf(out, "\" y=\"%u\">", y + 12);
		flamegraph_put_text(out, name, (size_t)((width - 2 * TEXT_PAD) / CELL));
		fputs("</text>", out);
	}
	fputs("</g>\n", out);
}

static void put_all(const struct chart *chart)
{
	put_head(chart);
	flamegraph_put_heading(chart->out, chart->options, TITLE);
	put_axis(chart, chart->lanes_y - 4);
	for (size_t i = 0; i < chart->n_lanes; i++)
		put_label(chart, &chart->lane[i]);
	fputs("<g class=\"frames\">\n", chart->out);
	for (size_t i = 0; i < chart->n_boxes; i++)
		put_box(chart, &chart->box[i]);
	fputs("</g>\n", chart->out);
	put_axis(chart, chart->height - FOOT - 4);
	fprintf(chart->out, "<text class=\"still\" x=\"%d\" y=\"%u\">", PAD, chart->height - 10);
	put_summary(chart);
	fputs("</text>\n</svg>\n", chart->out);
}

struct error *flamegraph_chart_write(const struct flamegraph_chart *in,
				     const struct flamegraph_options *options, FILE *out)
{
	struct chart chart = {.in = in,
			      .options = options,
			      .out = out,
			      .width = flamegraph_width(options)};
	struct error *err = find_levels(&chart);

	if (!err)
		err = find_lanes(&chart);
	if (!err)
		err = find_boxes(&chart);
	if (!err)
		err = measure(&chart);
	if (!err)
		put_all(&chart);
	short_names_free(chart.names);
	free(chart.top);
	free(chart.level);
	free(chart.lane);
	free(chart.pick);
	free(chart.box);
	return err;
}
