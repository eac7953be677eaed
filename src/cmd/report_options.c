/* SPDX-License-Identifier: BSD-3-Clause */
#include <stdlib.h>
#include <string.h>

#include "cmd/parse.h"
#include "cmd/report.h"

enum { SORT = LOAD_NEXT, MIN, DEPTH, JSON, COLOR, NO_PAGER };

#define DEFAULT_ROWS	  40
#define DEFAULT_MIN_SHARE 0.005 /* of trees as text */

const char report_help[] =
	"usage: uniprof report [options] RECORDING\n"
	"\n"
	"Shows where the time went, function by function.\n"
	"\n" LOAD_HELP
	"  -b, --by KEYS         by function (the default), line, file, image, vcpu,\n"
	"                        state, or several with commas\n"
	"  -n, --rows N          show N rows (default: 40, trees all; 0: all)\n"
	"      --sort KEY        self (the default) or total\n"
	"  -g, --tree[=WAY]      the call tree: down (the default) from the outermost functions,\n"
	"                        up from the innermost: who calls what is hot\n"
	"  -f, --function NAME   callers and callees of one function\n"
	"  -S, --only REGEX      only stacks through a function whose name matches\n"
	"      --min PERCENT     only what has at least this share of all (default: 0, trees 0.5)\n"
	"      --depth N         only so many levels of a tree\n"
	"      --json            as JSON, for programs\n"
	"      --color WHEN      auto (the default: on a terminal), always, never\n"
	"      --no-pager        write to the terminal directly, and not through $PAGER or less\n"
	"  -w, --wide            do not cut names off at the terminal's width\n"
	"  -o, --output FILE     where to (default: standard output)\n";

static struct error *parse_view(const char *way, enum report_view *view)
{
	if (!way || !strcmp(way, "down") || !strcmp(way, "top-down"))
		*view = REPORT_DOWN;
	else if (!strcmp(way, "up") || !strcmp(way, "bottom-up"))
		*view = REPORT_UP;
	else
		return usage_error(&verb_report, "--tree %s: it is down or up", way);
	return NULL;
}

static struct error *parse_keys(const char *text, struct keys *keys)
{
	const char *bad;

	if (keys_parse(text, keys, &bad))
		return NULL;
	return usage_error(&verb_report,
			   "--by %s: \"%.*s\" is none of function, line, file, image, vcpu, "
			   "state, or is there twice",
			   text, (int)strcspn(bad, ","), bad);
}

static struct error *parse_only(const char *text, struct report_options *options)
{
	char why[128];
	int rc;

	if (options->has_only)
		return usage_error(&verb_report, "one --only, please: A|B is both");
	rc = regcomp(&options->only, text, REG_EXTENDED | REG_NOSUB);
	options->has_only = !rc;
	if (!rc)
		return NULL;
	regerror(rc, &options->only, why, sizeof(why));
	return usage_error(&verb_report, "--only %s: %s", text, why);
}

/* Also as perf means it: by what rows are made. */
static struct error *parse_sort(const char *key, struct report_options *options)
{
	const char *bad;

	options->by_total = !strcmp(key, "total");
	if (options->by_total || !strcmp(key, "self") || keys_parse(key, &options->keys, &bad))
		return NULL;
	return usage_error(&verb_report, "--sort %s: it is self or total, or as --by", key);
}

static struct error *take_shared(struct report_options *options, int option, const char *given)
{
	bool known;
	struct error *err = load_option(&options->load, option, optarg, &known);

	if (!err && !known)
		err = usage_error(&verb_report, "option %s is not known or lacks its value", given);
	return err;
}

static struct error *take_option(struct report_options *options, int option, const char *given)
{
	switch (option) {
	case 'n':
		return parse_count("-n", optarg, 0, UINT32_MAX, &options->rows);
	case DEPTH:
		return parse_count("--depth", optarg, 0, UINT32_MAX, &options->depth);
	case MIN:
		if (!strcmp(optarg, "0"))
			options->min_share = 0;
		return options->min_share == 0
			       ? NULL
			       : parse_percent("--min", optarg, &options->min_share);
	case SORT:
		return parse_sort(optarg, options);
	case 'b':
		return parse_keys(optarg, &options->keys);
	case 'g':
		return parse_view(optarg, &options->view);
	case 'f':
		options->view = REPORT_AROUND;
		options->around = optarg;
		return NULL;
	case 'S':
		return parse_only(optarg, options);
	case COLOR:
		return color_parse("--color", optarg, &options->color);
	case JSON:
		options->json = true;
		return NULL;
	case NO_PAGER:
		options->no_pager = true;
		return NULL;
	case 'w':
		options->wide = true;
		return NULL;
	}
	return take_shared(options, option, given);
}

/* Which of the options was given whose defaults depend on others. */
struct given {
	bool rows, state;
};

static struct error *complete(struct report_options *options, const struct given *given)
{
	const bool flat = options->view == REPORT_FLAT;

	if (!given->rows)
		options->rows = flat && !options->json ? DEFAULT_ROWS : 0;
	if (options->min_share < 0)
		options->min_share = flat || options->json ? 0 : DEFAULT_MIN_SHARE;
	/* Who asks for states wants to see more than one. */
	if (!given->state && keys_have(&options->keys, KEY_STATE))
		options->load.filter.states = 0;
	options->load.filter.divide = keys_divide(&options->keys);
	if (options->view == REPORT_AROUND &&
	    (options->keys.n != 1 || options->keys.at[0] != KEY_FUNCTION))
		return usage_error(&verb_report, "--function shows functions, not --by others");
	return NULL;
}

struct error *report_parse(int argc, char **argv, struct report_options *options)
{
	static const struct option longs[] = {LOAD_LONG_OPTIONS,
					      {"rows", required_argument, NULL, 'n'},
					      {"sort", required_argument, NULL, SORT},
					      {"by", required_argument, NULL, 'b'},
					      {"tree", optional_argument, NULL, 'g'},
					      {"function", required_argument, NULL, 'f'},
					      {"only", required_argument, NULL, 'S'},
					      {"min", required_argument, NULL, MIN},
					      {"percent-limit", required_argument, NULL, MIN},
					      {"depth", required_argument, NULL, DEPTH},
					      {"json", no_argument, NULL, JSON},
					      {"color", required_argument, NULL, COLOR},
					      {"no-pager", no_argument, NULL, NO_PAGER},
					      {"wide", no_argument, NULL, 'w'},
					      {0}};
	struct error *err = NULL;
	struct given given = {0};
	int option;

	*options = (struct report_options){.min_share = -1};
	options->keys = (struct keys){.at = {KEY_FUNCTION}, .n = 1};
	load_defaults(&options->load);
	opterr = 0;
	optind = 1;
	while (!err && (option = getopt_long(argc, argv, LOAD_SHORT_OPTIONS "n:b:gf:S:w", longs,
					     NULL)) != -1) {
		given.rows |= option == 'n';
		given.state |= option == LOAD_STATE;
		err = take_option(options, option, argv[optind - 1]);
	}
	if (!err && optind + 1 != argc)
		err = usage_error(&verb_report, "one recording, please");
	if (!err)
		options->load.path = argv[optind];
	return err ? err : complete(options, &given);
}
