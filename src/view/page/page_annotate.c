/* SPDX-License-Identifier: BSD-3-Clause */

/*
 * The code in a page: JSON of few bytes (page_controls.js is the other end), and
 * for each stack the instructions that it passes, so that the page can count
 * the samples that its filters leave.
 *
 *	left_out  functions that were chosen, and for which there was no room
 *	parts     code of a function each: name, path, lacks, patched, functions (those
 *	          inlined there), and rows: [address, instruction, number of its line,
 *	          rows left out before]
 *	lines     [text of the source or null, [function, file, line], ...], the innermost first
 */

#include "view/page/page.h"

#include <assert.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "analysis/functions.h"
#include "base/array.h"
#include "base/intern.h"
#include "base/owned.h"
#include "recording/stacks.h"
#include "view/json.h"

/* Rows of all parts: some 400 KB in a page. */
#define ROWS_MAX 16384

/* Longer code is shown around its samples. */
#define ROWS_WHOLE  256
#define ROWS_AROUND 6

/* Rows of samples. */
#define SAMPLES_MAX (1u << 18)

/* Functions are left out, the lightest first, until their stacks have no more nodes. */
#define NODES_MAX (1u << 18)

/*
 * The rows of a part that are in the page, numbered over all parts. The last
 * number is of code outside of the part's rows.
 */
struct part_rows {
	uint32_t *number; /* [part->n + 1]; NO_NUMBER: the row is not in the page */
	uint32_t first;	  /* of these numbers */
	bool in_page;
};

#define NO_NUMBER UINT32_MAX

struct code_writer {
	const struct page_code_options *options;
	const struct annotation *annotation;
	struct source_texts *texts;
	json_t *lines;
	struct part_rows *rows; /* [annotation->n] */
	size_t nodes_room;
	uint32_t *of_stack; /* [n_stacks]: its node times PAGE_CODE_ENDS, plus its end */
	uint32_t n_stacks;
};

static json_t *line_json(const struct code_writer *w, const struct code_row *row)
{
	const struct location *first = row->n_at ? row->at : NULL;
	FREED char *text =
		first && first->file ? source_texts_line(w->texts, first->file, first->line) : NULL;
	json_t *line = json_pack("[s?]", text);

	for (size_t i = 0; i < row->n_at; i++)
		json_array_append_new(line,
				      json_pack("[s, s?, I]", row->at[i].function, row->at[i].file,
						(json_int_t)row->at[i].line));
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
	FREED char *text = NULL;
	char address[20];

	snprintf(address, sizeof(address), "%" PRIx64, row->line.va);
	if (target && asprintf(&text, "%s <%s>", row->line.text, target) < 0)
		text = NULL;
	return json_pack("[s, s, I, I]", address, text ? text : row->line.text,
			 line_of(w, row, before), (json_int_t)folded);
}

/* Numbers the rows that are shown from `first` on; returns how many numbers they take. */
static uint32_t number_rows(const struct code_part *part, uint32_t first, uint32_t *number)
{
	uint32_t n = 0;

	for (size_t i = 0; i < part->n; i++)
		number[i] = part->n <= ROWS_WHOLE ? 0 : NO_NUMBER;
	for (size_t i = 0; i < part->n; i++)
		for (size_t k = i > ROWS_AROUND ? i - ROWS_AROUND : 0;
		     part->row[i].total.samples && k <= i + ROWS_AROUND && k < part->n; k++)
			number[k] = 0;
	for (size_t i = 0; i <= part->n; i++)
		if (i == part->n || number[i] != NO_NUMBER)
			number[i] = first + n++;
	return n;
}

/* Chooses the parts and rows that there is room for. */
static struct error *choose_rows(struct code_writer *w)
{
	const struct annotation *annotation = w->annotation;
	uint32_t numbered = 0;

	TRY(ARRAY_NEW(&w->rows, annotation->n + 1));
	for (size_t i = 0; i < annotation->n; i++) {
		struct part_rows *rows = &w->rows[i];
		uint32_t n;

		TRY(ARRAY_NEW(&rows->number, annotation->part[i].n + 1));
		rows->first = numbered;
		n = number_rows(&annotation->part[i], numbered, rows->number);
		rows->in_page = n <= ROWS_MAX - numbered;
		numbered += rows->in_page ? n : 0;
	}
	return NULL;
}

/* Leaves out the lighter half of the parts that are in the page. */
static void drop_parts(struct code_writer *w)
{
	size_t n = 0, kept = 0;

	for (size_t i = 0; i < w->annotation->n; i++)
		n += w->rows[i].in_page;
	for (size_t i = 0; i < w->annotation->n; i++) {
		kept += w->rows[i].in_page;
		w->rows[i].in_page &= kept <= n / 2;
	}
}

/* Finds or adds the node of a stack's frame on that of its caller. */
static struct error *add_node(struct code_writer *w, struct ids *ids,
			      const struct code_place *place, struct page_code *code,
			      uint32_t *node)
{
	const struct part_rows *rows = &w->rows[place->part];
	const size_t last = w->annotation->part[place->part].n;
	const uint32_t parent = *node;
	const uint32_t row = rows->number[place->row == CODE_NO_ROW ? last : place->row];
	uint32_t id;
	bool added;

	assert(row != NO_NUMBER);
	TRY(ids_get(ids, parent, row, &id, &added));
	if (added)
		TRY(ARRAY_RESERVE(&code->nodes, &w->nodes_room, id + (size_t)2));
	*node = id + 1;
	code->n_nodes = ids_count(ids) + 1;
	code->nodes[*node] = (struct page_code_node){parent, row};
	return NULL;
}

/* True if the frame's code is in the page. */
static bool find_place(const struct code_writer *w, uint32_t stack, struct code_place *place)
{
	return annotation_place(w->annotation, stack, place) && w->rows[place->part].in_page;
}

/* The nodes of all stacks, callers first; more than NODES_MAX: not all. */
static struct error *add_nodes(struct code_writer *w, const bool *used, struct page_code *code)
{
	const struct stacks *stacks = w->options->profile->stacks;
	uint32_t *of_stack = w->of_stack;
	struct code_place place;
	ENDED_BY(ids_end) struct ids *ids = NULL; /* of parent and row: nodes but the root */

	TRY(ids_new(&ids));
	code->n_nodes = 1;
	of_stack[0] = 0;
	for (uint32_t i = 1; i < w->n_stacks && code->n_nodes <= NODES_MAX; i++) {
		of_stack[i] = of_stack[stacks_node(stacks, i)->parent];
		if (used[i] && find_place(w, i, &place))
			TRY(add_node(w, ids, &place, code, &of_stack[i]));
	}
	for (uint32_t i = 0; i < w->n_stacks && code->n_nodes <= NODES_MAX; i++) {
		of_stack[i] *= PAGE_CODE_ENDS;
		if (used[i] && find_place(w, i, &place))
			of_stack[i] += place.misplaced ? PAGE_CODE_MISPLACED : PAGE_CODE_SELF;
	}
	return NULL;
}

static struct error *build_nodes(struct code_writer *w, struct page_code *code)
{
	const struct profile *profile = w->options->profile;
	const uint32_t n = w->annotation->n ? stacks_count(profile->stacks) : 0;
	FREED bool *used = calloc(n + (size_t)1, sizeof(*used));

	w->of_stack = calloc(n + (size_t)1, sizeof(*w->of_stack));
	w->n_stacks = n;
	if (!used || !w->of_stack)
		return error_no_memory();
	if (n)
		profile_mark_used(profile, &profile->cells, used);
	TRY(ARRAY_RESERVE(&code->nodes, &w->nodes_room, 1));
	code->nodes[0] = (struct page_code_node){0};
	TRY(add_nodes(w, used, code));
	while (code->n_nodes > NODES_MAX) {
		drop_parts(w);
		TRY(add_nodes(w, used, code));
	}
	return NULL;
}

static json_t *rows_json(struct code_writer *w, const struct code_part *part,
			 const uint32_t *number)
{
	const struct code_row *before = NULL;
	json_t *rows = json_array();
	size_t folded = 0;

	for (size_t i = 0; i < part->n; i++) {
		if (number[i] == NO_NUMBER) {
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
	ENDED_BY(ids_end) struct ids *seen = NULL;

	TRY(ids_new(&seen));
	for (size_t i = 0; i < part->n; i++)
		for (size_t k = 0; k + 1 < part->row[i].n_at; k++) {
			const char *name = part->row[i].at[k].function;
			uint32_t id;
			bool added;

			TRY(ids_get(seen, (uintptr_t)name, 0, &id, &added));
			if (added)
				json_array_append_new(array, json_string(name));
		}
	return NULL;
}

static struct error *add_part(struct code_writer *w, size_t p, json_t *parts)
{
	const struct code_part *part = &w->annotation->part[p];
	json_t *functions = json_array(), *object;
	struct error *err = functions_json(part, functions);

	if (err) {
		json_decref(functions);
		return err;
	}
	object = json_pack("{s:s, s:o, s:o, s:b, s:I, s:o, s:o}", "name", part->name, "path",
			   json_text(part->path), "lacks", json_text(part->lacks), "patched",
			   part->patched, "first", (json_int_t)w->rows[p].first, "functions",
			   functions, "rows", rows_json(w, part, w->rows[p].number));
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
	for (size_t i = 0; i < w->annotation->n && !err; i++) {
		left_out += !w->rows[i].in_page;
		if (w->rows[i].in_page)
			err = add_part(w, i, parts);
	}
	if (!err)
		object = json_pack("{s:I, s:b, s:O, s:O}", "left_out", left_out, "texts",
				   w->options->sources.directory != NULL, "parts", parts, "lines",
				   w->lines);
	if (object)
		*out = json_dumps(object, JSON_COMPACT);
	if (!err && !*out)
		err = error_no_memory();
	json_decref(object);
	json_decref(parts);
	json_decref(w->lines);
	source_texts_free(w->texts);
	return err;
}

/* Replaces the samples of a profile, which were a part of these, by all of them. */
static struct error *count_samples(const struct page_samples *samples, struct profile *profile)
{
	struct page_sample_reader reader = page_samples_start(samples);
	struct profile_cells *cells = &profile->cells;
	struct profile_cell *at;

	while (page_samples_next(&reader)) {
		uint32_t *number = &cells->of[page_samples_stack(samples, reader.sample.key)];

		if (!*number)
			*number = cells->n++;
	}
	at = reallocarray(cells->at, cells->n, sizeof(*at));
	if (!at)
		return error_no_memory();
	cells->at = at;
	memset(at, 0, cells->n * sizeof(*at));
	for (reader = page_samples_start(samples); page_samples_next(&reader);) {
		const uint32_t stack = page_samples_stack(samples, reader.sample.key);
		const struct profile_cell cell = page_sample_cell(&reader.sample);

		profile_cell_add(&at[profile_cell_number(cells, stack)], &cell);
	}
	return NULL;
}

struct error *page_code(const struct page_code_options *options, struct page_code *out)
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

	*out = (struct page_code){0};
	if (!err)
		err = count_samples(options->samples, options->profile);
	if (!err && how.n_names)
		err = annotation_build(&how, &annotation);
	if (!err)
		err = choose_rows(&w);
	if (!err)
		err = build_nodes(&w, out);
	if (!err)
		err = write_code(&w, &out->text);
	for (size_t i = 0; w.rows && i < annotation.n; i++)
		free(w.rows[i].number);
	free(w.rows);
	annotation_free(&annotation);
	if (!err)
		err = page_samples_rows(options->samples, options->profile,
					&(struct page_places){w.of_stack, w.n_stacks,
							      options->samples->pairs},
					SAMPLES_MAX, &out->rows);
	free(w.of_stack);
	return err;
}

void page_code_free(struct page_code *code)
{
	free(code->text);
	free(code->nodes);
	bytes_free(&code->rows.written);
	*code = (struct page_code){0};
}
