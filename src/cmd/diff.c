/* SPDX-License-Identifier: BSD-3-Clause */
#include <stdlib.h>
#include <string.h>

#include "base/owned.h"
#include "cmd/shared/load.h"
#include "view/diff.h"

#define DEFAULT_ROWS 40

/* Exit status when a share has grown by more than --fail-above; errors have those below. */
#define EXIT_ABOVE 8

struct diff_args {
	struct load_options before;
	const char *after;
	uint64_t against_ns; /* the first is that much earlier than the second; 0: two recordings */
	char *earlier;	     /* ... and what it is called */
	uint64_t rows;
	enum diff_order order;
	bool json, svg, html, full_names, wide;
	const char *title;
	double min_share;
	enum color_mode color;
	struct tty_writer terminal;
	double fail_above; /* share; 0: never */
};

static struct error *take_sort(const struct option_row *row, const char *value, void *to)
{
	struct diff_args *options = to;

	options->order = strcmp(value, "total") ? DIFF_BY_SELF : DIFF_BY_TOTAL;
	if (options->order == DIFF_BY_TOTAL || !strcmp(value, "self"))
		return NULL;
	return cmd_usage_error(&verb_diff, "--sort %s: it is self or total", value);
}

/* "yesterday" is a day. */
static struct error *take_against(const struct option_row *row, const char *value, void *to)
{
	return take_duration(row, strcmp(value, "yesterday") ? value : "1d", to);
}

#define AT(field) offsetof(struct diff_args, field)

static const struct option_row own_options[] = {
	{"against", "T", 0, take_against, AT(against_ns),
	 .text = "compare the stretch of time of one guest or recording with the one so much "
		 "earlier: 1d (or yesterday), 10m",
	 .more = "It takes\n.Fl -last\nor\n.Fl -from\nwith a moment."},
	{"rows", "N", 'n', take_count, AT(rows), 0, UINT32_MAX,
	 .text = "show N functions (default 40; 0: all)"},
	{"min", "PERCENT", 0, take_percent, AT(min_share),
	 .text = "only functions that have at least this share of all, before or after"},
	{"wide", NULL, 'w', take_true, AT(wide),
	 .text = "do not cut names off at the terminal's width"},
	{"color", "WHEN", 0, take_word, AT(color),
	 .text = "auto (the default: on a terminal), always, never", .values = "auto always never"},
	{"sort", "KEY", 0, take_sort, .text = "by the change of: self (the default) or total",
	 .values = "self total"},
	{"json", NULL, 0, take_true, AT(json), .text = "for programs: all functions"},
	{"svg", NULL, 0, take_true, AT(svg),
	 .text = "a flame graph of both, red where there is more than before and blue where there "
		 "is less (also when FILE ends in .svg)",
	 .more = "Boxes are grey where the change may be chance; widths are half of each, so that "
		 "what is in one of them only can be seen, too."},
	{"html", NULL, 0, take_true, AT(html),
	 .text = "a page with such a flame graph, callers and callees, time lines and filters "
		 "(also when FILE ends in .html)"},
	{"fail-above", "PERCENT", 0, take_percent, AT(fail_above),
	 .text = "exit status 8 when a function's own or whole share has grown by more than "
		 "PERCENT "
		 "points, beyond noise",
	 .more = "Not of pictures and pages."},
	{"title", "TEXT", 0, take_text, AT(title), .text = "above the picture"},
	{"full-names", NULL, 0, take_true, AT(full_names),
	 .text = "names with return types, arguments and all template arguments"},
	{0}};

static const struct option_group options_of_diff[] = {{load_options, AT(before)},
						      {own_options, 0},
						      {0}};

/* The recordings, or the one guest whose two stretches are compared. */
static struct error *name_both(struct diff_args *options, int n, char **names)
{
	const struct load_window *window = &options->before.window;

	if (options->against_ns && !window->last_ns && !window->from)
		return cmd_usage_error(&verb_diff, "--against: which time? --last 10m, or --from");
	if (n != (options->against_ns ? 1 : 2))
		return cmd_usage_error(&verb_diff, options->against_ns
							   ? "--against: one guest, please"
							   : "two recordings, please");
	options->before.path = names[0];
	options->after = names[n - 1];
	if (!options->against_ns)
		return strcmp(names[0], "-") || strcmp(names[1], "-")
			       ? NULL
			       : cmd_usage_error(&verb_diff,
						 "only one can come from standard input");
	return asprintf(&options->earlier, "%s, earlier", names[0]) < 0 ? error_no_memory() : NULL;
}

static struct error *parse(int argc, char **argv, struct diff_args *options)
{
	int first;

	*options = (struct diff_args){.rows = DEFAULT_ROWS};
	load_defaults(&options->before);
	TRY(options_parse(&verb_diff, argc, argv, options, &first));
	TRY(name_both(options, argc - first, argv + first));
	if (!options->json && !options->svg)
		options->html |= picture_has_ending(options->before.output, ".html");
	if (!options->json && !options->html)
		options->svg |= picture_has_ending(options->before.output, ".svg");
	if (options->fail_above > 0 && (options->svg || options->html))
		return cmd_usage_error(&verb_diff, "--fail-above judges text and --json");
	return NULL;
}

static struct error *flatten(const struct loaded *loaded, struct flat **flat,
			     struct diff_side *side)
{
	const struct tree_options how = {0};
	ENDED_BY(tree_end) struct tree *tree = NULL;

	TRY(tree_build(loaded->profile, loaded->symbolizer, &how, &tree));
	TRY(flat_new(tree, flat));
	*side = (struct diff_side){.flat = *flat,
				   .profile = loaded->profile,
				   .warning = loaded->warning};
	return NULL;
}

/* Has any function grown by more than `share`, and not by chance? */
static bool has_grown(const struct diff *diff, double share)
{
	for (size_t i = 0; i < diff->n; i++) {
		const struct difference *self = &diff->rows[i].self_change;
		const struct difference *total = &diff->rows[i].total_change;

		if ((self->significant && self->after - self->before > share) ||
		    (total->significant && total->after - total->before > share))
			return true;
	}
	return false;
}

static void put_text(const struct diff *diff, const struct diff_side sides[2],
		     struct short_names *names, const struct diff_args *options, FILE *out)
{
	const struct diff_style style = {.rows = (size_t)options->rows,
					 .min_share = options->min_share,
					 .names = names};
	struct tty_writer writer = options->terminal;

	writer.out = out;
	if (options->wide || options->before.output)
		writer.width = 0;
	diff_write_text(diff, sides, &style, &writer);
}

/* *above: a function's share has grown by more than allowed. */
static struct error *compare(const struct loaded loaded[2], const struct diff_args *options,
			     bool *above, FILE *out)
{
	struct diff_side sides[2] = {0};
	ENDED_BY(flat_end) struct flat *before = NULL;
	ENDED_BY(flat_end) struct flat *after = NULL;
	ENDED_BY(diff_end) struct diff *diff = NULL;
	ENDED_BY(short_names_end) struct short_names *names = NULL;

	TRY(flatten(&loaded[0], &before, &sides[0]));
	TRY(flatten(&loaded[1], &after, &sides[1]));
	TRY(diff_new(&sides[0], &sides[1], options->order, &diff));
	if (!options->full_names)
		TRY(short_names_new(&names));
	for (size_t i = 0; i < diff->n; i++)
		TRY(short_names_add(names, diff->rows[i].name, strlen(diff->rows[i].name)));
	if (options->json)
		TRY(diff_write_json(diff, sides, out));
	else
		put_text(diff, sides, names, options, out);
	if (options->fail_above > 0)
		*above = has_grown(diff, options->fail_above);
	return NULL;
}

/* `samples`: of a page. */
static struct error *show(const struct loaded loaded[2], struct page_samples *const samples[2],
			  const struct diff_args *options, bool *above, FILE *out)
{
	const struct picture_page page = {.load = &options->before,
					  .samples = {samples[0], samples[1]},
					  .options = {.title = options->title ? options->title
									      : "Differences",
						      .full_names = options->full_names}};

	if (options->html)
		return picture_write_page(loaded, 2, &page, out);
	if (options->svg)
		return picture_draw_differences(loaded, options->title, options->full_names, out);
	return compare(loaded, options, above, out);
}

static struct error *load_both(const struct diff_args *options, struct page_samples *samples[2],
			       struct loaded loaded[2])
{
	struct load_options after = options->before, before = options->before;

	after.path = options->after;
	before.path = options->earlier ?: before.path;
	if (options->html) {
		TRY(picture_samples(&before, &samples[0]));
		TRY(picture_samples(&after, &samples[1]));
	}
	TRY(load_preopen(&options->before, before.path, options->against_ns));
	TRY(load_confine(&after));
	TRY(load_recording(&before, &loaded[0]));
	return load_recording(&after, &loaded[1]);
}

static struct error *run_diff(int argc, char **argv, int *status)
{
	struct diff_args options;
	struct page_samples *samples[2] = {NULL};
	struct loaded loaded[2] = {0};
	struct error *err = parse(argc, argv, &options);
	bool above = false;
	FILE *out;

	if (!err) {
		tty_writer_init(options.color, &options.terminal);
		err = load_both(&options, samples, loaded);
	}
	if (!err)
		err = cmd_open_output(options.before.output, &out);
	if (!err)
		err = cmd_close_output(options.before.output, out,
				       show(loaded, samples, &options, &above, out));
	page_samples_free(samples[0]);
	page_samples_free(samples[1]);
	load_free(&loaded[0]);
	load_free(&loaded[1]);
	free(options.earlier);
	if (above)
		*status = EXIT_ABOVE;
	return err;
}

const struct verb verb_diff = {
	.name = "diff",
	.summary = "compare two recordings, and tell changes from noise",
	.arguments = "[options] BEFORE AFTER | --against T --last T GUEST",
	.about =
		"Compares two recordings, function by function, and tells changes from noise.\n"
		"Shares are of the samples of each, so that they need not be of the same length.\n",
	.options = options_of_diff,
	.takes = TAKES_FILES,
	.run = run_diff,
};
