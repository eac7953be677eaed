/* SPDX-License-Identifier: BSD-3-Clause */
#include "view/svg/flamegraph.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* Pixels; the script gets those that it needs from the attributes of <svg>. */
#define PAD	   10
#define ROW	   18
#define TITLE_BASE 28
#define HEAD	   36 /* the title */
#define SUBTITLE   20
#define WARNING	   28
#define LEGEND	   20 /* what colours stand for */
#define PATCH	   11
#define BAR	   32 /* the script's tool bar */
#define FOOT	   28
#define TEXT_PAD   4   /* between a frame's edge and its name */
#define CELL	   7.3 /* width of a character in a frame, a little more than 12 px fonts have */
#define GAP	   0.5 /* between neighbours, unless they are narrower than */
#define GAP_FROM   3.0
#define NARROW	   6.0	/* inlined ones have no border of their own: nothing else would be seen */
#define MIN_CELLS  3	/* shorter stumps of names say nothing */
#define NAME_CELLS 1000 /* of longer names */

#define LEGEND_CELLS 30
#define ROOT_COLOR   0xd0d0d4 /* where colours tell what it is not */

#define TITLE "Flame Graph"

static uint64_t value_in(const struct flamegraph_layout *layout, const struct profile_cell *cell)
{
	return layout->by_samples ? cell->samples : cell->weight_ns;
}

static uint64_t value_of(const struct flamegraph_layout *layout, uint32_t node)
{
	return value_in(layout, &layout->tree->nodes[node].total);
}

void flamegraph_layout_init(struct flamegraph_layout *layout, const struct tree *tree, double width,
			    double min_width)
{
	memset(layout, 0, sizeof(*layout));
	layout->tree = tree;
	layout->by_samples = tree->nodes[0].total.weight_ns == 0;
	layout->total = value_of(layout, 0);
	layout->unit = layout->total ? width / (double)layout->total : 0;
	layout->min_width = min_width;
}

static void take(struct flamegraph_layout *layout, uint32_t node, uint32_t level,
		 struct flamegraph_frame *frame)
{
	uint64_t offset = level ? layout->next[level] : 0, value = value_of(layout, node);
	const struct tree_rest rest = tree_rest(layout->tree, node);

	/* Totals that reached the largest number are less than the sum of their parts. */
	if (level && value > layout->end[level - 1] - offset)
		value = layout->end[level - 1] - offset;
	*frame = (struct flamegraph_frame){node, level, offset, value};
	layout->next[level] = layout->end[level] = offset + value;
	layout->next[level + 1] = offset;
	layout->node = node;
	layout->level = level;
	layout->drawn++;
	layout->left_out += value_in(layout, &rest.cell);
	layout->n_left_out += rest.n;
	if (layout->levels <= level)
		layout->levels = level + 1;
}

static bool is_drawn(struct flamegraph_layout *layout, uint32_t node, uint32_t level)
{
	uint64_t value = value_of(layout, node);

	if (!value)
		return false;
	if (level < FLAMEGRAPH_MAX_LEVELS && (double)value * layout->unit >= layout->min_width)
		return true;
	layout->too_deep |= level >= FLAMEGRAPH_MAX_LEVELS;
	layout->left_out += value;
	layout->n_left_out++;
	return false;
}

bool flamegraph_layout_next(struct flamegraph_layout *layout, struct flamegraph_frame *frame)
{
	const struct tree_node *nodes = layout->tree->nodes;
	uint32_t node, level = layout->level + 1;

	if (layout->ended)
		return false;
	if (!layout->drawn) {
		take(layout, 0, 0, frame);
		return true;
	}
	node = nodes[layout->node].first_child;
	for (;;) {
		for (; node; node = nodes[node].next_sibling) {
			if (is_drawn(layout, node, level)) {
				take(layout, node, level, frame);
				return true;
			}
		}
		if (layout->node == 0) {
			layout->ended = true;
			return false;
		}
		node = nodes[layout->node].next_sibling;
		layout->node = nodes[layout->node].parent;
		level = layout->level--;
	}
}

uint32_t flamegraph_node_color(const struct flamegraph_options *options,
			       const struct tree_node *node)
{
	const char *text;
	size_t len;

	switch (options->color_by) {
	case FLAMEGRAPH_BY_KIND:
		return flamegraph_kind_color(name_codes_kind_of(options->codes, node->name));
	case FLAMEGRAPH_BY_IMAGE:
		text = name_codes_image(options->codes,
					name_codes_image_of(options->codes, node->name));
		return text ? flamegraph_text_color(text, strlen(text)) : FLAMEGRAPH_GREY;
	case FLAMEGRAPH_BY_PACKAGE:
		if (node->unresolved)
			break;
		text = name_package(node->name, &len);
		return flamegraph_text_color(text, len);
	case FLAMEGRAPH_BY_FUNCTION:
		break;
	}
	return flamegraph_color(node->name, node->unresolved, options->cold);
}

static bool has_legend(const struct flamegraph_options *options)
{
	return options->color_by == FLAMEGRAPH_BY_KIND || options->color_by == FLAMEGRAPH_BY_IMAGE;
}

unsigned flamegraph_heading_height(const struct flamegraph_options *options)
{
	return HEAD + (options->subtitle ? SUBTITLE : 0) + (options->warning ? WARNING : 0) +
	       (has_legend(options) ? LEGEND : 0);
}

/* One colour and what it stands for, if there is room; returns where the next one begins. */
static unsigned put_patch(FILE *out, unsigned x, unsigned y, unsigned end, const char *text,
			  uint32_t color)
{
	const size_t cells = strlen(text) < LEGEND_CELLS ? strlen(text) : LEGEND_CELLS;
	const unsigned next = x + PATCH + 4 + (unsigned)((double)cells * CELL) + PAD;

	if (next > end)
		return end;
	fprintf(out,
		"<rect x=\"%u\" y=\"%u\" width=\"%d\" height=\"%d\" fill=\"#%06x\"/>"
		"<text class=\"subtitle\" x=\"%u\" y=\"%u\">",
		x, y + 4, PATCH, PATCH, color, x + PATCH + 4, y + 14);
	flamegraph_put_text(out, text, LEGEND_CELLS);
	fputs("</text>\n", out);
	return next;
}

static void put_legend(FILE *out, const struct flamegraph_options *options, unsigned y)
{
	const unsigned end = flamegraph_width(options) - PAD;
	unsigned x = PAD;

	fputs("<g class=\"legend\">\n", out);
	if (options->color_by == FLAMEGRAPH_BY_KIND) {
		for (int kind = 0; kind < NAME_KINDS; kind++)
			if (name_codes_may_have(options->codes, kind))
				x = put_patch(out, x, y, end, name_kind_text(kind),
					      flamegraph_kind_color(kind));
	} else {
		const char *image;

		for (uint32_t i = 1; (image = name_codes_image(options->codes, i)) && x < end; i++)
			x = put_patch(out, x, y, end, image,
				      flamegraph_text_color(image, strlen(image)));
		put_patch(out, x, y, end, "image not known", FLAMEGRAPH_GREY);
	}
	fputs("</g>\n", out);
}

/* A line of text that is cut where the picture ends; all of it is in the hover text. */
static void put_line(FILE *out, const char *class, unsigned y, size_t cells, const char *text)
{
	fprintf(out, "<text class=\"%s\" x=\"%d\" y=\"%u\"><title>", class, PAD, y);
	flamegraph_put_text(out, text, NAME_CELLS);
	fputs("</title>", out);
	flamegraph_put_text(out, text, cells);
	fputs("</text>\n", out);
}

void flamegraph_put_svg(FILE *out, const char *class, unsigned width, unsigned height)
{
	fprintf(out,
		"<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n"
		"<svg xmlns=\"http://www.w3.org/2000/svg\" class=\"%s\" width=\"%u\" "
		"height=\"%u\" viewBox=\"0 0 %u %u\" role=\"graphics-document\"\n",
		class, width, height, width, height);
}

void flamegraph_put_title(FILE *out, const char *title)
{
	fputs(">\n<title>", out);
	flamegraph_put_text(out, title, NAME_CELLS);
	fputs("</title>\n<desc>", out);
}

void flamegraph_put_heading(FILE *out, const struct flamegraph_options *options, const char *title)
{
	const unsigned room = flamegraph_width(options) - 2 * PAD;
	unsigned y = HEAD;

	put_line(out, "title", TITLE_BASE, room / 11, options->title ?: title);
	if (options->subtitle) {
		put_line(out, "subtitle", y + 12, room / 8, options->subtitle);
		y += SUBTITLE;
	}
	if (has_legend(options)) {
		put_legend(out, options, y);
		y += LEGEND;
	}
	if (!options->warning)
		return;
	fprintf(out,
		"<g class=\"warning\" data-y=\"%u\">\n"
		"<rect y=\"%u\" width=\"100%%\" height=\"%d\" fill=\"#ffe08a\"/>\n",
		y, y, WARNING);
	put_line(out, "line", y + 19, room / 8, options->warning);
	fputs("</g>\n", out);
}

struct flamegraph {
	FILE *out;
	const struct tree *tree;
	const struct flamegraph_options *options;
	struct flamegraph_layout *layout;
	struct short_names *names; /* of what is drawn; NULL: full ones are wanted */
	unsigned width;
	unsigned bar_y, frames_y, foot_y, height;
	unsigned levels;
	uint64_t left_out;
};

static double share(const struct flamegraph *picture, uint64_t value)
{
	return picture->layout->total ? (double)value / (double)picture->layout->total : 0;
}

unsigned flamegraph_width(const struct flamegraph_options *options)
{
	const unsigned width = options->width ? options->width : 1200;

	return width < 20 * PAD ? 20 * PAD : width;
}

static double min_width_of(const struct flamegraph_options *options)
{
	return options->min_width < 0 ? 0.1 : options->min_width;
}

double flamegraph_min_share(const struct flamegraph_options *options)
{
	return min_width_of(options) / (flamegraph_width(options) - 2.0 * PAD);
}

/* Counts rows and left-out branches, and collects names, in a first walk. */
static struct error *measure(struct flamegraph *picture)
{
	const struct flamegraph_options *options = picture->options;
	struct flamegraph_frame frame;

	if (!options->full_names)
		TRY(short_names_new(&picture->names));
	picture->width = flamegraph_width(options);
	flamegraph_layout_init(picture->layout, picture->tree, picture->width - 2.0 * PAD,
			       min_width_of(options));
	while (flamegraph_layout_next(picture->layout, &frame)) {
		const char *name = picture->tree->nodes[frame.node].name;

		TRY(short_names_add(picture->names, name, strlen(name)));
	}
	picture->levels = picture->layout->levels;
	picture->left_out = picture->layout->n_left_out;
	picture->bar_y = flamegraph_heading_height(options);
	picture->frames_y = picture->bar_y + BAR;
	picture->foot_y = picture->frames_y + picture->levels * ROW;
	picture->height = picture->foot_y + FOOT;
	return NULL;
}

/* Says what is left out of the picture; nothing if all is drawn. */
static void put_left_out(const struct flamegraph *picture)
{
	if (!picture->left_out)
		return;
	flamegraph_put_count(picture->out, picture->left_out);
	fputs(picture->left_out == 1 ? " branch" : " branches", picture->out);
	fputs(" too narrow to be seen", picture->out);
	if (picture->layout->too_deep)
		fprintf(picture->out, " or deeper than %d levels", FLAMEGRAPH_MAX_LEVELS);
	fputs(picture->left_out == 1 ? " is" : " are", picture->out);
	fputs(" left out, ", picture->out);
	flamegraph_put_fixed(picture->out, 100 * share(picture, picture->layout->left_out));
	fputs(" % of the width in all", picture->out);
}

static void put_summary(const struct flamegraph *picture)
{
	const struct profile_cell *total = &picture->tree->nodes[0].total;

	flamegraph_put_count(picture->out, total->samples);
	fputs(total->samples == 1 ? " sample" : " samples", picture->out);
	if (picture->options->changes)
		fputs(" in both; " FLAMEGRAPH_CHANGE_LEGEND, picture->out);
	else if (!picture->layout->by_samples) {
		fputs(", ", picture->out);
		flamegraph_put_fixed(picture->out, (double)total->weight_ns / 1e9);
		fputs(" s", picture->out);
	}
	if (picture->options->reverse)
		fprintf(picture->out, "; leaf first: callers stand %s what they call",
			picture->options->icicle ? "below" : "above");
}

static void put_number(const struct flamegraph *picture, const char *name, double value)
{
	fprintf(picture->out, " data-%s=\"", name);
	flamegraph_put_fixed(picture->out, value);
	fputc('"', picture->out);
}

static void put_head(const struct flamegraph *picture)
{
	FILE *out = picture->out;

	flamegraph_put_svg(out, "flamegraph", picture->width, picture->height);
	fprintf(out,
		" data-unit=\"%s\" data-order=\"%s\" data-fluid=\"%s\" data-left-out=\"%" PRIu64
		"\"\n",
		picture->options->changes     ? "change"
		: picture->layout->by_samples ? "samples"
					      : "ns",
		picture->options->icicle ? "icicle" : "flame",
		picture->options->width ? "no" : "yes", picture->left_out);
	put_number(picture, "bar", picture->bar_y);
	put_number(picture, "foot", picture->foot_y);
	put_number(picture, "pad", PAD);
	put_number(picture, "row", ROW);
	put_number(picture, "text-pad", TEXT_PAD);
	put_number(picture, "cell", CELL);
	put_number(picture, "min-cells", MIN_CELLS);
	put_number(picture, "gap", GAP);
	put_number(picture, "gap-from", GAP_FROM);
	put_number(picture, "narrow", NARROW);
	flamegraph_put_title(out, picture->options->title ?: TITLE);
	put_summary(picture);
	if (picture->left_out)
		fputs("; ", out);
	put_left_out(picture);
	fprintf(out, "</desc>\n<style><![CDATA[\n%s]]></style>\n", flamegraph_css);
	fputs("<rect class=\"ground\" width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n", out);
}

static void put_texts(const struct flamegraph *picture)
{
	FILE *out = picture->out;

	flamegraph_put_heading(out, picture->options, TITLE);
	fprintf(out, "<text class=\"still\" x=\"%d\" y=\"%u\">", PAD, picture->bar_y + 20);
	put_summary(picture);
	fprintf(out, "</text>\n<text class=\"still\" x=\"%d\" y=\"%u\">", PAD,
		picture->foot_y + 18);
	put_left_out(picture);
	fputs("</text>\n", out);
}

/* Puts both names of a function as data; returns the short one. */
static const char *put_names(const struct flamegraph *picture, const char *full)
{
	size_t len = strlen(full);
	const char *name = short_names_get(picture->names, full, &len);

	fputs("<g data-name=\"", picture->out);
	flamegraph_put_text(picture->out, full, NAME_CELLS);
	if (strcmp(name, full)) {
		fputs("\" data-short=\"", picture->out);
		flamegraph_put_text(picture->out, name, NAME_CELLS);
	}
	return name;
}

static void put_frame(const struct flamegraph *picture, const struct flamegraph_frame *frame)
{
	const struct tree_node *node = &picture->tree->nodes[frame->node];
	const struct flamegraph_layout *layout = picture->layout;
	const struct tree_change *change =
		picture->options->changes ? &picture->options->changes[frame->node] : NULL;
	double width = frame->level ? (double)frame->value * layout->unit
				    : (double)picture->width - 2 * PAD;
	double x = PAD + (double)frame->offset * layout->unit;
	unsigned row = picture->options->icicle ? frame->level : picture->levels - 1 - frame->level;
	unsigned y = picture->frames_y + row * ROW, cells;
	FILE *out = picture->out;
	const char *name = put_names(picture, node->name);

	fprintf(out, "\" data-samples=\"%" PRIu64 "\"", node->total.samples);
	if (!layout->by_samples || change)
		fprintf(out, " data-weight=\"%" PRIu64 "\"", frame->value);
	if (change)
		flamegraph_put_change_data(out, change);
	if (node->inlined)
		fputs(width < NARROW ? " class=\"inlined narrow\"" : " class=\"inlined\"", out);
	fputs("><title>", out);
	flamegraph_put_text(out, node->name, NAME_CELLS);
	fputs(" (", out);
	if (change) {
		flamegraph_put_change(out, change);
	} else {
		flamegraph_put_count(out, node->total.samples);
		fputs(node->total.samples == 1 ? " sample, " : " samples, ", out);
		flamegraph_put_fixed(out, 100 * share(picture, frame->value));
		fputs(" %", out);
	}
	fprintf(out, "%s)</title><rect x=\"", node->inlined ? ", inlined" : "");
	flamegraph_put_fixed(out, x);
	fprintf(out, "\" y=\"%u\" width=\"", y);
	flamegraph_put_fixed(out, width >= GAP_FROM ? width - GAP : width);
	fprintf(out, "\" height=\"%d\" fill=\"#%06x\"/>", ROW - 1,
		change ? flamegraph_change_color(change)
		: frame->level || !picture->options->color_by
			? flamegraph_node_color(picture->options, node)
			: ROOT_COLOR);
	cells = width > 2 * TEXT_PAD ? (unsigned)((width - 2 * TEXT_PAD) / CELL) : 0;
	if (cells >= MIN_CELLS) {
		fputs("<text x=\"", out);
		flamegraph_put_fixed(out, x + TEXT_PAD);
		fprintf(out, "\" y=\"%u\">", y + 13);
		flamegraph_put_text(out, name, cells);
		fputs("</text>", out);
	}
	fputs("</g>\n", out);
}

static void put_frames(const struct flamegraph *picture)
{
	struct flamegraph_layout *layout = picture->layout;
	struct flamegraph_frame frame;

	flamegraph_layout_init(layout, picture->tree, picture->width - 2.0 * PAD,
			       layout->min_width);
	fputs("<g class=\"frames\">\n", picture->out);
	while (flamegraph_layout_next(layout, &frame))
		put_frame(picture, &frame);
	fputs("</g>\n", picture->out);
}

struct error *flamegraph_write(const struct tree *tree, const struct flamegraph_options *options,
			       FILE *out)
{
	struct flamegraph picture = {.out = out, .tree = tree, .options = options};
	struct error *err;

	picture.layout = malloc(sizeof(*picture.layout));
	if (!picture.layout)
		return error_no_memory();
	err = measure(&picture);
	if (!err) {
		put_head(&picture);
		put_texts(&picture);
		put_frames(&picture);
		fprintf(out, "<script><![CDATA[\n%s]]></script>\n</svg>\n", flamegraph_js);
	}
	short_names_free(picture.names);
	free(picture.layout);
	return err;
}
