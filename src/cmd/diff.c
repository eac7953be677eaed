/* SPDX-License-Identifier: BSD-3-Clause */
#include <string.h>

#include "base/preopen.h"
#include "cmd/load.h"
#include "cmd/parse.h"
#include "cmd/shared/picture.h"
#include "view/diff.h"

enum { SORT = LOAD_NEXT, JSON, SVG, HTML, TITLE };

#define DEFAULT_ROWS 40

static const char help[] =
	"usage: uniprof diff [options] BEFORE AFTER\n"
	"\n"
	"Compares two recordings, function by function, and tells changes from noise.\n"
	"Shares are of the samples of each, so that they need not be of the same length.\n"
	"\n" LOAD_HELP "  -n, --rows N          show N functions (default 40; 0: all)\n"
	"      --sort KEY        by the change of: self (the default) or total\n"
	"      --json            for programs: all functions\n"
	"      --svg             a flame graph of both, red where there is more than before and\n"
	"                        blue where there is less (also when FILE ends in .svg)\n"
	"      --html            a page with such a flame graph, callers and callees, time lines "
	"and\n"
	"                        filters (also when FILE ends in .html)\n"
	"      --title TEXT      above the picture\n"
	"  -o, --output FILE     where to (default: standard output)\n";

struct options {
	struct load_options before;
	const char *after;
	uint64_t rows;
	enum diff_order order;
	bool json, svg, html;
	const char *title;
};

static struct error *take_option(struct options *options, int option, const char *given)
{
	struct error *err;
	bool known;

	switch (option) {
	case 'n':
		return parse_count("-n", optarg, 0, UINT32_MAX, &options->rows);
	case JSON:
		options->json = true;
		return NULL;
	case SVG:
		options->svg = true;
		return NULL;
	case HTML:
		options->html = true;
		return NULL;
	case TITLE:
		options->title = optarg;
		return NULL;
	case SORT:
		options->order = strcmp(optarg, "total") ? DIFF_BY_SELF : DIFF_BY_TOTAL;
		if (options->order == DIFF_BY_TOTAL || !strcmp(optarg, "self"))
			return NULL;
		return usage_error(&verb_diff, "--sort %s: it is self or total", optarg);
	}
	err = load_option(&options->before, option, optarg, &known);
	if (!err && !known)
		err = usage_error(&verb_diff, "option %s is not known or lacks its value", given);
	return err;
}

static struct error *parse(int argc, char **argv, struct options *options)
{
	static const struct option longs[] = {LOAD_LONG_OPTIONS,
					      {"rows", required_argument, NULL, 'n'},
					      {"sort", required_argument, NULL, SORT},
					      {"json", no_argument, NULL, JSON},
					      {"svg", no_argument, NULL, SVG},
					      {"html", no_argument, NULL, HTML},
					      {"title", required_argument, NULL, TITLE},
					      {0}};
	struct error *err = NULL;
	int option;

	*options = (struct options){.rows = DEFAULT_ROWS};
	load_defaults(&options->before);
	opterr = 0;
	optind = 1;
	while (!err &&
	       (option = getopt_long(argc, argv, LOAD_SHORT_OPTIONS "n:", longs, NULL)) != -1)
		err = take_option(options, option, argv[optind - 1]);
	if (!err && optind + 2 != argc)
		err = usage_error(&verb_diff, "two recordings, please");
	if (!err && !strcmp(argv[optind], "-") && !strcmp(argv[optind + 1], "-"))
		err = usage_error(&verb_diff, "only one can come from standard input");
	if (!err) {
		options->before.path = argv[optind];
		options->after = argv[optind + 1];
		if (!options->json && !options->svg)
			options->html |= has_ending(options->before.output, ".html");
		if (!options->json && !options->html)
			options->svg |= has_ending(options->before.output, ".svg");
	}
	return err;
}

static struct error *flatten(const struct loaded *loaded, struct flat **flat)
{
	const struct tree_options how = {0};
	struct tree *tree;
	struct error *err = tree_build(loaded->profile, loaded->namer, &how, &tree);

	if (err)
		return err;
	err = flat_new(tree, flat);
	tree_free(tree);
	return err;
}

static struct error *compare(const struct loaded loaded[2], const struct options *options,
			     FILE *out)
{
	struct diff_side sides[2] = {0};
	struct flat *flat[2] = {NULL, NULL};
	struct diff *diff = NULL;
	struct error *err = NULL;

	for (int i = 0; i < 2 && !err; i++) {
		err = flatten(&loaded[i], &flat[i]);
		sides[i] = (struct diff_side){.flat = flat[i],
					      .profile = loaded[i].profile,
					      .warning = loaded[i].warning};
	}
	if (!err)
		err = diff_new(&sides[0], &sides[1], options->order, &diff);
	if (!err)
		err = options->json ? diff_write_json(diff, sides, out)
				    : diff_write_text(diff, sides, (size_t)options->rows, out);
	diff_free(diff);
	flat_free(flat[0]);
	flat_free(flat[1]);
	return err;
}

static struct error *show(const struct loaded loaded[2], const struct options *options, FILE *out)
{
	const char *paths[] = {options->before.path, options->after};
	const struct page_options page = {.title = options->title ? options->title : "Differences"};

	if (options->html)
		return write_page(loaded, paths, 2, &options->before, &page, out);
	if (options->svg)
		return draw_differences(loaded, options->title, out);
	return compare(loaded, options, out);
}

static struct error *load_both(const struct options *options, struct loaded loaded[2])
{
	struct load_options after = options->before;
	struct error *err = ahead_input(options->after);

	after.path = options->after;
	memset(loaded, 0, 2 * sizeof(*loaded));
	if (!err)
		err = load_confine(&options->before);
	if (!err)
		err = load(&options->before, &loaded[0]);
	return err ? err : load(&after, &loaded[1]);
}

static struct error *run_diff(int argc, char **argv, int *status)
{
	struct options options;
	struct loaded loaded[2] = {0};
	struct error *err = parse(argc, argv, &options);
	const char *path;
	FILE *out;

	if (!err)
		err = load_both(&options, loaded);
	path = !err && options.before.output ? options.before.output : "-";
	if (!err)
		err = open_output(path, &out);
	if (!err)
		err = close_output(path, out, show(loaded, &options, out));
	unload(&loaded[0]);
	unload(&loaded[1]);
	return err;
}

const struct verb verb_diff = {
	.name = "diff",
	.summary = "compare two recordings, and tell changes from noise",
	.help = help,
	.run = run_diff,
};
