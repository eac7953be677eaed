/* SPDX-License-Identifier: BSD-3-Clause */

/* The flat report as text. */

#include <inttypes.h>
#include <string.h>

#include "cmd/report.h"

/* A column of a key other than the last takes at most so many cells. */
#define COLUMN_MAX 40

/* Widths, with the blanks between them, from which on there is room for ... */
#define ROOM_FOR_SAMPLES   90
#define ROOM_FOR_INTERVALS 60

struct columns {
	size_t n;
	size_t cells[KEYS]; /* of each column */
	bool intervals, samples;
	size_t left; /* cells for the last column; 0: no limit */
};

/* "12.34 % 11.0-13.8": a share and its 95 % interval. */
static void put_share(const struct report *report, const struct profile_cell *cell, bool interval,
		      const struct paper *paper)
{
	struct share share = report_share(report, cell);
	char range[32];

	snprintf(range, sizeof(range), "%.1f-%.1f", 100 * share.low, 100 * share.high);
	paper_style(paper, style_of_share(share.value));
	fprintf(paper->out, "%7.2f %%", 100 * share.value);
	paper_style(paper, STYLE_PLAIN);
	if (interval)
		fprintf(paper->out, " %-11s", range);
}

static void measure(const struct report *report, size_t rows, struct columns *columns)
{
	const struct keys *keys = &report->options->keys;

	for (size_t k = 0; k < keys->n; k++)
		columns->cells[k] = strlen(key_text(keys->at[k]));
	for (size_t i = 0; i < rows; i++) {
		for (size_t k = 0; k < keys->n; k++) {
			size_t len;
			const char *text = keyed_column(report->flat->rows[i].name, k, &len);
			size_t cells = cells_of(text, len);

			if (cells > columns->cells[k])
				columns->cells[k] = cells;
		}
	}
}

static void plan(const struct report *report, size_t rows, size_t width, struct columns *columns)
{
	size_t used = 2;

	*columns = (struct columns){.n = report->options->keys.n};
	columns->intervals = !width || width >= ROOM_FOR_INTERVALS;
	columns->samples = !width || width >= ROOM_FOR_SAMPLES;
	measure(report, rows, columns);
	for (size_t k = 0; k + 1 < columns->n; k++) {
		if (width && columns->cells[k] > COLUMN_MAX)
			columns->cells[k] = COLUMN_MAX;
		used += columns->cells[k] + 2;
	}
	used += 2 * (columns->intervals ? 21 : 9) + (columns->samples ? 10 : 0);
	columns->left = width > used + 8 ? width - used : 0;
}

static void put_titles(const struct report *report, const struct columns *columns,
		       const struct paper *paper)
{
	const struct keys *keys = &report->options->keys;

	fputc('\n', paper->out);
	paper_style(paper, STYLE_HEAD);
	if (columns->intervals)
		fprintf(paper->out, "%9s %-11s%9s %-11s", "self", "95 %", "total", "95 %");
	else
		fprintf(paper->out, "%9s%9s", "self", "total");
	if (columns->samples)
		fprintf(paper->out, "%10s", "samples");
	for (size_t k = 0; k < keys->n; k++)
		fprintf(paper->out, "  %-*s", k + 1 < keys->n ? (int)columns->cells[k] : 0,
			key_text(keys->at[k]));
	paper_style(paper, STYLE_PLAIN);
	fputc('\n', paper->out);
}

static void put_row(const struct report *report, const struct flat_row *row,
		    const struct columns *columns, const struct paper *paper)
{
	put_share(report, &row->self, columns->intervals, paper);
	put_share(report, &row->total, columns->intervals, paper);
	if (columns->samples)
		fprintf(paper->out, "%10" PRIu64, row->self.samples);
	for (size_t k = 0; k < columns->n; k++) {
		const bool last = k + 1 == columns->n;
		size_t len, cells, used;
		const char *text = keyed_column(row->name, k, &len);

		cells = last ? columns->left : columns->cells[k];
		fputs("  ", paper->out);
		paper_style(paper, row->unresolved ? STYLE_DIM : STYLE_PLAIN);
		used = report->options->keys.at[k] == KEY_FUNCTION
			       ? paper_put(paper, text, len, cells)
			       : paper_put_end(paper, text, len, cells);
		paper_style(paper, STYLE_PLAIN);
		if (!last && used < cells)
			fprintf(paper->out, "%*s", (int)(cells - used), "");
	}
	fputc('\n', paper->out);
}

/* Rows that are shown: not too many, and each with the least share. */
static size_t count_rows(const struct report *report)
{
	const uint64_t wanted = report->options->rows;
	size_t n = 0;

	while (n < report->flat->n && (!wanted || n < wanted))
		n++;
	return n;
}

struct error *report_put_flat(const struct report *report, const struct paper *paper)
{
	size_t rows = count_rows(report), hidden = 0;
	struct columns columns;

	plan(report, rows, paper->width, &columns);
	put_titles(report, &columns, paper);
	for (size_t i = 0; i < rows; i++) {
		const struct flat_row *row = &report->flat->rows[i];

		if (report_share(report, &row->total).value < report->options->min_share)
			hidden++;
		else
			put_row(report, row, &columns, paper);
	}
	if (report->flat->n > rows)
		fprintf(paper->out, "  ... %zu more %ss (-n 0 shows all)\n", report->flat->n - rows,
			columns.n > 1 ? "row" : key_text(report->options->keys.at[0]));
	if (hidden)
		fprintf(paper->out, "  ... %zu with less than %g %% (--min)\n", hidden,
			100 * report->options->min_share);
	return NULL;
}
