/* SPDX-License-Identifier: BSD-3-Clause */
#include "output/firefox.h"

#include <inttypes.h>
#include <stdlib.h>

#include "output/json_text.h"

/* Numbers in JavaScript are exact up to here. */
#define MAX_EXACT (UINT64_C(1) << 53)

static struct error *number_text(struct firefox *f, const char *text)
{
	uint32_t id;
	bool added;
	struct error *err = ids_get(f->strings, (uintptr_t)text, 0, &id, &added);

	if (!err && added)
		f->texts[id] = text;
	return err;
}

static struct error *number_texts(struct firefox *f)
{
	const struct places *p = f->places;
	size_t most = 2 * (size_t)p->n_functions + p->n_images + 1;
	struct error *err = NULL;
	uint32_t id;
	bool added;

	f->texts = calloc(most, sizeof(*f->texts));
	if (!f->texts)
		return error_no_memory();
	for (uint32_t i = 0; i < p->n_functions && !err; i++) {
		err = number_text(f, p->functions[i].name);
		if (err || !p->functions[i].file)
			continue;
		err = number_text(f, p->functions[i].file);
		if (!err)
			err = ids_get(f->files, (uintptr_t)p->functions[i].file, 0, &id, &added);
	}
	for (uint32_t i = 0; i < p->n_images && !err; i++)
		err = number_text(f, p->images[i].path);
	return err;
}

struct error *firefox_number(struct firefox *f)
{
	uint32_t n = stacks_count(f->job->profile->stacks);

	f->stack_of = calloc(n, sizeof(*f->stack_of));
	if (!f->stack_of)
		return error_no_memory();
	for (uint32_t id = 1; id < n; id++) {
		uint32_t place = f->places->of_node[id];

		if (place == PLACE_NONE)
			continue;
		f->n_stacks += f->places->at[place].n_lines;
		f->stack_of[id] = f->n_stacks - 1;
	}
	return number_texts(f);
}

/* Of what has a number already, so that nothing can fail. */
static uint32_t number_of(struct ids *ids, const void *thing)
{
	uint32_t id = 0;
	bool added;

	error_free(ids_get(ids, (uintptr_t)thing, 0, &id, &added));
	return id;
}

/* "key":[...], with what `put` writes for 0 to n - 1. */
static void column(struct firefox *f, const char *key, uint32_t n,
		   void (*put)(struct firefox *f, uint32_t i))
{
	fprintf(f->out, "\"%s\":[", key);
	for (uint32_t i = 0; i < n; i++) {
		if (i)
			putc(',', f->out);
		put(f, i);
	}
	fputs("],\n", f->out);
}

/* The same in every row. */
static void constant(struct firefox *f, const char *key, uint32_t n, const char *value)
{
	fprintf(f->out, "\"%s\":[", key);
	for (uint32_t i = 0; i < n; i++)
		fprintf(f->out, "%s%s", i ? "," : "", value);
	fputs("],\n", f->out);
}

static void put_code(struct firefox *f, uint32_t i)
{
	const struct place *place = &f->places->at[f->places->lines[i].place];
	uint64_t code = place->code;

	if (place->image != PLACE_NONE)
		code -= f->places->images[place->image].slide;
	if (place->code && code < MAX_EXACT)
		fprintf(f->out, "%" PRIu64, code);
	else
		fputs("-1", f->out);
}

static void put_depth(struct firefox *f, uint32_t i)
{
	const struct place *place = &f->places->at[f->places->lines[i].place];

	fprintf(f->out, "%" PRIu32, place->lines + place->n_lines - 1 - i);
}

static void put_function(struct firefox *f, uint32_t i)
{
	fprintf(f->out, "%" PRIu32, f->places->lines[i].function);
}

static void put_line(struct firefox *f, uint32_t i)
{
	if (f->places->lines[i].line)
		fprintf(f->out, "%" PRIu32, f->places->lines[i].line);
	else
		fputs("null", f->out);
}

static void put_frame_table(struct firefox *f)
{
	uint32_t n = f->places->n_lines;

	fputs("\"frameTable\":{", f->out);
	column(f, "address", n, put_code);
	column(f, "inlineDepth", n, put_depth);
	column(f, "func", n, put_function);
	column(f, "line", n, put_line);
	constant(f, "column", n, "null");
	constant(f, "category", n, "0");
	constant(f, "subcategory", n, "0");
	constant(f, "nativeSymbol", n, "null");
	constant(f, "innerWindowID", n, "0");
	fprintf(f->out, "\"length\":%" PRIu32 "},\n", n);
}

static void put_function_name(struct firefox *f, uint32_t i)
{
	fprintf(f->out, "%" PRIu32, number_of(f->strings, f->places->functions[i].name));
}

static void put_source(struct firefox *f, uint32_t i)
{
	if (f->places->functions[i].file)
		fprintf(f->out, "%" PRIu32, number_of(f->files, f->places->functions[i].file));
	else
		fputs("null", f->out);
}

/* Which image each function is in: that of any place where it is. */
static void put_resources(struct firefox *f)
{
	uint32_t n = f->places->n_functions;
	int64_t *image = malloc((n + (size_t)1) * sizeof(*image));

	fputs("\"resource\":[", f->out);
	for (uint32_t i = 0; image && i < n; i++)
		image[i] = -1;
	for (uint32_t i = 0; image && i < f->places->n_lines; i++) {
		const struct place_line *line = &f->places->lines[i];

		if (f->places->at[line->place].image != PLACE_NONE)
			image[line->function] = f->places->at[line->place].image;
	}
	for (uint32_t i = 0; i < n; i++)
		fprintf(f->out, "%s%" PRId64, i ? "," : "", image ? image[i] : -1);
	fputs("],\n", f->out);
	free(image);
}

static void put_function_table(struct firefox *f)
{
	uint32_t n = f->places->n_functions;

	fputs("\"funcTable\":{", f->out);
	column(f, "name", n, put_function_name);
	constant(f, "isJS", n, "false");
	constant(f, "relevantForJS", n, "false");
	put_resources(f);
	column(f, "source", n, put_source);
	constant(f, "lineNumber", n, "null");
	constant(f, "columnNumber", n, "null");
	fprintf(f->out, "\"length\":%" PRIu32 "},\n", n);
}

/* Calls `put` for each entry of the stack table: `prefix` is its parent or -1. */
static void put_stacks(struct firefox *f, const char *key,
		       void (*put)(FILE *out, uint32_t line, int64_t prefix))
{
	const struct stacks *stacks = f->job->profile->stacks;
	uint32_t n = stacks_count(stacks);
	bool first = true;

	fprintf(f->out, "\"%s\":[", key);
	for (uint32_t id = 1; id < n; id++) {
		const struct place *place;
		uint32_t parent = stacks_node(stacks, id)->parent;
		int64_t prefix = parent == STACK_ROOT ? -1 : (int64_t)f->stack_of[parent];

		if (f->places->of_node[id] == PLACE_NONE)
			continue;
		place = &f->places->at[f->places->of_node[id]];
		for (uint32_t k = place->n_lines; k > 0; k--) {
			fputs(first ? "" : ",", f->out);
			first = false;
			put(f->out, place->lines + k - 1, prefix);
			prefix = (int64_t)f->stack_of[id] - (k - 1);
		}
	}
	fputs("],\n", f->out);
}

static void put_stack_frame(FILE *out, uint32_t line, int64_t prefix)
{
	fprintf(out, "%" PRIu32, line);
}

static void put_stack_prefix(FILE *out, uint32_t line, int64_t prefix)
{
	if (prefix < 0)
		fputs("null", out);
	else
		fprintf(out, "%" PRId64, prefix);
}

static void put_index(struct firefox *f, uint32_t i)
{
	fprintf(f->out, "%" PRIu32, i);
}

static void put_image_name(struct firefox *f, uint32_t i)
{
	fprintf(f->out, "%" PRIu32, number_of(f->strings, f->places->images[i].path));
}

static void put_resource_table(struct firefox *f)
{
	uint32_t n = f->places->n_images;

	fputs("\"resourceTable\":{", f->out);
	column(f, "lib", n, put_index);
	column(f, "name", n, put_image_name);
	constant(f, "host", n, "null");
	/* ResourceType.Library */
	constant(f, "type", n, "1");
	fprintf(f->out, "\"length\":%" PRIu32 "},\n", n);
}

/* Files were numbered in the order of the functions that name them first. */
static void put_sources(struct firefox *f)
{
	uint32_t n = ids_count(f->files), next = 0;

	fputs("\"sources\":{\"filename\":[", f->out);
	for (uint32_t i = 0; i < f->places->n_functions && next < n; i++) {
		const char *file = f->places->functions[i].file;

		if (!file || number_of(f->files, file) != next)
			continue;
		fprintf(f->out, "%s%" PRIu32, next ? "," : "", number_of(f->strings, file));
		next++;
	}
	fputs("],\n", f->out);
	constant(f, "id", n, "null");
	constant(f, "startLine", n, "1");
	constant(f, "startColumn", n, "1");
	constant(f, "sourceMapURL", n, "null");
	fprintf(f->out, "\"length\":%" PRIu32 "},\n", n);
}

static void put_text(struct firefox *f, uint32_t i)
{
	json_put_text(f->texts[i], f->out);
}

void firefox_put_tables(struct firefox *f)
{
	fputs("\"shared\":{", f->out);
	column(f, "stringArray", ids_count(f->strings), put_text);
	put_sources(f);
	put_resource_table(f);
	put_function_table(f);
	put_frame_table(f);
	fputs("\"stackTable\":{", f->out);
	put_stacks(f, "frame", put_stack_frame);
	put_stacks(f, "prefix", put_stack_prefix);
	fprintf(f->out, "\"length\":%" PRIu32 "},\n", f->n_stacks);
	fputs("\"nativeSymbols\":{\"libIndex\":[],\"address\":[],\"name\":[],\"functionSize\":[],"
	      "\"length\":0}}",
	      f->out);
}
