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
	const struct location_table *p = f->table;
	size_t most = 2 * (size_t)p->n_functions + p->n_images + 2;
	const char *pause;
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
	if (!err)
		err = symbolizer_intern(f->job->symbolizer, FIREFOX_PAUSE, &pause);
	if (!err)
		err = number_text(f, pause);
	if (!err)
		err = ids_get(f->strings, (uintptr_t)pause, 0, &f->pause_name, &added);
	return err;
}

/* Numbers all that the tables refer to. */
static struct error *number_all(struct firefox *f)
{
	uint32_t n = stacks_count(f->job->profile->stacks);

	f->stack_of = array_zeros(n, sizeof(*f->stack_of));
	f->categories = calloc(2 * (size_t)f->table->n_functions + 1, sizeof(*f->categories));
	if (!f->stack_of || !f->categories)
		return error_no_memory();
	for (uint32_t id = 1; id < n; id++) {
		if (!f->table->used[id])
			continue;
		f->n_stacks += location_answer(f->table, location_entry_of(f->table, id))->n;
		f->stack_of[id] = f->n_stacks - 1;
	}
	return number_texts(f);
}

/* Lookup only: the thing has a number already, so this cannot fail. */
static uint32_t number_of(struct ids *ids, const void *thing)
{
	uint32_t id = 0;
	bool added;

	error_free(ids_get(ids, (uintptr_t)thing, 0, &id, &added));
	return id;
}

/* Writes "key":[...]; `put` writes the elements 0 to n - 1. */
static void column(struct firefox *f, const char *key, uint32_t n,
		   void (*put)(struct firefox *f, uint32_t i))
{
	fprintf(f->out, "\"%s\":[", key);
	for (uint32_t i = 0; i < n; i++) {
		if (i)
			putc_unlocked(',', f->out);
		put(f, i);
	}
	fputs("],\n", f->out);
}

/* A column with one value in every row. */
static void constant(struct firefox *f, const char *key, uint32_t n, const char *value)
{
	fprintf(f->out, "\"%s\":[", key);
	for (uint32_t i = 0; i < n; i++) {
		if (i)
			putc_unlocked(',', f->out);
		fputs_unlocked(value, f->out);
	}
	fputs("],\n", f->out);
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
	fprintf(f->out, "%" PRIu32, number_of(f->strings, f->table->functions[i].name));
}

static void put_source(struct firefox *f, uint32_t i)
{
	if (f->table->functions[i].file)
		fprintf(f->out, "%" PRIu32, number_of(f->files, f->table->functions[i].file));
	else
		fputs("null", f->out);
}

/* The image of each function: that of its last entry that is in an image. */
static void put_resources(struct firefox *f)
{
	uint32_t n = f->table->n_functions;
	int64_t *image = malloc((n + (size_t)1) * sizeof(*image));

	fputs("\"resource\":[", f->out);
	for (uint32_t i = 0; image && i < n; i++)
		image[i] = -1;
	for (uint32_t i = 0; image && i < f->table->n; i++) {
		const uint32_t in = f->table->at[i].image;

		for (uint32_t k = 0; in != LOCATION_NONE && k < location_answer(f->table, i)->n;
		     k++)
			image[location_place(f->table, i, k)->function] = in;
	}
	for (uint32_t i = 0; i < n; i++)
		fprintf(f->out, "%s%" PRId64, i ? "," : "", image ? image[i] : -1);
	fputs("],\n", f->out);
	free(image);
}

static void put_function_table(struct firefox *f)
{
	uint32_t n = f->table->n_functions;

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
	fprintf(f->out, "%" PRIu32, i);
}

static void put_image_name(struct firefox *f, uint32_t i)
{
	fprintf(f->out, "%" PRIu32, number_of(f->strings, f->table->images[i].path));
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

/* Files were numbered in the order of the functions that name them first. */
static void put_sources(struct firefox *f)
{
	uint32_t n = ids_count(f->files), next = 0;

	fputs("\"sources\":{\"filename\":[", f->out);
	for (uint32_t i = 0; i < f->table->n_functions && next < n; i++) {
		const char *file = f->table->functions[i].file;

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
	format_json_text(f->texts[i], f->out);
}

/* "shared": all tables. */
static void put_tables(struct firefox *f)
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
	struct error *err = format_guest_name(f->job, &f->guest);

	if (!err)
		err = format_guest_title(f->job, &title);
	if (err)
		return err;
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
		const char *slash = strrchr(image->path, '/');
		const char *name = slash ? slash + 1 : image->path;

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
	struct error *err = put_meta(f);

	if (err)
		return err;
	put_libs(f);
	put_tables(f);
	fputs(",\n\"threads\":[\n", f->out);
	for (size_t i = 0; i < f->samples->n_tracks && !err; i++) {
		fputs(i ? ",\n" : "", f->out);
		err = firefox_put_track(f, &f->samples->tracks[i]);
	}
	if (!f->samples->n)
		err = firefox_put_track(f, &nothing);
	fputs("]}\n", f->out);
	return err;
}

static struct error *write_firefox(const struct format_job *job, FILE *out)
{
	struct firefox f = {.job = job, .out = out, .pid = format_guest_pid(job)};
	struct error *err = location_table_new(job, &f.table);

	if (!err) {
		f.user = has_kernel(f.table) || recording_is_of_process(&job->profile->info);
		err = ids_new(&f.strings);
	}
	if (!err)
		err = ids_new(&f.files);
	if (!err)
		err = number_all(&f);
	if (!err)
		err = samples_collect(job, &f.samples);
	if (!err)
		err = firefox_choose_pauses(&f);
	if (!err)
		err = put_all(&f);
	location_table_free(f.table);
	ids_free(f.strings);
	ids_free(f.files);
	free(f.texts);
	free(f.stack_of);
	free(f.categories);
	return error_first(err, samples_free(f.samples));
}

const struct format format_firefox = {.name = "firefox",
				      .ending = ".firefox.json",
				      .columns = true,
				      .write = write_firefox};
