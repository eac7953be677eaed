/* SPDX-License-Identifier: BSD-3-Clause */
#include "cmd/shared/picture.h"

#include <stdlib.h>

#include "cmd/parse.h"

enum { TITLE = LOAD_NEXT, WIDTH, ICICLE, REVERSE, HTML };

static const char help[] =
	"usage: uniprof flamegraph [options] RECORDING\n"
	"\n"
	"Draws where the time went, as one self-contained SVG or page.\n"
	"\n"
	"  -o, --output FILE     the picture (default: standard output)\n" LOAD_HELP
	"      --html            a page with time line, filters, callers and callees, instead of\n"
	"                        an SVG (also when FILE ends in .html)\n"
	"      --title TEXT      above the picture\n"
	"      --width N         pixels (default: as wide as the window)\n"
	"      --icicle          root at the top\n"
	"      --reverse         merge from the leaf: who calls what is hot\n";

struct options {
	struct load_options load;
	struct flamegraph_options draw;
	bool html;
};

static struct error *take_option(struct options *options, int option, const char *given)
{
	struct error *err;
	uint64_t number;
	bool known;

	switch (option) {
	case TITLE:
		options->draw.title = optarg;
		return NULL;
	case WIDTH:
		err = parse_count("--width", optarg, 200, 20000, &number);
		if (!err)
			options->draw.width = (unsigned)number;
		return err;
	case HTML:
		options->html = true;
		return NULL;
	case ICICLE:
		options->draw.icicle = true;
		return NULL;
	case REVERSE:
		options->draw.reverse = true;
		return NULL;
	}
	err = load_option(&options->load, option, optarg, &known);
	if (!err && !known)
		err = usage_error(&verb_flamegraph, "option %s is not known or lacks its value",
				  given);
	return err;
}

static struct error *parse(int argc, char **argv, struct options *options)
{
	static const struct option longs[] = {LOAD_LONG_OPTIONS,
					      {"title", required_argument, NULL, TITLE},
					      {"width", required_argument, NULL, WIDTH},
					      {"html", no_argument, NULL, HTML},
					      {"icicle", no_argument, NULL, ICICLE},
					      {"reverse", no_argument, NULL, REVERSE},
					      {0}};
	struct error *err = NULL;
	int option;

	*options = (struct options){.draw = {.min_width = -1}};
	load_defaults(&options->load);
	opterr = 0;
	optind = 1;
	while (!err && (option = getopt_long(argc, argv, LOAD_SHORT_OPTIONS, longs, NULL)) != -1)
		err = take_option(options, option, argv[optind - 1]);
	if (!err && optind + 1 != argc)
		err = usage_error(&verb_flamegraph, "one recording, please");
	if (!err) {
		options->load.path = argv[optind];
		options->html |= has_ending(options->load.output, ".html");
	}
	return err;
}

static struct error *draw(const struct loaded *loaded, const struct flamegraph_options *options,
			  FILE *out)
{
	const struct tree_options how = {.reverse = options->reverse};
	struct tree *tree = NULL;
	struct error *err = tree_build(loaded->profile, loaded->namer, &how, &tree);

	if (!err)
		err = flamegraph_write(tree, options, out);
	tree_free(tree);
	return err;
}

static struct error *write_picture(const struct loaded *loaded, const struct options *options)
{
	const struct page_options page = {.title = options->draw.title,
					  .icicle = options->draw.icicle,
					  .reverse = options->draw.reverse};
	const char *path = options->load.output ? options->load.output : "-";
	struct error *err;
	FILE *out;

	err = open_output(path, &out);
	if (err)
		return err;
	if (options->html)
		err = write_page(loaded, &options->load.path, 1, &options->load, &page, out);
	else
		err = draw(loaded, &options->draw, out);
	return close_output(path, out, err);
}

static struct error *flamegraph(int argc, char **argv, int *status)
{
	struct options options;
	struct loaded loaded;
	char *text = NULL;
	struct error *err = parse(argc, argv, &options);

	if (!err)
		err = load_confine(&options.load);
	if (!err)
		err = load(&options.load, &loaded);
	if (err)
		return err;
	if (!loaded.profile->selected.samples)
		say("no samples in these states: the picture is empty (try --state=all)");
	text = load_subtitle(loaded.profile);
	options.draw.subtitle = text;
	options.draw.warning = loaded.warning;
	err = write_picture(&loaded, &options);
	free(text);
	unload(&loaded);
	return err;
}

const struct verb verb_flamegraph = {
	.name = "flamegraph",
	.summary = "draw a recording as an SVG flame graph",
	.help = help,
	.run = flamegraph,
};
