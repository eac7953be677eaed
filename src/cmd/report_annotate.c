/* SPDX-License-Identifier: BSD-3-Clause */

/* Instructions with their samples and source lines, as text and as JSON. */

#include "cmd/report.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "view/json.h"

/* True for what is of the function, and what was sampled in it, not for others around it. */
static bool is_shown(const struct report *report, const struct code_part *part,
		     const struct code_row *row)
{
	if (part->whole || row->total.samples)
		return true;
	for (size_t i = 0; i < row->n_at && report->annotated; i++)
		if (!strcmp(row->at[i].function, report->annotated))
			return true;
	return false;
}

struct put {
	const struct report *report;
	const struct tty_writer *writer;
	struct source_texts *texts;
	const struct code_part *part;
	const struct code_row *before; /* the row that the line above is of */
	size_t folded;		       /* rows left out since */
	const char *newer;	       /* a source that is newer than the file; NULL: none */
	bool samples, of_function;     /* there is room for these columns */
};

/* Widths of the terminal from which on there is room for ... */
#define ROOM_FOR_SAMPLES 100
#define ROOM_FOR_SHARES	 70

static double share_of(const struct profile_cell *cell, const struct profile_cell *all)
{
	return all->weight_ns ? (double)cell->weight_ns / (double)all->weight_ns : 0;
}

static size_t indent(const struct put *put)
{
	return 18 + (put->of_function ? 10u : 0u) + (put->samples ? 9u : 0u);
}

static void put_cells(const struct put *put, const struct code_row *row)
{
	FILE *out = put->writer->out;

	if (!row->total.samples) {
		fprintf(out, "%*s", (int)indent(put), "");
		return;
	}
	tty_writer_style(put->writer, tty_style_of_share(share_of(&row->self, &put->part->self)));
	fprintf(out, "%7.2f %%", 100 * report_share(put->report, &row->self).value);
	if (put->of_function)
		fprintf(out, "%8.2f %%", 100 * share_of(&row->self, &put->part->self));
	tty_writer_style(put->writer, STYLE_PLAIN);
	fprintf(out, "%7.2f %%", 100 * report_share(put->report, &row->total).value);
	if (put->samples)
		fprintf(out, "%9" PRIu64, row->self.samples);
}

/* Writes the rest of a line, as far as there is room. */
static void put_rest(const struct put *put, const char *text, size_t used)
{
	const size_t width = put->writer->width;

	tty_writer_put(put->writer, text, strlen(text),
		       width ? width > used + 8 ? width - used : 8 : 0);
	fputc('\n', put->writer->out);
}

static const char *short_path(const struct put *put, const char *path)
{
	const char *slash = put->report->options->wide ? NULL : strrchr(path, '/');

	return slash && slash[1] ? slash + 1 : path;
}

static const char *short_name(const struct put *put, const char *name, int *len)
{
	size_t bytes = strlen(name);
	const char *text = short_names_get(put->report->names, name, &bytes);

	*len = (int)bytes;
	return text;
}

/* A source that was changed after the file was made is not what was compiled. */
static void check_age(struct put *put, const char *path)
{
	const char *file = source_texts_file(put->texts, path);
	struct stat source, code;

	if (!put->newer && file && put->part->path && !stat(file, &source) &&
	    !stat(put->part->path, &code) && source.st_mtime > code.st_mtime)
		put->newer = file;
}

/* " (mix < main.c:32)": the functions that are inlined there, and where into. */
static void put_chain(const struct put *put, const struct code_row *row, FILE *out)
{
	for (size_t i = 0; i + 1 < row->n_at; i++) {
		const struct location *into = &row->at[i + 1];
		int bytes;
		const char *name = short_name(put, row->at[i].function, &bytes);

		fprintf(out, "%s%.*s < %s:%" PRIu32, i ? " " : "  (", bytes, name,
			into->file ? short_path(put, into->file) : "?", into->line);
	}
	fputs(row->n_at > 1 ? ")" : "", out);
}

/* "util.h:7  x ^= x << 13;  (mix < main.c:32)" */
static void put_source(struct put *put, const struct code_row *row)
{
	char *text = NULL, *line = NULL;
	const char *c;
	size_t len;
	FILE *out;

	if (!row->n_at || !row->at->file) {
		if (put->before && put->before->n_at && put->before->at->file)
			fprintf(put->writer->out, "%*s(no line is known)\n", (int)indent(put) + 2,
				"");
		return;
	}
	out = open_memstream(&line, &len);
	if (!out)
		return;
	fprintf(out, "%s:%" PRIu32, short_path(put, row->at->file), row->at->line);
	text = source_texts_line(put->texts, row->at->file, row->at->line);
	for (c = text; c && *c == ' '; c++)
		;
	if (text) {
		fprintf(out, "  %s", c);
		check_age(put, row->at->file);
	}
	free(text);
	put_chain(put, row, out);
	if (!fclose(out)) {
		fprintf(put->writer->out, "%*s", (int)indent(put) + 2, "");
		tty_writer_style(put->writer, STYLE_HEAD);
		put_rest(put, line, indent(put) + 2);
		tty_writer_style(put->writer, STYLE_PLAIN);
	}
	free(line);
}

static void put_instruction(const struct put *put, const struct code_row *row)
{
	const char *target = annotation_target(&put->report->annotation, put->part, row);
	char *text = NULL;
	int bytes = 0;
	const char *name = target ? short_name(put, target, &bytes) : "";

	put_cells(put, row);
	if (asprintf(&text, "  %8" PRIx64 "  %s%s%.*s%s", row->line.va, row->line.text,
		     target ? " <" : "", bytes, name, target ? ">" : "") < 0)
		return;
	put_rest(put, text, indent(put));
	free(text);
}

static void put_folded(struct put *put)
{
	if (put->folded)
		fprintf(put->writer->out, "%*s  ... %zu instruction%s\n", (int)indent(put), "",
			put->folded, put->folded == 1 ? "" : "s");
	put->folded = 0;
}

static bool is_left_out(const struct put *put, const struct code_row *row)
{
	const double least = put->report->options->min_share;

	return !is_shown(put->report, put->part, row) ||
	       (least > 0 && report_share(put->report, &row->total).value < least);
}

static void put_rows(struct put *put)
{
	const struct code_part *part = put->part;

	fputc('\n', put->writer->out);
	tty_writer_style(put->writer, STYLE_HEAD);
	fprintf(put->writer->out, "%9s", "self");
	if (put->of_function)
		fprintf(put->writer->out, "%10s", "of it");
	fprintf(put->writer->out, "%9s", "total");
	if (put->samples)
		fprintf(put->writer->out, "%9s", "samples");
	fputs("   address  instruction", put->writer->out);
	tty_writer_style(put->writer, STYLE_PLAIN);
	fputc('\n', put->writer->out);
	for (size_t i = 0; i < part->n; i++) {
		const struct code_row *row = &part->row[i];

		if (is_left_out(put, row)) {
			put->folded++;
			continue;
		}
		if (!put->folded && put->before && code_rows_gap(put->before, row))
			fprintf(put->writer->out, "%*s  ...\n", (int)indent(put), "");
		put_folded(put);
		if (!put->before || !code_rows_same_lines(put->before, row))
			put_source(put, row);
		put_instruction(put, row);
		put->before = row;
	}
	put_folded(put);
}

static void put_age(const struct put *put)
{
	char *text = NULL;

	if (put->newer && asprintf(&text,
				   "%s is newer than %s: its lines may not be those that "
				   "were compiled",
				   put->newer, put->part->path) > 0)
		tty_writer_warn(put->writer, text);
	free(text);
}

static void put_part_head(const struct put *put)
{
	const struct code_part *part = put->part;
	FILE *out = put->writer->out;
	int bytes;
	const char *name = short_name(put, part->name, &bytes);

	fputc('\n', out);
	tty_writer_style(put->writer, STYLE_HEAD);
	fprintf(out, "%.*s", bytes, name);
	tty_writer_style(put->writer, STYLE_PLAIN);
	if (!part->whole) {
		name = short_name(put, put->report->annotated, &bytes);
		fprintf(out, ", with %.*s inlined", bytes, name);
	}
	if (is_stand_in(part->start)) {
		fputs(", which an interpreter runs\n", out);
	} else {
		fputs(", ", out);
		sanitize_print(part->path ? part->path : "no file", out);
		fputs(part->path ? ", its addresses\n" : ", the guest's addresses\n", out);
	}
	fprintf(out, "samples  %" PRIu64 " in this code, %.2f %%", part->self.samples,
		100 * report_share(put->report, &part->self).value);
	if (part->own.samples != part->self.samples)
		fprintf(out, " (%" PRIu64 " without what is inlined)", part->own.samples);
	fprintf(out, "; %" PRIu64 " with calls, %.2f %%\n", part->total.samples,
		100 * report_share(put->report, &part->total).value);
	if (part->lacks)
		tty_writer_warn(put->writer, part->lacks);
	if (part->patched)
		fputs("code     as in the file: a kernel changes some of it when it starts\n", out);
	if (part->misplaced) {
		char text[160];

		snprintf(text, sizeof(text),
			 "%" PRIu64
			 " samples are not where an instruction begins: the file may not "
			 "be what ran",
			 part->misplaced);
		tty_writer_warn(put->writer, text);
	}
}

struct error *report_put_annotation(const struct report *report, const struct tty_writer *writer)
{
	struct source_texts *texts = source_texts_new(&report->options->sources);
	struct put put = {.report = report, .writer = writer, .texts = texts};

	if (!texts)
		return error_no_memory();
	put.samples = !writer->width || writer->width >= ROOM_FOR_SAMPLES;
	put.of_function = !writer->width || writer->width >= ROOM_FOR_SHARES;
	fputs("counted  self at the instruction that comes next, often behind the slow one; calls "
	      "at "
	      "the call\n",
	      writer->out);
	for (size_t i = 0; i < report->annotation.n; i++) {
		put.part = &report->annotation.part[i];
		put.before = NULL;
		put_part_head(&put);
		put_rows(&put);
		put_age(&put);
		put.newer = NULL;
	}
	source_texts_free(texts);
	return NULL;
}

static json_t *locations(const struct code_row *row, struct source_texts *texts)
{
	json_t *array = json_array();

	for (size_t i = 0; i < row->n_at; i++) {
		const struct location *at = &row->at[i];
		char *text = at->file ? source_texts_line(texts, at->file, at->line) : NULL;

		json_array_append_new(array, json_pack("{s:s, s:s?, s:I, s:b, s:s?}", "function",
						       at->function, "file", at->file, "line",
						       json_count(at->line), "inlined", at->inlined,
						       "source", text));
		free(text);
	}
	return array;
}

static json_t *instruction(const struct report *report, const struct code_part *part,
			   const struct code_row *row, struct source_texts *texts)
{
	char bytes[2 * CODE_LINE_BYTES + 1] = "";

	for (unsigned i = 0; i < row->line.len && i < CODE_LINE_BYTES; i++)
		snprintf(bytes + (size_t)2 * i, 3, "%02x", row->line.bytes[i]);
	return json_pack("{s:o, s:s, s:s?, s:s?, s:o, s:o, s:o}", "address", json_hex(row->line.va),
			 "bytes", bytes, "instruction", *row->line.text ? row->line.text : NULL,
			 "target", annotation_target(&report->annotation, part, row), "self",
			 report_cell_json(report, &row->self), "total",
			 report_cell_json(report, &row->total), "lines", locations(row, texts));
}

static json_t *part_json(const struct report *report, const struct code_part *part,
			 struct source_texts *texts)
{
	json_t *array = json_array(), *object;

	for (size_t i = 0; i < part->n; i++)
		if (is_shown(report, part, &part->row[i]))
			json_array_append_new(array,
					      instruction(report, part, &part->row[i], texts));
	object = json_pack("{s:s, s:b, s:o, s:s?, s:o, s:I}", "function", part->name, "inlined",
			   !part->whole, "file", json_text(part->path), "build_id",
			   part->build_id && *part->build_id ? part->build_id : NULL, "lacks",
			   json_text(part->lacks), "misplaced", json_count(part->misplaced));
	json_object_update_new(object, json_pack("{s:o, s:o, s:o, s:o, s:o}", "slide",
						 json_hex(part->slide), "self",
						 report_cell_json(report, &part->self), "own",
						 report_cell_json(report, &part->own), "total",
						 report_cell_json(report, &part->total),
						 "instructions", array));
	return object;
}

json_t *report_annotation_json(const struct report *report)
{
	struct source_texts *texts = source_texts_new(&report->options->sources);
	json_t *array = texts ? json_array() : NULL;

	for (size_t i = 0; i < report->annotation.n && array; i++)
		json_array_append_new(array, part_json(report, &report->annotation.part[i], texts));
	if (texts)
		source_texts_free(texts);
	return array;
}
