/* SPDX-License-Identifier: BSD-3-Clause */
#include "cmd/history.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "agent/store.h"
#include "base/clock.h"
#include "format/format.h"
#include "view/json.h"

#define HISTORY_VERSION 1

#define TEXT_ROWS 8
#define PAGE_ROWS 12
#define ROWS_MAX  26 /* a letter each */

/* Columns of text that goes to no terminal; those beside the chart; buckets of a page; of all. */
#define PIPE_WIDTH   80
#define AXIS_WIDTH   8
#define PAGE_BUCKETS 720
#define BUCKETS_MAX  20000

#define TITLE_CELLS 1000

/* The stretch of a guest when none was given. */
#define ALL_NS (7 * 86400 * NS_PER_S)

static struct error *take_key(const struct option_row *row, const char *value, void *to)
{
	struct history_args *args = to;
	const char *bad;

	if (option_word(row, value) >= 0 && group_by_parse(value, &args->keys, &bad))
		return NULL;
	return option_error(row, value, "it is one of %s", row->values);
}

#define AT(field) offsetof(struct history_args, field)

static const struct option_row own_options[] = {
	{"by", "KEY", 'b', take_key,
	 .text = "a band is a function (the default), line, file, image, vcpu, process, thread or "
		 "container",
	 .values = "function line file image vcpu process thread container"},
	{"rows", "N", 'n', take_count, AT(rows), 1, ROWS_MAX,
	 .text = "bands for the N that took most (default: 8, pages and JSON 12); all others are "
		 "one "
		 "more"},
	{"step", "T", 0, take_duration, AT(step_ns),
	 .text = "a column stands for so much: 10m, 1h (default: so that all fits)"},
	{"html", NULL, 0, take_true, AT(html),
	 .text = "a page, in which a stretch can be chosen (also when FILE ends in .html)"},
	{"json", NULL, 0, take_true, AT(json), .text = "for programs"},
	{"title", "TEXT", 0, take_text, AT(title), .text = "above the page"},
	{"full-names", NULL, 0, take_true, AT(full_names),
	 .text = "names with return types, arguments and all template arguments"},
	{"color", "WHEN", 0, take_word, AT(color),
	 .text = "auto (the default: on a terminal), always, never", .values = "auto always never"},
	{0}};

static const struct option_group options_of_history[] = {{load_options, AT(load)},
							 {own_options, 0},
							 {0}};

static struct error *parse(int argc, char **argv, struct history_args *args)
{
	struct load_window *window = &args->load.window;

	*args = (struct history_args){.keys = {.at = {GROUP_FUNCTION}, .n = 1}};
	load_defaults(&args->load);
	TRY(options_parse_one(&verb_history, argc, argv, args, "one guest, please",
			      &args->load.path));
	if (!strcmp(args->load.path, "-"))
		return cmd_usage_error(&verb_history, "a recording is read twice: not from "
						      "standard input");
	if (!args->json)
		args->html |= picture_has_ending(args->load.output, ".html");
	if (!args->rows)
		args->rows = args->html || args->json ? PAGE_ROWS : TEXT_ROWS;
	args->all = !window->last_ns && !window->from && !window->to;
	if (args->all && access(args->load.path, F_OK))
		window->last_ns = ALL_NS;
	args->load.filter.divide = group_by_divide(&args->keys);
	if (args->step_ns % NS_PER_S)
		return cmd_usage_error(&verb_history, "--step: whole seconds, please");
	return args->load.filter.states & STATES_OF_WAITS
		       ? cmd_usage_error(&verb_history, "a load is of vCPUs: not of threads that "
							"do not run")
		       : NULL;
}

double history_load(const struct history *history, uint32_t bucket, uint32_t row)
{
	const struct load_series *series = &history->series;
	const uint64_t recorded_ns = series->buckets[bucket].recorded_ns;
	const uint64_t weight_ns = series->weight_ns[(size_t)bucket * series->rows + row];

	return recorded_ns ? (double)weight_ns / (double)recorded_ns : 0;
}

double history_waiting(const struct history *history, uint32_t bucket)
{
	const struct load_bucket *at = &history->series.buckets[bucket];

	return history->waits && at->recorded_ns
		       ? (double)at->state_ns[VCPU_RUNNABLE] / (double)at->recorded_ns
		       : 0;
}

double history_busy(const struct history *history, uint32_t bucket)
{
	double sum = 0;

	for (uint32_t row = 0; row < history->series.rows; row++)
		sum += history_load(history, bucket, row);
	return sum;
}

/*
 * Time of a row in a bucket; with `row` LOAD_NO_ROW of a state or, with `state` VCPU_STATES, all
 * that was recorded.
 */
static uint64_t ns_in(const struct history *history, uint32_t bucket, uint32_t row, unsigned state)
{
	const struct load_series *series = &history->series;

	if (row != LOAD_NO_ROW)
		return series->weight_ns[(size_t)bucket * series->rows + row];
	return state < VCPU_STATES ? series->buckets[bucket].state_ns[state]
				   : series->buckets[bucket].recorded_ns;
}

static uint64_t sum_ns(const struct history *history, uint32_t row, unsigned state)
{
	uint64_t sum = 0;

	for (uint32_t i = 0; i < history->series.n; i++)
		sum = weight_sum(sum, ns_in(history, i, row, state));
	return sum;
}

uint64_t history_recorded_ns(const struct history *history)
{
	return sum_ns(history, LOAD_NO_ROW, VCPU_STATES);
}

uint64_t history_row_ns(const struct history *history, uint32_t row)
{
	return sum_ns(history, row, 0);
}

uint64_t history_state_ns(const struct history *history, unsigned state)
{
	return sum_ns(history, LOAD_NO_ROW, state);
}

const char *history_name(const struct history *history, uint32_t row, size_t *len)
{
	const char *name = history->grouped.flat->rows[row].name;

	*len = strlen(name);
	if (history->args->keys.at[0] != GROUP_FUNCTION)
		return name;
	return short_names_get(history->names, name, len);
}

/* The rows that are shown are the first; all others have their samples in the one behind. */
static struct error *choose_rows(struct history *history)
{
	const struct flat *flat = history->grouped.flat;

	while (history->n < flat->n && history->n < history->args->rows &&
	       flat->rows[history->n].self.weight_ns)
		history->n++;
	history->series.rows = history->n + 1;
	if (!history->args->full_names && history->args->keys.at[0] == GROUP_FUNCTION)
		TRY(short_names_new(&history->names));
	for (uint32_t i = 0; history->names && i < history->n; i++)
		TRY(short_names_add(history->names, flat->rows[i].name,
				    strlen(flat->rows[i].name)));
	return NULL;
}

/* What alone decides in which row a sample is; it is below *n. */
static uint32_t subject(const struct history *history, const struct tick_entry *entry, uint32_t *n)
{
	const struct profile *profile = history->loaded.profile;

	switch (history->args->keys.at[0]) {
	case GROUP_VCPU:
		*n = NO_VCPU + 1;
		return entry->vcpu;
	case GROUP_CONTAINER:
	case GROUP_PROCESS:
	case GROUP_THREAD:
		*n = (uint32_t)profile->n_threads + 1;
		return entry->thread;
	default:
		*n = stacks_count(profile->stacks);
		return entry->stack;
	}
}

static uint32_t find_row(const struct history *history, const char *name)
{
	for (uint32_t i = 0; name && i < history->n; i++)
		if (!strcmp(history->grouped.flat->rows[i].name, name))
			return i;
	return history->n;
}

static struct error *row_of(void *ctx, const struct tick_entry *entry, uint32_t *row)
{
	struct history *history = ctx;
	const struct group_rows rows = {.profile = history->loaded.profile,
					.symbolizer = history->loaded.symbolizer,
					.images = history->loaded.images,
					.keys = &history->args->keys,
					.pool = history->grouped.pool};
	const char *name;
	uint32_t n, at = subject(history, entry, &n);

	*row = history->n;
	if (at >= n)
		return NULL;
	if (!history->row_of[at]) {
		TRY(group_sample_name(&rows, entry, &name));
		history->row_of[at] = 1 + find_row(history, name);
	}
	*row = history->row_of[at] - 1;
	return NULL;
}

/* What is shown: what was asked for, though nothing was recorded there; else what was recorded. */
static struct error *choose_stretch(struct history *history)
{
	const struct load_options *load = &history->args->load;
	const struct profile *profile = history->loaded.profile;
	const uint64_t start_ns = profile->info.start_unix_ns;
	uint64_t from_ns, to_ns;

	TRY(load_find_window(&load->window, &from_ns, &to_ns));
	if (profile->info.timeless || !start_ns || profile->info.weight_unit)
		return error_new(ERR_USAGE, "this profile does not tell when its samples were "
					    "taken, or no time that they stand for: it has no "
					    "history");
	if (!from_ns || history->args->all)
		from_ns = start_ns + load->filter.from_ns;
	if (!to_ns)
		to_ns = load->window.from ? clock_unix_ns() : start_ns + profile->last_ns + 1;
	if (load->filter.to_ns && start_ns + load->filter.to_ns < to_ns)
		to_ns = start_ns + load->filter.to_ns;
	history->from_s = (int64_t)(from_ns / NS_PER_S);
	history->to_s = (int64_t)((to_ns - 1) / NS_PER_S) + 1;
	if (history->to_s <= history->from_s)
		history->to_s = history->from_s + 1;
	return NULL;
}

/* Buckets begin at round times of the local clock. */
static struct error *choose_buckets(struct history *history, uint32_t most)
{
	static const int64_t steps[] = {1,     2,     5,     10,    15,	   20,	  30,	  60,
					120,   300,   600,   900,   1200,  1800,  3600,	  7200,
					10800, 14400, 21600, 28800, 43200, 86400, 172800, 604800};
	struct load_series *series = &history->series;
	const time_t from = (time_t)history->from_s;
	int64_t step_s = (int64_t)(history->args->step_ns / NS_PER_S), first_s, n;
	struct tm tm = {0};
	size_t i = 0;

	localtime_r(&from, &tm);
	do {
		if (!history->args->step_ns)
			step_s = i < sizeof(steps) / sizeof(*steps) ? steps[i] : step_s * 2;
		first_s = (history->from_s + tm.tm_gmtoff) / step_s * step_s - tm.tm_gmtoff;
		n = (history->to_s - first_s - 1) / step_s + 1;
		i++;
	} while (!history->args->step_ns && n > most);
	if (n > BUCKETS_MAX || first_s < 0)
		return error_new(ERR_USAGE,
				 "--step: that is %" PRIi64 " columns; at most %d, please", n,
				 BUCKETS_MAX);
	series->from_unix_ns = (uint64_t)first_s * NS_PER_S;
	series->bucket_ns = (uint64_t)step_s * NS_PER_S;
	series->n = (uint32_t)n;
	return NULL;
}

static struct error *collect(struct history *history, uint32_t most_buckets)
{
	const struct history_args *args = history->args;
	const struct loaded *loaded = &history->loaded;
	const struct grouped_tree_options how = {.keys = args->keys, .flat = true};
	const struct load_rows rows = {history, row_of};
	struct error *err;
	uint32_t n;

	history->waits = args->load.filter.states == 1u << VCPU_RUNNING;
	if (group_by_threads(&args->keys))
		TRY(load_check_threads(loaded->profile, "--by"));
	TRY(choose_stretch(history));
	TRY(choose_buckets(history, most_buckets));
	TRY(grouped_tree_build(loaded->profile, loaded->symbolizer, loaded->images, &how,
			       &history->grouped));
	TRY(choose_rows(history));
	(void)subject(history, &(struct tick_entry){0}, &n);
	history->row_of = calloc(n, sizeof(*history->row_of));
	err = history->row_of ? load_series_read(args->load.path, loaded->profile,
						 &args->load.filter, &rows, &history->series)
			      : error_no_memory();
	progress_end(loaded->progress);
	return err;
}

/* As of ns_in(), of each bucket. */
static json_t *times_json(const struct history *history, uint32_t row, unsigned state)
{
	json_t *array = json_array();

	for (uint32_t i = 0; i < history->series.n; i++)
		json_array_append_new(array,
				      json_integer((json_int_t)ns_in(history, i, row, state)));
	return array;
}

static json_t *row_json(const struct history *history, uint32_t row)
{
	const uint64_t all_ns = history->loaded.profile->selected.weight_ns;
	const uint64_t row_ns = history_row_ns(history, row);
	const char *name = "";
	size_t len = 0;

	if (row < history->n)
		name = history_name(history, row, &len);
	return json_pack("{s:o, s:I, s:f, s:o}", "name",
			 row < history->n ? json_stringn_nocheck(name, len) : json_null(),
			 "weight_ns", (json_int_t)row_ns, "share",
			 all_ns ? (double)row_ns / (double)all_ns : 0, "weights_ns",
			 times_json(history, row, 0));
}

static json_t *guest_json(const struct history *history)
{
	const struct profile *profile = history->loaded.profile;
	FREED char *line = format_guest_line(profile);

	return json_pack("{s:o, s:o, s:o, s:o, s:I, s:o}", "target",
			 json_text(profile->info.target), "id", json_text(profile->info.guest_id),
			 "name", json_text(profile->info.guest_name), "type",
			 json_text(profile->info.guest_type), "vcpus",
			 (json_int_t)profile_vcpus(profile), "line", json_text(line));
}

static json_t *states_json(const struct history *history)
{
	json_t *object = json_object();

	for (unsigned i = 0; i < VCPU_STATES; i++)
		json_object_set_new(object, sample_state_text(i),
				    times_json(history, LOAD_NO_ROW, i));
	return object;
}

/* docs/report.md describes it. NULL: no memory. */
static json_t *to_json(const struct history *history)
{
	const struct load_series *series = &history->series;
	const struct history_args *args = history->args;
	json_t *rows = json_array();

	for (uint32_t i = 0; i < series->rows; i++)
		json_array_append_new(rows, row_json(history, i));
	return json_pack("{s:s, s:i, s:o, s:o, s:o, s:o, s:o, s:s, s:I, s:I, s:I, s:I, s:b, s:I, "
			 "s:o, s:o, s:o}",
			 "format", "uniprof-history", "version", HISTORY_VERSION, "warning",
			 json_text(history->loaded.warning), "title", json_text(args->title),
			 "asked", json_text(args->load.path), "store",
			 json_text(args->load.window.store), "guest", guest_json(history), "key",
			 group_key_text(args->keys.at[0]), "from_s", (json_int_t)history->from_s,
			 "to_s", (json_int_t)history->to_s, "first_s",
			 (json_int_t)(series->from_unix_ns / NS_PER_S), "step_s",
			 (json_int_t)(series->bucket_ns / NS_PER_S), "waits", history->waits,
			 "weight_ns", (json_int_t)history->loaded.profile->selected.weight_ns,
			 "recorded_ns", times_json(history, LOAD_NO_ROW, VCPU_STATES), "states_ns",
			 states_json(history), "rows", rows);
}

/* A "<" could end the element that the text goes into. */
static void put_escaped(const char *text, FILE *out)
{
	for (; *text; text++)
		if (*text == '<')
			fputs("\\u003c", out);
		else
			fputc(*text, out);
}

static struct error *put_page(const struct history *history, FILE *out)
{
	const struct recording_info *info = &history->loaded.profile->info;
	const char *title = history->args->title ?: info->guest_name ?: "guest";
	json_auto_t *object = to_json(history);
	FREED char *text = object ? json_dumps(object, JSON_COMPACT) : NULL;

	if (!text)
		return error_no_memory();
	fputs(history_before_title, out);
	flamegraph_put_text(out, title, TITLE_CELLS);
	fputs(history_before_data, out);
	put_escaped(text, out);
	fputs(history_behind_data, out);
	return NULL;
}

static struct error *put(const struct history *history, const struct tty_writer *terminal,
			 FILE *out)
{
	struct tty_writer writer = *terminal;

	if (history->args->json)
		return json_write(to_json(history), JSON_COMPACT, out);
	if (history->args->html)
		return put_page(history, out);
	writer.out = out;
	history_put_text(history, &writer);
	return NULL;
}

static struct error *show(struct history *history, const struct tty_writer *terminal)
{
	const struct history_args *args = history->args;
	const size_t width = terminal->width ? terminal->width : PIPE_WIDTH;
	const uint32_t columns = width > 2 * AXIS_WIDTH ? (uint32_t)width - AXIS_WIDTH : AXIS_WIDTH;
	FILE *out;

	TRY(load_confine(&args->load));
	TRY(load_recording(&args->load, &history->loaded));
	TRY(collect(history, args->json || args->html ? PAGE_BUCKETS : columns));
	TRY(cmd_open_output(args->load.output, &out));
	return cmd_close_output(args->load.output, out, put(history, terminal, out));
}

static void history_free(struct history *history)
{
	load_series_free(&history->series);
	free(history->row_of);
	short_names_free(history->names);
	grouped_tree_free(&history->grouped);
	load_free(&history->loaded);
}

static struct error *run_history(int argc, char **argv, int *status)
{
	struct history_args args;
	ENDED_BY(history_free) struct history history = {.args = &args};
	struct tty_writer terminal;

	TRY(parse(argc, argv, &args));
	/* The zone's file is read before rights are given up. */
	tzset();
	tty_writer_init(args.color, &terminal);
	if (args.load.output)
		terminal.width = 0;
	TRY(show(&history, &terminal));
	if (args.html && history.loaded.warning)
		cmd_say("warning: %s", history.loaded.warning);
	return NULL;
}

const struct verb verb_history = {
	.name = "history",
	.summary = "draw the load of a guest over hours and days",
	.arguments = "[options] GUEST",
	.about = "Draws how many vCPUs of a guest were busy over hours and days, and with what, "
		 "from\n"
		 "what uniprof agent has recorded (default: the last seven days), or from a "
		 "recording.\n",
	.options = options_of_history,
	.takes = TAKES_FILES,
	.run = run_history,
};
