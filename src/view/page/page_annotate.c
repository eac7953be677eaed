/* SPDX-License-Identifier: BSD-3-Clause */

/*
 * The code in a page, as JSON of few bytes (page_controls.js is the other end):
 *
 *	left_out  functions that were chosen, and for which there was no room
 *	parts     code of a function each: name, path, lacks, patched, misplaced,
 *	          samples, self, total (shares), functions (those inlined there), and
 *	          rows: [address, instruction, share of self, share of total,
 *	          samples, number of its line, rows left out before]
 *	lines     [text of the source or null, [function, file, line], ...], the innermost first
 */

#include "view/page/page.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "analysis/flat.h"
#include "base/intern.h"
#include "symbol/names/display_name.h"

/* Rows of all parts: some 400 KB in a page. */
#define ROWS_MAX 16384

/* Longer code is shown around its samples. */
#define ROWS_WHOLE  256
#define ROWS_AROUND 6

struct code_writer {
	const struct page_code_options *options;
	const struct annotation *annotation;
	struct source_texts *texts;
	json_t *lines;
	size_t rows;
};

static double share_of(const struct code_writer *w, const struct profile_cell *cell)
{
	const double all = (double)w->options->profile->selected.weight_ns;

	return all > 0 ? (double)cell->weight_ns / all : 0;
}

static json_t *text_or_null(const char *text)
{
	char *sanitized = text ? sanitize_new(text) : NULL;
	json_t *json = sanitized ? json_string(sanitized) : json_null();

	free(sanitized);
	return json;
}

static json_t *line_json(const struct code_writer *w, const struct code_row *row)
{
	const struct location *first = row->n_at ? row->at : NULL;
	char *text =
		first && first->file ? source_texts_line(w->texts, first->file, first->line) : NULL;
	json_t *line = json_pack("[s?]", text);

	for (size_t i = 0; i < row->n_at; i++)
		json_array_append_new(line,
				      json_pack("[s, s?, I]", row->at[i].function, row->at[i].file,
						(json_int_t)row->at[i].line));
	free(text);
	return line;
}

/* The number of the row's line; rows of one line follow each other. */
static json_int_t line_of(struct code_writer *w, const struct code_row *row,
			  const struct code_row *before)
{
	if (!before || !code_rows_same_lines(before, row))
		json_array_append_new(w->lines, line_json(w, row));
	return (json_int_t)json_array_size(w->lines) - 1;
}

static json_t *row_json(struct code_writer *w, const struct code_part *part,
			const struct code_row *row, const struct code_row *before, size_t folded)
{
	const char *target = annotation_target(w->annotation, part, row);
	char address[20], *text = NULL;
	json_t *json;

	snprintf(address, sizeof(address), "%" PRIx64, row->line.va);
	if (target && asprintf(&text, "%s <%s>", row->line.text, target) < 0)
		text = NULL;
	json = json_pack("[s, s, f, f, I, I, I]", address, text ? text : row->line.text,
			 share_of(w, &row->self), share_of(w, &row->total),
			 (json_int_t)row->self.samples, line_of(w, row, before),
			 (json_int_t)folded);
	free(text);
	return json;
}

/* Marks the rows that are shown; returns how many. */
static size_t choose_rows(const struct code_part *part, bool *shown)
{
	size_t n = 0;

	for (size_t i = 0; i < part->n; i++) {
		const size_t from = i > ROWS_AROUND ? i - ROWS_AROUND : 0;

		if (part->n <= ROWS_WHOLE)
			shown[i] = true;
		for (size_t k = from; part->row[i].total.samples && k <= i + ROWS_AROUND; k++)
			if (k < part->n)
				shown[k] = true;
	}
	for (size_t i = 0; i < part->n; i++)
		n += shown[i];
	return n;
}

static json_t *rows_json(struct code_writer *w, const struct code_part *part, const bool *shown)
{
	const struct code_row *before = NULL;
	json_t *rows = json_array();
	size_t folded = 0;

	for (size_t i = 0; i < part->n; i++) {
		if (!shown[i]) {
			folded++;
			continue;
		}
		if (!folded && before && code_rows_gap(before, &part->row[i]))
			folded = 1;
		json_array_append_new(rows, row_json(w, part, &part->row[i], before, folded));
		before = &part->row[i];
		folded = 0;
	}
	return rows;
}

/* The functions that are inlined somewhere in the part, each once. */
static struct error *functions_json(const struct code_part *part, json_t *array)
{
	struct ids *seen;
	struct error *err = ids_new(&seen);

	for (size_t i = 0; i < part->n && !err; i++)
		for (size_t k = 0; k + 1 < part->row[i].n_at && !err; k++) {
			const char *name = part->row[i].at[k].function;
			uint32_t id;
			bool added;

			err = ids_get(seen, (uintptr_t)name, 0, &id, &added);
			if (!err && added)
				json_array_append_new(array, json_string(name));
		}
	ids_free(seen);
	return err;
}

/* *left_out grows if there is no room. */
static struct error *add_part(struct code_writer *w, const struct code_part *part, json_t *parts,
			      json_int_t *left_out)
{
	bool *shown = calloc(part->n + 1, sizeof(*shown));
	json_t *functions = json_array(), *object;
	struct error *err = shown ? functions_json(part, functions) : error_no_memory();
	const size_t n = err ? 0 : choose_rows(part, shown);

	if (err || n > ROWS_MAX - w->rows) {
		*left_out += !err;
		json_decref(functions);
		free(shown);
		return err;
	}
	w->rows += n;
	object = json_pack("{s:s, s:o, s:o, s:b, s:I, s:I, s:f, s:f, s:o, s:o}", "name", part->name,
			   "path", text_or_null(part->path), "lacks", text_or_null(part->lacks),
			   "patched", part->patched, "misplaced", (json_int_t)part->misplaced,
			   "samples", (json_int_t)part->self.samples, "self",
			   share_of(w, &part->self), "total", share_of(w, &part->total),
			   "functions", functions, "rows", rows_json(w, part, shown));
	free(shown);
	return object && !json_array_append_new(parts, object) ? NULL : error_no_memory();
}

static struct error *write_code(struct code_writer *w, char **out)
{
	json_t *parts = json_array(), *object = NULL;
	json_int_t left_out = 0;
	struct error *err = NULL;

	w->lines = json_array();
	w->texts = source_texts_new(&w->options->sources);
	if (!w->texts || !w->lines || !parts)
		err = error_no_memory();
	for (size_t i = 0; i < w->annotation->n && !err; i++)
		err = add_part(w, &w->annotation->part[i], parts, &left_out);
	if (!err)
		object = json_pack("{s:I, s:b, s:O, s:O}", "left_out", left_out, "texts",
				   w->options->sources.directory != NULL, "parts", parts, "lines",
				   w->lines);
	if (object)
		*out = json_dumps(object, JSON_COMPACT | JSON_REAL_PRECISION(6));
	if (!err && !*out)
		err = error_no_memory();
	json_decref(object);
	json_decref(parts);
	json_decref(w->lines);
	source_texts_free(w->texts);
	return err;
}

struct error *page_code(const struct page_code_options *options, char **out)
{
	const char *names[PAGE_CODE_FUNCTIONS];
	struct annotation_options how = {.profile = options->profile,
					 .images = options->images,
					 .symbolizer = options->symbolizer,
					 .naming = options->naming,
					 .disassembler = options->disassembler,
					 .names = names};
	struct annotation annotation = {0};
	struct code_writer w = {.options = options, .annotation = &annotation};
	struct error *err = flat_choose(options->profile, options->symbolizer, PAGE_CODE_SHARE,
					names, PAGE_CODE_FUNCTIONS, &how.n_names);

	*out = NULL;
	if (!err && how.n_names)
		err = annotation_build(&how, &annotation);
	if (!err)
		err = write_code(&w, out);
	annotation_free(&annotation);
	return err;
}
