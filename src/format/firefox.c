/* SPDX-License-Identifier: BSD-3-Clause */

/*
 * The processed format of the Firefox Profiler (profiler.firefox.com), laid
 * out in src/types/profile.ts of github.com/firefox-devtools/profiler. It is
 * made of tables that are written column by column. Readers of later versions
 * bring this one up to date.
 */

#include <ctype.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "analysis/name_code.h"
#include "base/array.h"
#include "base/intern.h"
#include "format/firefox.h"

/* meta.preprocessedProfileVersion, and the version of Gecko's own format that belongs to it. */
#define FIREFOX_VERSION	      61
#define FIREFOX_GECKO_VERSION 34

/*
 * Colours of what runs (src/utils/colors.ts there). A category that is grey is needed, the
 * first one; activity is not drawn of it, nor of what is transparent.
 */
static void put_categories(FILE *out)
{
	static const struct {
		const char *name, *color;
	} kinds[NAME_KINDS] = {
		[NAME_KERNEL] = {"Kernel", "orange"},  [NAME_USER] = {"User", "yellow"},
		[NAME_GUEST] = {"Guest", "blue"},      [NAME_HYPERVISOR] = {"Hypervisor", "purple"},
		[NAME_IDLE] = {"Idle", "transparent"},
	};

	fputs(",\n\"categories\":[{\"name\":\"Other\",\"color\":\"grey\",\"subcategories\":["
	      "\"Other\"]}",
	      out);
	for (int kind = 0; kind < NAME_KINDS; kind++)
		fprintf(out, ",{\"name\":\"%s\",\"color\":\"%s\",\"subcategories\":[\"Other\"]}",
			kinds[kind].name, kinds[kind].color);
	putc(']', out);
}

/* Numbers in JavaScript are exact up to here. */
#define MAX_EXACT (UINT64_C(1) << 53)

static struct error *number_text(struct firefox_texts *texts, const char *text)
{
	uint32_t id;
	bool added;

	TRY(ids_get(texts->ids, (uintptr_t)text, 0, &id, &added));
	TRY(ARRAY_RESERVE(&texts->at, &texts->room, id + (size_t)1));
	texts->at[id] = text;
	return NULL;
}

/* Of a text that has one. */
static uint32_t number_of(const struct firefox_texts *texts, const char *text)
{
	uint32_t id = 0;

	(void)ids_find(texts->ids, (uintptr_t)text, 0, &id);
	return id;
}

static struct error *number_texts(struct firefox *f)
{
	const struct location_table *p = f->table;
	const char *pause;

	TRY(ids_new(&f->strings.ids));
	TRY(ids_new(&f->files.ids));
	for (uint32_t i = 0; i < p->n_functions; i++) {
		TRY(number_text(&f->strings, p->functions[i].name));
		if (!p->functions[i].file)
			continue;
		TRY(number_text(&f->strings, p->functions[i].file));
		TRY(number_text(&f->files, p->functions[i].file));
	}
	for (uint32_t i = 0; i < p->n_images; i++)
		TRY(number_text(&f->strings, p->images[i].path));
	TRY(symbolizer_intern(f->job->symbolizer, FIREFOX_PAUSE, &pause));
	TRY(number_text(&f->strings, pause));
	f->pause_name = number_of(&f->strings, pause);
	return NULL;
}

static void find_images(struct firefox *f)
{
	for (uint32_t i = 0; i < f->table->n_functions; i++)
		f->image_of[i] = LOCATION_NONE;
	for (uint32_t i = 0; i < f->table->n; i++) {
		const uint32_t image = f->table->at[i].image;

		for (uint32_t k = 0; image != LOCATION_NONE && k < location_answer(f->table, i)->n;
		     k++)
			f->image_of[location_place(f->table, i, k)->function] = image;
	}
}

/* Numbers all that the tables refer to. */
static struct error *number_all(struct firefox *f)
{
	uint32_t n = stacks_count(f->job->profile->stacks);

	f->stack_of = array_zeros(n, sizeof(*f->stack_of));
	f->categories = calloc(2 * (size_t)f->table->n_functions + 1, sizeof(*f->categories));
	f->image_of = calloc(f->table->n_functions + (size_t)1, sizeof(*f->image_of));
	if (!f->stack_of || !f->categories || !f->image_of)
		return error_no_memory();
	find_images(f);
	for (uint32_t id = 1; id < n; id++) {
		if (!f->table->used[id])
			continue;
		f->n_stacks += location_answer(f->table, location_entry_of(f->table, id))->n;
		f->stack_of[id] = f->n_stacks - 1;
	}
	return number_texts(f);
}

/* Writes "key":[...]; `put` writes the elements 0 to n - 1, or each is `value` if that is not NULL. */
static void put_column(struct firefox *f, const char *key, uint32_t n,
		       void (*put)(struct firefox *f, uint32_t i), const char *value)
{
	fprintf(f->out, "\"%s\":[", key);
	for (uint32_t i = 0; i < n; i++) {
		if (i)
			putc_unlocked(',', f->out);
		if (value)
			fputs_unlocked(value, f->out);
		else
			put(f, i);
	}
	fputs("],\n", f->out);
}

static void column(struct firefox *f, const char *key, uint32_t n,
		   void (*put)(struct firefox *f, uint32_t i))
{
	put_column(f, key, n, put, NULL);
}

/* A column with one value in every row. */
static void constant(struct firefox *f, const char *key, uint32_t n, const char *value)
{
	put_column(f, key, n, NULL, value);
}

/* A column of the frame table; `put` writes the element of function k of an entry. */
static void frames_column(struct firefox *f, const char *key,
			  void (*put)(struct firefox *f, uint32_t entry, uint32_t k))
{
	fprintf(f->out, "\"%s\":[", key);
	for (uint32_t i = 0; i < f->table->n; i++)
		for (uint32_t k = 0; k < location_answer(f->table, i)->n; k++) {
			if (i || k)
				putc_unlocked(',', f->out);
			put(f, i, k);
		}
	fputs("],\n", f->out);
}

static void put_code(struct firefox *f, uint32_t entry, uint32_t k)
{
	const uint64_t addr = location_code(f->table, entry);
	const uint32_t image = f->table->at[entry].image;
	const uint64_t code = image != LOCATION_NONE ? addr - f->table->images[image].slide : addr;

	if (addr && code < MAX_EXACT)
		format_number(code, f->out);
	else
		fputs_unlocked("-1", f->out);
}

static void put_depth(struct firefox *f, uint32_t entry, uint32_t k)
{
	format_number(location_answer(f->table, entry)->n - 1 - k, f->out);
}

static void put_function(struct firefox *f, uint32_t entry, uint32_t k)
{
	format_number(location_place(f->table, entry, k)->function, f->out);
}

static void put_line(struct firefox *f, uint32_t entry, uint32_t k)
{
	const uint32_t line = location_place(f->table, entry, k)->line;

	if (line)
		format_number(line, f->out);
	else
		fputs_unlocked("null", f->out);
}

/* Behind the first one. */
static void put_category(struct firefox *f, uint32_t entry, uint32_t k)
{
	const uint32_t function = location_place(f->table, entry, k)->function;
	const bool kernel = addr_is_kernels(location_addr(f->table, entry));
	uint8_t *category = &f->categories[2 * (size_t)function + kernel];

	if (!*category)
		*category = (uint8_t)(1 + name_kind_of(f->table->functions[function].name, kernel,
						       f->user));
	format_number(*category, f->out);
}

static bool has_kernel(const struct location_table *table)
{
	for (uint32_t i = 0; i < table->n; i++)
		if (addr_is_kernels(location_addr(table, i)))
			return true;
	return false;
}

static void put_frame_table(struct firefox *f)
{
	uint32_t n = f->table->n_lines;

	fputs("\"frameTable\":{", f->out);
	frames_column(f, "address", put_code);
	frames_column(f, "inlineDepth", put_depth);
	frames_column(f, "func", put_function);
	frames_column(f, "line", put_line);
	constant(f, "column", n, "null");
	frames_column(f, "category", put_category);
	constant(f, "subcategory", n, "0");
	constant(f, "nativeSymbol", n, "null");
	constant(f, "innerWindowID", n, "0");
	fprintf(f->out, "\"length\":%" PRIu32 "},\n", n);
}

static void put_function_name(struct firefox *f, uint32_t i)
{
	format_number(number_of(&f->strings, f->table->functions[i].name), f->out);
}

static void put_source(struct firefox *f, uint32_t i)
{
	if (f->table->functions[i].file)
		format_number(number_of(&f->files, f->table->functions[i].file), f->out);
	else
		fputs("null", f->out);
}

static void put_resource(struct firefox *f, uint32_t i)
{
	if (f->image_of[i] == LOCATION_NONE)
		fputs_unlocked("-1", f->out);
	else
		format_number(f->image_of[i], f->out);
}

static void put_function_table(struct firefox *f)
{
	uint32_t n = f->table->n_functions;

	fputs("\"funcTable\":{", f->out);
	column(f, "name", n, put_function_name);
	constant(f, "isJS", n, "false");
	constant(f, "relevantForJS", n, "false");
	column(f, "resource", n, put_resource);
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
		uint32_t parent = stacks_node(stacks, id)->parent, entry;
		int64_t prefix = parent == STACK_ROOT ? -1 : (int64_t)f->stack_of[parent];

		if (!f->table->used[id])
			continue;
		entry = location_entry_of(f->table, id);
		for (uint32_t k = location_answer(f->table, entry)->n; k > 0; k--) {
			if (!first)
				putc_unlocked(',', f->out);
			first = false;
			put(f->out, f->table->at[entry].lines + k - 1, prefix);
			prefix = (int64_t)f->stack_of[id] - (k - 1);
		}
	}
	fputs("],\n", f->out);
}

static void put_stack_frame(FILE *out, uint32_t line, int64_t prefix)
{
	format_number(line, out);
}

static void put_stack_prefix(FILE *out, uint32_t line, int64_t prefix)
{
	if (prefix < 0)
		fputs_unlocked("null", out);
	else
		format_number((uint64_t)prefix, out);
}

static void put_index(struct firefox *f, uint32_t i)
{
	format_number(i, f->out);
}

static void put_image_name(struct firefox *f, uint32_t i)
{
	format_number(number_of(&f->strings, f->table->images[i].path), f->out);
}

static void put_resource_table(struct firefox *f)
{
	uint32_t n = f->table->n_images;

	fputs("\"resourceTable\":{", f->out);
	column(f, "lib", n, put_index);
	column(f, "name", n, put_image_name);
	constant(f, "host", n, "null");
	/* ResourceType.Library */
	constant(f, "type", n, "1");
	fprintf(f->out, "\"length\":%" PRIu32 "},\n", n);
}

static void put_file_name(struct firefox *f, uint32_t i)
{
	format_number(number_of(&f->strings, f->files.at[i]), f->out);
}

static void put_sources(struct firefox *f)
{
	const uint32_t n = ids_count(f->files.ids);

	fputs("\"sources\":{", f->out);
	column(f, "filename", n, put_file_name);
	constant(f, "id", n, "null");
	constant(f, "startLine", n, "1");
	constant(f, "startColumn", n, "1");
	constant(f, "sourceMapURL", n, "null");
	fprintf(f->out, "\"length\":%" PRIu32 "},\n", n);
}

static void put_text(struct firefox *f, uint32_t i)
{
	format_json_text(f->strings.at[i], f->out);
}

/* "shared": all tables. */
static void put_tables(struct firefox *f)
{
	fputs("\"shared\":{", f->out);
	column(f, "stringArray", ids_count(f->strings.ids), put_text);
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

/* Markers are shown by what this says. */
static void put_marker_schema(const struct firefox *f)
{
	fputs("[{\"name\":\"" FIREFOX_PAUSE "\",\"display\":[\"marker-chart\",\"marker-table\","
	      "\"timeline-overview\"],\"tooltipLabel\":\"Guest paused for a sample\","
	      "\"fields\":[],\"description\":\"The guest stood still for a sample.",
	      f->out);
	if (f->shortest_pause > 1)
		fprintf(f->out, " Pauses shorter than %.3f \u00b5s are not shown.",
			f->shortest_pause / 1e3);
	fputs("\"}]", f->out);
}

static struct error *put_meta(struct firefox *f)
{
	const struct recording_info *info = &f->job->profile->info;
	const char *title;

	TRY(format_guest_name(f->job, &f->guest));
	TRY(format_guest_title(f->job, &title));
	fprintf(f->out,
		"{\"meta\":{\"version\":%d,\"preprocessedProfileVersion\":%d,\"processType\":0,"
		"\"stackwalk\":1,\"symbolicated\":true,\"usesOnlyOneStackType\":true,"
		"\"sourceCodeIsNotOnSearchfox\":true,"
		"\"sampleUnits\":{\"time\":\"ms\",\"eventDelay\":\"ms\",\"threadCPUDelta\":\"ns\"},"
		"\"interval\":%g,\"startTime\":%.3f,\"importedFrom\":\"uniprof\","
		"\"markerSchema\":",
		FIREFOX_GECKO_VERSION, FIREFOX_VERSION, info->rate_hz > 0 ? 1e3 / info->rate_hz : 1,
		(double)info->start_unix_ns / 1e6);
	put_marker_schema(f);
	put_categories(f->out);
	format_json_field(",\n\"product\":", f->guest, f->out);
	format_json_field(",\"arguments\":", title, f->out);
	fputs("},\n", f->out);
	return NULL;
}

/*
 * The id in the manner of Breakpad: the first 16 bytes of the build id as a
 * GUID, whose first three numbers are little-endian, and an age of 0.
 */
static void put_breakpad_id(const char *build_id, FILE *out)
{
	static const int order[] = {3, 2, 1, 0, 5, 4, 7, 6, 8, 9, 10, 11, 12, 13, 14, 15};
	size_t len = build_id ? strlen(build_id) : 0;

	putc('"', out);
	for (int i = 0; len && i < 16; i++)
		for (int k = 0; k < 2; k++) {
			size_t at = 2 * (size_t)order[i] + (size_t)k;

			putc(at < len ? toupper((unsigned char)build_id[at]) : '0', out);
		}
	fputs(len ? "0\"" : "\"", out);
}

static void put_libs(const struct firefox *f)
{
	fputs("\"libs\":[", f->out);
	for (uint32_t i = 0; i < f->table->n_images; i++) {
		const struct location_image *image = &f->table->images[i];
		const char *name = basename(image->path);

		format_json_field(i ? ",\n{\"arch\":\"\",\"name\":" : "{\"arch\":\"\",\"name\":",
				  name, f->out);
		format_json_field(",\"path\":", image->path, f->out);
		format_json_field(",\"debugName\":", name, f->out);
		format_json_field(",\"debugPath\":", image->path, f->out);
		fputs(",\"breakpadId\":", f->out);
		put_breakpad_id(image->build_id, f->out);
		fputs(",\"codeId\":", f->out);
		if (image->build_id)
			format_json_text(image->build_id, f->out);
		else
			fputs("null", f->out);
		putc('}', f->out);
	}
	fputs("],\n", f->out);
}

static struct error *put_all(struct firefox *f)
{
	static const struct track nothing;

	TRY(location_table_new(f->job, &f->table));
	f->user = has_kernel(f->table) || recording_is_of_process(&f->job->profile->info);
	TRY(number_all(f));
	TRY(samples_collect(f->job, &f->samples));
	TRY(firefox_choose_pauses(f));
	TRY(put_meta(f));
	put_libs(f);
	put_tables(f);
	fputs(",\n\"threads\":[\n", f->out);
	for (size_t i = 0; i < f->samples->n_tracks; i++) {
		fputs(i ? ",\n" : "", f->out);
		TRY(firefox_put_track(f, &f->samples->tracks[i]));
	}
	if (!f->samples->n)
		TRY(firefox_put_track(f, &nothing));
	fputs("]}\n", f->out);
	return NULL;
}

static struct error *write_firefox(const struct format_job *job, FILE *out)
{
	struct firefox f = {.job = job, .out = out, .pid = format_guest_pid(job)};
	struct error *err = put_all(&f);

	location_table_free(f.table);
	ids_free(f.strings.ids);
	ids_free(f.files.ids);
	free(f.strings.at);
	free(f.files.at);
	free(f.image_of);
	free(f.stack_of);
	free(f.categories);
	return error_first(err, samples_free(f.samples));
}

const struct format format_firefox = {.name = "firefox",
				      .ending = ".firefox.json",
				      .columns = true,
				      .write = write_firefox};
