/* SPDX-License-Identifier: BSD-3-Clause */

/* A report as text: its functions as rows, its call trees, or a heat map. */

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/bytes.h"
#include "cmd/report.h"

/* Width of a column that is not the last, at most, in cells. */
#define COLUMN_MAX 40

/* Widths, with the blanks between them, from which on there is room for ... */
#define ROOM_FOR_SAMPLES   90
#define ROOM_FOR_INTERVALS 60

struct columns {
	size_t n;
	size_t cells[GROUP_KEYS]; /* of each column */
	bool intervals, samples;
	size_t left; /* cells for the last column; 0: no limit */
};

/* "12.34 % 11.0-13.8": a share and its 95 % interval. */
static void put_share(const struct report *report, const struct profile_cell *cell, bool interval,
		      const struct tty_writer *writer)
{
	struct share share = report_share(report, cell);
	char range[32];

	snprintf(range, sizeof(range), "%.1f-%.1f", 100 * share.low, 100 * share.high);
	tty_writer_style(writer, tty_style_of_share(share.value));
	fprintf(writer->out, "%7.2f %%", 100 * share.value);
	tty_writer_style(writer, STYLE_PLAIN);
	if (interval)
		fprintf(writer->out, " %-11s", range);
}

static bool has_intervals(const struct tty_writer *writer)
{
	return !writer->width || writer->width >= ROOM_FOR_INTERVALS;
}

static void measure(const struct report *report, size_t rows, struct columns *columns)
{
	const struct group_by *keys = &report->options->keys;

	for (size_t k = 0; k < keys->n; k++)
		columns->cells[k] = strlen(group_key_text(keys->at[k]));
	for (size_t i = 0; i < rows; i++) {
		for (size_t k = 0; k < keys->n; k++) {
			size_t len;
			const char *text =
				report_column(report, report->grouped.flat->rows[i].name, k, &len);
			size_t cells = cells_of(text, len);

			if (cells > columns->cells[k])
				columns->cells[k] = cells;
		}
	}
}

static void plan(const struct report *report, size_t rows, const struct tty_writer *writer,
		 struct columns *columns)
{
	const size_t width = writer->width;
	size_t used = 2;

	*columns = (struct columns){.n = report->options->keys.n};
	columns->intervals = has_intervals(writer);
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
		       const struct tty_writer *writer)
{
	const struct group_by *keys = &report->options->keys;

	fputc('\n', writer->out);
	tty_writer_style(writer, STYLE_HEAD);
	if (columns->intervals)
		fprintf(writer->out, "%9s %-11s%9s %-11s", "self", "95 %", "total", "95 %");
	else
		fprintf(writer->out, "%9s%9s", "self", "total");
	if (columns->samples)
		fprintf(writer->out, "%10s", "samples");
	for (size_t k = 0; k < keys->n; k++)
		fprintf(writer->out, "  %-*s", k + 1 < keys->n ? (int)columns->cells[k] : 0,
			group_key_text(keys->at[k]));
	tty_writer_style(writer, STYLE_PLAIN);
	fputc('\n', writer->out);
}

static void put_row(const struct report *report, const struct flat_row *row,
		    const struct columns *columns, const struct tty_writer *writer)
{
	put_share(report, &row->self, columns->intervals, writer);
	put_share(report, &row->total, columns->intervals, writer);
	if (columns->samples)
		fprintf(writer->out, "%10" PRIu64, row->self.samples);
	for (size_t k = 0; k < columns->n; k++) {
		const bool last = k + 1 == columns->n;
		size_t len, cells, used;
		const char *text = report_column(report, row->name, k, &len);

		cells = last ? columns->left : columns->cells[k];
		fputs("  ", writer->out);
		tty_writer_style(writer, row->unresolved ? STYLE_DIM : STYLE_PLAIN);
		used = report->options->keys.at[k] == GROUP_FUNCTION
			       ? tty_writer_put(writer, text, len, cells)
			       : tty_writer_put_end(writer, text, len, cells);
		tty_writer_style(writer, STYLE_PLAIN);
		if (!last && used < cells)
			fprintf(writer->out, "%*s", (int)(cells - used), "");
	}
	fputc('\n', writer->out);
}

/* The rows to print, before those with less than the least share are left out. */
static size_t count_rows(const struct report *report)
{
	const uint64_t wanted = report->options->rows;

	return wanted && wanted < report->grouped.flat->n ? wanted : report->grouped.flat->n;
}

struct error *report_put_flat(const struct report *report, const struct tty_writer *writer)
{
	size_t rows = count_rows(report), hidden = 0;
	struct columns columns;

	plan(report, rows, writer, &columns);
	put_titles(report, &columns, writer);
	for (size_t i = 0; i < rows; i++) {
		const struct flat_row *row = &report->grouped.flat->rows[i];

		if (report_share(report, &row->total).value < report->options->min_share)
			hidden++;
		else
			put_row(report, row, &columns, writer);
	}
	if (report->grouped.flat->n > rows)
		fprintf(writer->out, "  ... %zu more %ss (-n 0 shows all)\n",
			report->grouped.flat->n - rows,
			columns.n > 1 ? "row" : group_key_text(report->options->keys.at[0]));
	if (hidden)
		fprintf(writer->out, "  ... %zu with less than %g %% (--min)\n", hidden,
			100 * report->options->min_share);
	return NULL;
}

/* Call trees: a line per function; branches are drawn where several callees (or callers) follow. */

/* One level of the walk. */
struct level {
	struct branches branches;
	size_t next; /* the branch to show next */
	size_t mark; /* length of the prefix at this level */
};

struct report_walk {
	const struct report *report;
	const struct tree *tree;
	const struct tty_writer *writer;
	bool has_self; /* of a leaf-first tree that says nothing: only where stacks begin */
	struct level *levels;
	size_t depth, room;
	struct bytes prefix;
	uint64_t lines;
	size_t left_out;
	bool cut; /* by -n or --depth */
};

static struct error *append(struct report_walk *walk, const char *text)
{
	TRY(bytes_reserve(&walk->prefix, strlen(text)));
	put_bytes(&walk->prefix, text, strlen(text));
	return NULL;
}

/* Goes down to the children of `node`. */
static struct error *descend(struct report_walk *walk, uint32_t node)
{
	struct level *level;

	TRY(ARRAY_RESERVE(&walk->levels, &walk->room, walk->depth + 1));
	level = &walk->levels[walk->depth];
	*level = (struct level){.mark = walk->prefix.len};
	TRY(report_branches(walk->report, walk->tree, node, &level->branches));
	walk->left_out += level->branches.left_out;
	walk->depth++;
	return NULL;
}

/* Puts a name's columns, with blanks between them, into the remaining line. */
static void put_name(const struct report_walk *walk, const struct tree_node *node)
{
	const struct tty_writer *writer = walk->writer;
	size_t used = (has_intervals(writer) ? 42 : 18) + 2 +
		      cells_of((const char *)walk->prefix.data, walk->prefix.len);
	size_t left = writer->width > used + 8 ? writer->width - used : writer->width ? 8 : 0;
	const size_t n_keys = walk->report->options->keys.n;
	char *text = NULL;
	size_t len = 0;
	FILE *line = open_memstream(&text, &len);

	if (!line)
		return;
	for (size_t k = 0; k < n_keys; k++) {
		size_t bytes;
		const char *column = report_column(walk->report, node->name, k, &bytes);

		fprintf(line, "%s%.*s", k ? " " : "", (int)bytes, column);
	}
	fputs(node->inlined ? " (inlined)" : "", line);
	if (!fclose(line)) {
		tty_writer_style(writer, node->unresolved ? STYLE_DIM : STYLE_PLAIN);
		tty_writer_put(writer, text, len, left);
		tty_writer_style(writer, STYLE_PLAIN);
	}
	free(text);
}

static void put_line(struct report_walk *walk, const struct tree_node *node)
{
	const bool intervals = has_intervals(walk->writer);

	put_share(walk->report, &node->total, intervals, walk->writer);
	if (walk->has_self)
		put_share(walk->report, &node->self, intervals, walk->writer);
	fputs("  ", walk->writer->out);
	fwrite(walk->prefix.data, 1, walk->prefix.len, walk->writer->out);
	put_name(walk, node);
	fputc('\n', walk->writer->out);
	walk->lines++;
}

static bool has_enough(const struct report_walk *walk)
{
	const uint64_t rows = walk->report->options->rows;

	return rows && walk->lines >= rows;
}

/* Shows one branch of the innermost level, and goes down from it. */
static struct error *step(struct report_walk *walk)
{
	struct level *level = &walk->levels[walk->depth - 1];
	const uint64_t depth = walk->report->options->depth;
	const bool parts = level->branches.n > 1;
	const bool last = level->next + 1 == level->branches.n;
	uint32_t node = level->branches.at[level->next++];

	walk->prefix.len = level->mark;
	if (parts)
		TRY(append(walk, last ? "└ " : "├ "));
	put_line(walk, &walk->tree->nodes[node]);
	walk->prefix.len = level->mark;
	if (parts)
		TRY(append(walk, last ? "  " : "│ "));
	if (!depth || walk->depth < depth)
		return descend(walk, node);
	walk->cut |= walk->tree->nodes[node].first_child != 0 || tree_rest(walk->tree, node).n;
	return NULL;
}

static struct error *run(struct report_walk *walk, uint32_t root)
{
	struct error *err = descend(walk, root);

	while (!err && walk->depth) {
		struct level *level = &walk->levels[walk->depth - 1];

		if (level->next == level->branches.n) {
			free(level->branches.at);
			walk->depth--;
		} else if (has_enough(walk)) {
			walk->cut = true;
			break;
		} else {
			err = step(walk);
		}
	}
	while (walk->depth)
		free(walk->levels[--walk->depth].branches.at);
	return err;
}

static void put_footer(const struct report_walk *walk)
{
	if (walk->left_out)
		fprintf(walk->writer->out, "  ... %zu branches with less than %g %% (--min)\n",
			walk->left_out, 100 * walk->report->options->min_share);
	if (walk->cut)
		fputs("  ... there is more (-n 0, --depth)\n", walk->writer->out);
	if (!walk->lines && !walk->left_out)
		fputs("  nothing\n", walk->writer->out);
}

static void put_title(const char *text, bool has_self, const struct tty_writer *writer)
{
	const bool intervals = has_intervals(writer);

	fputc('\n', writer->out);
	tty_writer_style(writer, STYLE_HEAD);
	fprintf(writer->out, "%9s", "total");
	if (intervals)
		fprintf(writer->out, " %-11s", "95 %");
	if (has_self)
		fprintf(writer->out, "%9s", "self");
	if (has_self && intervals)
		fprintf(writer->out, " %-11s", "95 %");
	fprintf(writer->out, "  %s", text);
	tty_writer_style(writer, STYLE_PLAIN);
	fputc('\n', writer->out);
}

static struct error *put_tree(const struct report *report, const struct tree *tree, bool has_self,
			      const char *title, const struct tty_writer *writer)
{
	struct report_walk walk = {.report = report,
				   .tree = tree,
				   .writer = writer,
				   .has_self = has_self};
	struct error *err;

	put_title(title, has_self, writer);
	err = run(&walk, 0);
	put_footer(&walk);
	free(walk.levels);
	bytes_free(&walk.prefix);
	return err;
}

struct error *report_put_tree(const struct report *report, const struct tty_writer *writer)
{
	const bool up = report->options->view == REPORT_UP;

	return put_tree(report, report->grouped.tree, !up,
			up ? "innermost first, and below each its callers"
			   : "call tree, outermost first",
			writer);
}

struct error *report_put_callers_callees(const struct report *report,
					 const struct tty_writer *writer)
{
	const struct callers_callees *found = &report->callers_callees;
	const struct tree_node function = {.name = found->name,
					   .self = found->self,
					   .total = found->total};
	struct report_walk walk = {.report = report, .writer = writer, .has_self = true};

	put_title("the function", true, writer);
	put_line(&walk, &function);
	TRY(put_tree(report, found->callers, false, "its callers, the nearest first", writer));
	return put_tree(report, found->callees, true, "what it calls", writer);
}

/* Heat maps: a cell is a character, the darker the more it has beside the hottest one. */

static const char shades[] = " .:-=+*#%@";

/* Nothing is blank, and only that. */
static char shade(const struct profile_cell *cell, const struct profile_cell *hottest,
		  enum style *style)
{
	const size_t most = sizeof(shades) - 2;
	double share;
	size_t at;

	*style = STYLE_PLAIN;
	if (!cell->samples)
		return shades[0];
	share = hottest->weight_ns ? (double)cell->weight_ns / (double)hottest->weight_ns
				   : (double)cell->samples / (double)hottest->samples;
	at = 1 + (size_t)(share * (double)(most - 1) + 0.5);
	*style = share > 0.66 ? STYLE_HOT : share > 0.33 ? STYLE_WARM : STYLE_PLAIN;
	return shades[at < most ? at : most];
}

static void put_heat_row(const struct heat *heat, uint32_t row, const struct tty_writer *writer)
{
	const struct profile_cell *hottest = heat_hottest(heat);
	enum style style, now = STYLE_PLAIN;

	fprintf(writer->out, "%4" PRIu32 " ms |", row * 1000 / heat->rows);
	for (uint32_t c = 0; c < heat->columns; c++) {
		char sign = shade(&heat->cells[(size_t)c * heat->rows + row], hottest, &style);

		if (style != now && now != STYLE_PLAIN)
			tty_writer_style(writer, STYLE_PLAIN);
		if (style != now && style != STYLE_PLAIN)
			tty_writer_style(writer, style);
		now = style;
		fputc(sign, writer->out);
	}
	if (now != STYLE_PLAIN)
		tty_writer_style(writer, STYLE_PLAIN);
	fputs("|\n", writer->out);
}

/* The second that a column begins with, wherever there is room for it. */
static void put_heat_seconds(const struct heat *heat, FILE *out)
{
	uint32_t free_from = 0;

	fprintf(out, "%9s", "");
	for (uint32_t c = 0; c < heat->columns; c += 10) {
		char text[24];
		int len = snprintf(text, sizeof(text), "%" PRIu64,
				   heat->first_s + c * heat->column_s);

		if (c < free_from || (c && c + (uint32_t)len + 1 > heat->columns))
			continue;
		fprintf(out, "%*s%s", (int)(c - free_from), "", text);
		free_from = c + (uint32_t)len;
	}
	fputs(" s\n", out);
}

static void put_heat_legend(const struct report *report, FILE *out)
{
	const struct heat *heat = &report->heat;
	const struct profile_cell *hottest = heat_hottest(heat);
	const uint64_t column = (uint64_t)(hottest - heat->cells) / heat->rows;
	const uint64_t from = heat->first_s + column * heat->column_s;

	fprintf(out, "\nA cell is %" PRIu32 " ms of %" PRIu64 " second%s", 1000 / heat->rows,
		heat->column_s, heat->column_s == 1 ? "" : "s");
	if (heat->column_s > 1)
		fputs(" (merged, so that the recording fits)", out);
	if (!hottest->samples) {
		fputs("; no sample was selected.\n", out);
		return;
	}
	fprintf(out, "; blank: no samples; %s: at most %" PRIu64 " samples, %.3f s, in a cell.\n",
		shades + 1, hottest->samples, (double)hottest->weight_ns / 1e9);
	fprintf(out,
		"The hottest cell lies in --from %" PRIu64 " --to %" PRIu64
		": report, flamegraph, export and diff show such a stretch.\n",
		from, from + heat->column_s);
}

void report_put_heat(const struct report *report, const struct tty_writer *writer)
{
	fputc('\n', writer->out);
	for (uint32_t row = 0; row < report->heat.rows; row++)
		put_heat_row(&report->heat, row, writer);
	put_heat_seconds(&report->heat, writer->out);
	put_heat_legend(report, writer->out);
}
