/* SPDX-License-Identifier: BSD-3-Clause */
#include "view/svg/flamegraph.h"

#include <inttypes.h>

/* Pixels. */
#define PAD	    10
#define AXIS	    58 /* the rows' offsets, left of the cells */
#define CELL_HEIGHT 10
#define CELL_LEAST  3 /* width */
#define CELL_MOST   40
#define SECONDS	    24 /* the line of seconds below the cells */
#define LEGEND	    30
#define PATCH	    18
#define LABEL	    64 /* between the seconds that are written */

#define TITLE  "Heat Map"
#define SHADES 9

static const char style[] =
	".heatmap { background: #fff; font: 13px system-ui, \"Segoe UI\", \"DejaVu Sans\", "
	"sans-serif; }\n"
	".heatmap text { fill: #222; }\n"
	".heatmap text.title { font-size: 19px; font-weight: 600; }\n"
	".heatmap text.subtitle, .heatmap .axis text { fill: #666; }\n"
	".heatmap .axis text { font-size: 11px; }\n"
	".heatmap .warning rect { fill: #ffe08a; }\n"
	".heatmap .warning text { fill: #4a3500; font-weight: 600; }\n"
	".ground { fill: #fff; }\n"
	".empty { fill: #f1f1f3; }\n"
	".cells rect:hover { stroke: #111; stroke-width: 1.5px; }\n"
	".s1 { fill: #fff0c2; } .s2 { fill: #fdd79f; } .s3 { fill: #fabd7d; }\n"
	".s4 { fill: #f8a45c; } .s5 { fill: #f58a3c; } .s6 { fill: #df6a38; }\n"
	".s7 { fill: #ca4b33; } .s8 { fill: #b42b2f; } .s9 { fill: #9e0b2a; }\n"
	"@media (prefers-color-scheme: dark) {\n"
	"	.heatmap { background: #1b1c1f; }\n"
	"	.ground { fill: #1b1c1f; }\n"
	"	.empty { fill: #2a2b2f; }\n"
	"	.heatmap text { fill: #e6e6e6; }\n"
	"	.heatmap text.subtitle, .heatmap .axis text { fill: #a5a7ad; }\n"
	"	.heatmap .warning rect { fill: #6b4e00; }\n"
	"	.heatmap .warning text { fill: #ffe9b0; }\n"
	"	.cells rect:hover { stroke: #fff; }\n"
	"	.s1 { fill: #46251d; } .s2 { fill: #6b311d; } .s3 { fill: #903c1e; }\n"
	"	.s4 { fill: #b4481e; } .s5 { fill: #d9531e; } .s6 { fill: #e37739; }\n"
	"	.s7 { fill: #ec9b54; } .s8 { fill: #f6bf6f; } .s9 { fill: #ffe38a; }\n"
	"}\n";

struct picture {
	FILE *out;
	const struct heat *heat;
	const struct flamegraph_options *options;
	struct profile_cell total;
	const struct profile_cell *hottest;
	unsigned width, cell_width, cells_y, foot_y, height;
};

uint32_t heat_map_columns(const struct flamegraph_options *options)
{
	return (flamegraph_width(options) - 2 * PAD - AXIS) / CELL_LEAST;
}

static void measure(struct picture *picture)
{
	const struct heat *heat = picture->heat;

	picture->hottest = heat_hottest(heat);
	for (size_t i = 0; i < (size_t)heat->columns * heat->rows; i++)
		profile_cell_add(&picture->total, &heat->cells[i]);
	picture->width = flamegraph_width(picture->options);
	picture->cell_width = (picture->width - 2 * PAD - AXIS) / heat->columns;
	if (picture->cell_width > CELL_MOST)
		picture->cell_width = CELL_MOST;
	if (picture->cell_width < 1)
		picture->cell_width = 1;
	picture->cells_y = flamegraph_heading_height(picture->options) + PAD;
	picture->foot_y = picture->cells_y + heat->rows * CELL_HEIGHT + SECONDS;
	picture->height = picture->foot_y + LEGEND;
}

/* "3 samples, 0.003 s", without the seconds where samples have no weight */
static void put_cell(const struct picture *picture, const struct profile_cell *cell)
{
	flamegraph_put_count(picture->out, cell->samples);
	fputs(cell->samples == 1 ? " sample" : " samples", picture->out);
	if (picture->total.weight_ns) {
		fputs(", ", picture->out);
		flamegraph_put_seconds(picture->out, cell->weight_ns, 3);
	}
}

static void put_summary(const struct picture *picture)
{
	const struct heat *heat = picture->heat;
	FILE *out = picture->out;

	put_cell(picture, &picture->total);
	if (!picture->total.samples)
		return;
	fprintf(out, "; a cell is %" PRIu32 " ms of %" PRIu64 " second%s, with at most ",
		1000 / heat->rows, heat->column_s, heat->column_s == 1 ? "" : "s");
	put_cell(picture, picture->hottest);
}

static void put_head(const struct picture *picture)
{
	FILE *out = picture->out;

	flamegraph_put_svg(out, "heatmap", picture->width, picture->height);
	fprintf(out,
		" data-first=\"%" PRIu64 "\" data-seconds=\"%" PRIu64 "\" data-columns=\"%" PRIu32
		"\" data-rows=\"%" PRIu32 "\"",
		picture->heat->first_s, picture->heat->column_s, picture->heat->columns,
		picture->heat->rows);
	flamegraph_put_title(out, picture->options->title ?: TITLE);
	fputs("Seconds across, the offset in a second down: ", out);
	put_summary(picture);
	fprintf(out,
		"</desc>\n<style><![CDATA[\n%s]]></style>\n"
		"<rect class=\"ground\" width=\"100%%\" height=\"100%%\"/>\n",
		style);
}

/* Nothing is blank, and only that. */
static unsigned shade(const struct picture *picture, const struct profile_cell *cell)
{
	const struct profile_cell *hottest = picture->hottest;
	const double share = hottest->weight_ns
				     ? (double)cell->weight_ns / (double)hottest->weight_ns
				     : (double)cell->samples / (double)hottest->samples;
	const unsigned at = 1 + (unsigned)(share * (SHADES - 1) + 0.5);

	return at < SHADES ? at : SHADES;
}

static void put_rect(const struct picture *picture, uint32_t column, uint32_t row)
{
	const struct heat *heat = picture->heat;
	const struct profile_cell *cell = &heat->cells[(size_t)column * heat->rows + row];
	const uint64_t length = 1000000000 / heat->rows;
	const uint64_t begin =
		(heat->first_s + column * heat->column_s) * 1000000000 + row * length;
	FILE *out = picture->out;

	if (!cell->samples)
		return;
	fprintf(out,
		"<rect class=\"s%u\" x=\"%u\" y=\"%u\" width=\"%u\" height=\"%d\" "
		"data-samples=\"%" PRIu64 "\"",
		shade(picture, cell), PAD + AXIS + column * picture->cell_width,
		picture->cells_y + row * CELL_HEIGHT, picture->cell_width, CELL_HEIGHT,
		cell->samples);
	if (picture->total.weight_ns)
		fprintf(out, " data-weight=\"%" PRIu64 "\"", cell->weight_ns);
	fputs("><title>", out);
	flamegraph_put_seconds(out, begin, 3);
	fputs(" to ", out);
	flamegraph_put_seconds(out, begin + length, 3);
	if (heat->column_s > 1)
		fprintf(out, " and in the %" PRIu64 " seconds behind", heat->column_s - 1);
	fputs(": ", out);
	put_cell(picture, cell);
	fputs("</title></rect>\n", out);
}

static void put_cells(const struct picture *picture)
{
	const struct heat *heat = picture->heat;

	fprintf(picture->out,
		"<g class=\"cells\">\n"
		"<rect class=\"empty\" x=\"%d\" y=\"%u\" width=\"%u\" height=\"%u\"/>\n",
		PAD + AXIS, picture->cells_y, heat->columns * picture->cell_width,
		heat->rows * CELL_HEIGHT);
	for (uint32_t column = 0; column < heat->columns; column++)
		for (uint32_t row = 0; row < heat->rows; row++)
			put_rect(picture, column, row);
	fputs("</g>\n", picture->out);
}

static void put_axes(const struct picture *picture)
{
	const struct heat *heat = picture->heat;
	const uint32_t rows = heat->rows < 10 ? 1 : heat->rows / 10;
	const uint32_t columns = (LABEL - 1) / picture->cell_width + 1;
	FILE *out = picture->out;

	fputs("<g class=\"axis\">\n", out);
	for (uint32_t row = 0; row < heat->rows; row += rows)
		fprintf(out, "<text x=\"%d\" y=\"%u\" text-anchor=\"end\">%" PRIu32 " ms</text>\n",
			PAD + AXIS - 6, picture->cells_y + row * CELL_HEIGHT + CELL_HEIGHT,
			row * 1000 / heat->rows);
	for (uint32_t column = 0; column < heat->columns; column += columns)
		fprintf(out, "<text x=\"%u\" y=\"%u\">%" PRIu64 " s</text>\n",
			PAD + AXIS + column * picture->cell_width, picture->foot_y - 8,
			heat->first_s + column * heat->column_s);
	fputs("</g>\n", out);
}

static void put_legend(const struct picture *picture)
{
	FILE *out = picture->out;

	fputs("<g class=\"legend\">\n", out);
	for (unsigned i = 0; i < SHADES; i++)
		fprintf(out, "<rect class=\"s%u\" x=\"%u\" y=\"%u\" width=\"%d\" height=\"12\"/>\n",
			i + 1, PAD + i * PATCH, picture->foot_y + 4, PATCH);
	fprintf(out, "<text x=\"%d\" y=\"%u\">", PAD + SHADES * PATCH + 8, picture->foot_y + 15);
	put_summary(picture);
	fputs("</text>\n</g>\n", out);
}

void heat_map_write(const struct heat *heat, const struct flamegraph_options *options, FILE *out)
{
	struct picture picture = {.out = out, .heat = heat, .options = options};

	measure(&picture);
	put_head(&picture);
	flamegraph_put_heading(out, options, TITLE);
	put_cells(&picture);
	put_axes(&picture);
	put_legend(&picture);
	fputs("</svg>\n", out);
}
