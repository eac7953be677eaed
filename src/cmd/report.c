/* SPDX-License-Identifier: BSD-3-Clause */
#include "cmd/report.h"

#include <stdlib.h>
#include <string.h>

#include "base/array.h"

#define DEFAULT_ROWS	  40
#define DEFAULT_MIN_SHARE 0.005 /* of trees as text */

/* Heat map: rows of 50 ms; columns in a pipe, with --wide or JSON, and beside its axis. */
#define HEAT_ROWS	20
#define HEAT_PIPE_WIDTH 80
#define HEAT_WIDE	3600
#define HEAT_AXIS	10

static struct error *take_tree(const struct option_row *row, const char *way, void *to)
{
	enum report_view *view = &((struct report_options *)to)->view;

	if (!way || !strcmp(way, "down") || !strcmp(way, "top-down"))
		*view = REPORT_DOWN;
	else if (!strcmp(way, "up") || !strcmp(way, "bottom-up"))
		*view = REPORT_UP;
	else
		return cmd_usage_error(&verb_report, "--tree %s: it is down or up", way);
	return NULL;
}

static struct error *take_keys(const struct option_row *row, const char *text, void *to)
{
	struct report_options *options = to;
	const char *bad;

	options->load.filter.exits = !strcmp(text, "exit");
	if (options->load.filter.exits || group_by_parse(text, &options->keys, &bad))
		return NULL;
	return cmd_usage_error(&verb_report,
			       "--by %s: \"%.*s\" is none of function, line, file, image, vcpu, "
			       "state, process, thread, or is there twice, or exit with others",
			       text, (int)strcspn(bad, ","), bad);
}

static struct error *take_only(const struct option_row *row, const char *value, void *to)
{
	struct report_options *options = to;
	char why[128];
	int rc;

	if (options->has_only)
		return cmd_usage_error(&verb_report, "one --only, please: A|B is both");
	rc = regcomp(&options->only, value, REG_EXTENDED | REG_NOSUB);
	options->has_only = !rc;
	if (!rc)
		return NULL;
	regerror(rc, &options->only, why, sizeof(why));
	return cmd_usage_error(&verb_report, "--only %s: %s", value, why);
}

/* Takes perf's names of keys, too: they choose what a row is. */
static struct error *take_sort(const struct option_row *row, const char *value, void *to)
{
	struct report_options *options = to;
	const char *bad;

	options->by_total = !strcmp(value, "total");
	if (options->by_total || !strcmp(value, "self") ||
	    group_by_parse(value, &options->keys, &bad))
		return NULL;
	return cmd_usage_error(&verb_report, "--sort %s: it is self or total, or as --by", value);
}

/* The view is row->least; those of a function have its name. */
static struct error *take_view(const struct option_row *row, const char *value, void *to)
{
	struct report_options *options = to;

	options->view = (enum report_view)row->least;
	options->function = value ?: options->function;
	return NULL;
}

static struct error *take_min(const struct option_row *row, const char *value, void *to)
{
	struct report_options *options = to;

	options->min_share = 0;
	return strcmp(value, "0") ? take_percent(row, value, to) : NULL;
}

#define AT(field) offsetof(struct report_options, field)

static const struct option_row own_options[] = {
	{"by", "KEYS", 'b', take_keys,
	 .text = "by function (the default), line, file, image, vcpu, state, process, thread, "
		 "container, or several with commas; or by exit (record --host)",
	 .more = "By\n.Li line\nthe function stands where no line is known;\n.Li file\n"
		 "is that of the source,\n.Li image\nthe file that the code came from.\n"
		 "By state, all states are shown unless\n.Fl -state\nsays which.\n"
		 "By\n.Li process\nor\n.Li thread\nof a Linux guest, each name that one had has a "
		 "row.\n"
		 "By\n.Li container ,\nthe control group of Linux: its path without slices, and "
		 "without what "
		 "stands before a container's own part, which is\n.Li docker:0123456789ab .\n"
		 "By\n.Li exit ,\nhow often virtual CPUs have left the guest: each exit counts "
		 "once, below the reason for it where the guest's code was that caused it.\n"
		 "perf's\n.Li symbol , srcline , srcfile , dso , cpu , pid , tid\nand\n.Li "
		 "cgroup\nare "
		 "understood.",
	 .values = "function line file image vcpu state process thread container exit"},
	{"rows", "N", 'n', take_count, AT(rows), 0, UINT32_MAX,
	 .text = "show N rows (default: 40, trees all; 0: all)"},
	{"sort", "KEY", 0, take_sort, .text = "self (the default) or total",
	 .more = "With keys it is\n.Fl -by ,\nas perf has it.", .values = "self total"},
	{"tree", "[WAY]", 'g', take_tree,
	 .text = "the call tree: down (the default) from the outermost functions, up from the "
		 "innermost: who calls what is hot",
	 .more = "Lines are drawn where ways part; what stands below a function without a line of "
		 "its own is the only one that it calls.",
	 .values = "down up"},
	{"function", "NAME", 'f', take_view, .least = REPORT_CALLERS_CALLEES,
	 .text = "callers and callees of one function",
	 .more = "A part of the name, or a regular expression, will do if no other function has or "
		 "matches it.\n"
		 "A stack that holds the function more than once counts once, from its outermost "
		 "call on."},
	{
		"annotate",
		"NAME",
		0,
		take_view,
		.least = REPORT_ANNOTATION,
		.text = "instructions and source lines of one function, or of addresses, with "
			"their samples",
		.more = "The function is named as for\n.Fl -function ,\n"
			"or is the code at guest addresses:\n.Li 0x4010a0\n"
			"is the function there, or, where none is known, the code around;\n"
			".Li 0x401000-0x401200\nis this code, whatever it is.\n"
			"Of code without a name, such as\n.Li [libcrypto.so.3] ,\n"
			"what lies around the samples is shown.\n"
			"Its code is read from the file that the recording tells of, or from one "
			"given by\n"
			".Fl s ,\nif its build id is that of what ran.\n"
			"A sample counts where the processor was to go on: a slow instruction is "
			"often the "
			"one before.\nUnder\n.Li total ,\nsamples of callees count at the call.",
	},
	{"heat", NULL, 0, take_view, .least = REPORT_HEAT,
	 .text = "a heat map of time: seconds across, the offset in a second down, darker where "
		 "more was sampled",
	 .more = "A column is several seconds where the recording is longer than the terminal is "
		 "wide.\nAny verb shows the stretch that was seen, by\n.Fl -from\nand\n.Fl -to ."},
	{"only", "REGEX", 'S', take_only,
	 .text = "only stacks through a function whose name matches",
	 .more = "Shares stay those of all samples that were selected."},
	{"min", "PERCENT", 0, take_min, AT(min_share),
	 .text = "only what has at least this share of all (default: 0, trees 0.5)"},
	{"percent-limit", "PERCENT", 0, take_min, AT(min_share), .text = NULL},
	{"depth", "N", 0, take_count, AT(depth), 0, UINT32_MAX,
	 .text = "only so many levels of a tree"},
	{"json", NULL, 0, take_true, AT(json), .text = "as JSON, for programs",
	 .more = "It is described in\n.Pa docs/report.md ."},
	{"color", "WHEN", 0, take_word, AT(color),
	 .text = "auto (the default: on a terminal), always, never",
	 .more = ".Li auto\nis never where\n.Ev NO_COLOR\nis set or\n.Ev TERM\nis\n.Li dumb .",
	 .values = "auto always never"},
	{"no-pager", NULL, 0, take_true, AT(no_pager),
	 .text = "write to the terminal directly, and not through $PAGER or less",
	 .more = "The pager is\n.Ev UNIPROF_PAGER , PAGER\nor\n.Xr less 1 ,\n"
		 "which ends at once if one page is enough; an empty one is none.\n"
		 "It has the rights of whoever started\n.Nm uniprof ."},
	{"wide", NULL, 'w', take_true, AT(wide),
	 .text = "do not cut names off at the terminal's width"},
	{"full-names", NULL, 0, take_true, AT(full_names),
	 .text = "names with return types, arguments and all template arguments"},
	{0}};

static const struct option_group options_of_report[] = {{load_options, AT(load)},
							{load_source_options, AT(sources)},
							{own_options, 0},
							{0}};

/* Rows and least share when the command line names none. */
#define NOT_GIVEN UINT64_MAX

/* True if rows are functions, as they are by default. */
static bool by_function(const struct report_options *options)
{
	return options->keys.n == 1 && options->keys.at[0] == GROUP_FUNCTION;
}

/* An option that was given, and has nothing to choose in this view; NULL: none. */
static const char *useless(const struct report_options *options)
{
	const bool heat = options->view == REPORT_HEAT;

	if (!heat && options->view != REPORT_ANNOTATION)
		return NULL;
	if (!by_function(options) || options->load.filter.exits)
		return "--by";
	if (options->rows != NOT_GIVEN)
		return "-n";
	if (options->by_total)
		return "--sort";
	if (options->depth != NOT_GIVEN)
		return "--depth";
	if (heat && options->min_share >= 0)
		return "--min";
	if (heat && options->function)
		return "a function (-S chooses stacks through it)";
	return !heat && options->has_only ? "--only" : NULL;
}

static struct error *complete(struct report_options *options)
{
	const char *option = useless(options);
	bool flat;

	/* A reason stands around the code that it was met in. */
	if (options->load.filter.exits && options->view == REPORT_FLAT)
		options->view = REPORT_DOWN;
	flat = options->view == REPORT_FLAT || options->view == REPORT_ANNOTATION;
	if (option)
		return cmd_usage_error(&verb_report, "%s: %s does not go with it",
				       options->view == REPORT_HEAT
					       ? "--heat draws a map of time"
					       : "--annotate shows the code of one function",
				       option);
	if (options->depth == NOT_GIVEN)
		options->depth = 0;
	if (options->rows == NOT_GIVEN)
		options->rows = flat && !options->json ? DEFAULT_ROWS : 0;
	if (options->min_share < 0)
		options->min_share = flat || options->json ? 0 : DEFAULT_MIN_SHARE;
	/* A table by states is of more than one. */
	if (!options->load.state_given && group_by_have(&options->keys, GROUP_STATE))
		options->load.filter.states = STATES_OF_VCPUS | STATES_OF_WAITS;
	options->load.filter.divide = group_by_divide(&options->keys);
	if (options->view == REPORT_CALLERS_CALLEES && !by_function(options))
		return cmd_usage_error(&verb_report, "--function shows functions, not --by others");
	return NULL;
}

/* regfree(&options->only) is due afterwards, also after an error, if options->has_only. */
static struct error *parse(int argc, char **argv, struct report_options *options)
{
	*options = (struct report_options){.min_share = -1, .rows = NOT_GIVEN, .depth = NOT_GIVEN};
	options->keys = (struct group_by){.at = {GROUP_FUNCTION}, .n = 1};
	load_defaults(&options->load);
	TRY(options_parse_one(&verb_report, argc, argv, options, "one recording, please",
			      &options->load.path));
	return complete(options);
}

struct share report_share(const struct report *report, const struct profile_cell *cell)
{
	uint64_t all = report->loaded->profile->selected.weight_ns;
	double value = all ? (double)cell->weight_ns / (double)all : 0;
	struct interval interval =
		interval_of_share(value, profile_share_draws(report->loaded->profile, cell));

	return (struct share){value, interval.low, interval.high};
}

static int by_weight(const void *left, const void *right, void *ctx)
{
	const struct tree_node *nodes = ctx;
	const struct tree_node *a = &nodes[*(const uint32_t *)left];
	const struct tree_node *b = &nodes[*(const uint32_t *)right];

	return COMPARE(b->total.weight_ns, a->total.weight_ns) ?: strcmp(a->name, b->name);
}

struct error *report_branches(const struct report *report, const struct tree *tree, uint32_t node,
			      struct branches *out)
{
	size_t n = 0;

	*out = (struct branches){.left_out = tree_rest(tree, node).n};
	for (uint32_t c = tree->nodes[node].first_child; c; c = tree->nodes[c].next_sibling)
		n++;
	out->at = malloc((n ? n : 1) * sizeof(*out->at));
	if (!out->at)
		return error_no_memory();
	for (uint32_t c = tree->nodes[node].first_child; c; c = tree->nodes[c].next_sibling) {
		if (report_share(report, &tree->nodes[c].total).value < report->options->min_share)
			out->left_out++;
		else
			out->at[out->n++] = c;
	}
	qsort_r(out->at, out->n, sizeof(*out->at), by_weight, tree->nodes);
	return NULL;
}

const char *report_column(const struct report *report, const char *name, size_t key, size_t *len)
{
	const char *text = grouped_tree_column(name, key, len);

	if (report->options->keys.at[key] != GROUP_FUNCTION)
		return text;
	return short_names_get(report->names, text, len);
}

/* Collects the names that are shown: two of them must not look alike. */
static struct error *collect_names(struct report *report)
{
	const struct group_by *keys = &report->options->keys;
	const struct tree *tree = report->grouped.tree;
	const struct flat *flat = report->grouped.flat;
	const size_t n = flat ? flat->n : tree ? tree->n : 0;
	size_t key = 0, len;

	while (key < keys->n && keys->at[key] != GROUP_FUNCTION)
		key++;
	if (report->options->full_names || report->options->json || key == keys->n)
		return NULL;
	TRY(short_names_new(&report->names));
	for (size_t i = !flat; i < n; i++) {
		const char *name = flat ? flat->rows[i].name : tree->nodes[i].name;

		if (!flat &&
		    report_share(report, &tree->nodes[i].total).value < report->options->min_share)
			continue;
		name = grouped_tree_column(name, key, &len);
		TRY(short_names_add(report->names, name, len));
	}
	return NULL;
}

static uint32_t heat_columns(const struct report_options *options, size_t width)
{
	if (options->wide || options->json)
		return HEAT_WIDE;
	if (!width)
		width = HEAT_PIPE_WIDTH;
	return width > 2 * HEAT_AXIS ? (uint32_t)(width - HEAT_AXIS) : HEAT_AXIS;
}

static struct error *build_heat(struct report *report, size_t width)
{
	const struct report_options *options = report->options;
	const struct heat_options how = {.passes = report->grouped.passes,
					 .n_passes = report->grouped.n_passes,
					 .max_columns = heat_columns(options, width)};

	if (report->loaded->profile->info.timeless)
		return error_new(ERR_USAGE,
				 "the samples of this profile have no times: there is no heat map");
	return heat_build(report->heat_log, report->loaded->profile, &how, &report->heat);
}

static struct error *build_annotation(struct report *report)
{
	const struct report_options *options = report->options;
	const struct loaded *loaded = report->loaded;
	struct annotation_options how = {.profile = loaded->profile,
					 .images = loaded->images,
					 .symbolizer = loaded->symbolizer,
					 .naming = options->load.naming,
					 .disassembler = report->disassembler};
	const char *name;

	if (!annotation_parse_range(options->function, &how.start, &how.end)) {
		TRY(callers_callees_find(report->grouped.tree, options->function, &name));
		TRY(symbolizer_intern(loaded->symbolizer, name, &report->annotated));
		how.names = &report->annotated;
		how.n_names = 1;
	} else if (!how.end) {
		TRY(annotation_around(&how, how.start, &report->annotated));
	}
	TRY(annotation_build(&how, &report->annotation));
	if (!report->annotation.n)
		return error_new(ERR_USAGE, "no sample is at %s, or around it", options->function);
	return NULL;
}

static struct error *build(struct report *report)
{
	const struct report_options *options = report->options;
	const struct loaded *loaded = report->loaded;
	const bool is_tree = options->view == REPORT_DOWN || options->view == REPORT_UP;
	const struct grouped_tree_options how = {.keys = options->keys,
						 .reverse = options->view == REPORT_UP,
						 .only = options->has_only ? &options->only : NULL,
						 .flat = options->view == REPORT_FLAT ||
							 options->view == REPORT_HEAT,
						 .min_share = is_tree ? options->min_share : 0};
	const char *name;

	if (group_by_threads(&options->keys))
		TRY(load_check_threads(loaded->profile, "--by"));
	TRY(grouped_tree_build(loaded->profile, loaded->symbolizer, loaded->images, &how,
			       &report->grouped));
	if (report->grouped.flat && options->by_total)
		flat_sort_by_total(report->grouped.flat);
	if (options->view == REPORT_CALLERS_CALLEES) {
		TRY(callers_callees_find(report->grouped.tree, options->function, &name));
		TRY(callers_callees_build(report->grouped.tree, name, &report->callers_callees));
	}
	if (options->view == REPORT_ANNOTATION)
		TRY(build_annotation(report));
	return collect_names(report);
}

static struct error *put_text(const struct report *report, FILE *out,
			      const struct tty_writer *terminal)
{
	struct tty_writer writer = *terminal;

	writer.out = out;
	if (report->options->wide || report->options->load.output)
		writer.width = 0;
	report_put_head(report, &writer);
	switch (report->options->view) {
	case REPORT_FLAT:
		return report_put_flat(report, &writer);
	case REPORT_CALLERS_CALLEES:
		return report_put_callers_callees(report, &writer);
	case REPORT_ANNOTATION:
		return report_put_annotation(report, &writer);
	case REPORT_HEAT:
		report_put_heat(report, &writer);
		return NULL;
	case REPORT_DOWN:
	case REPORT_UP:
		break;
	}
	return report_put_tree(report, &writer);
}

static struct error *write_report(const struct report *report, const struct tty_writer *terminal)
{
	const char *path = report->options->load.output;
	FILE *out;

	TRY(cmd_open_output(path, &out));
	return cmd_close_output(path, out,
				report->options->json ? report_put_json(report, out)
						      : put_text(report, out, terminal));
}

/* Loads the recording, and collects on the way what a heat map is made of. */
static struct error *load(const struct report_options *options, struct report *report,
			  struct loaded *loaded)
{
	struct profile_listener listener = {.sample = heat_log_sample};
	struct load_options how = options->load;

	TRY(load_confine(&options->load));
	if (options->view == REPORT_HEAT)
		TRY(heat_log_new(HEAT_ROWS, options->has_only, &report->heat_log));
	listener.ctx = report->heat_log;
	how.filter.listener = report->heat_log ? &listener : NULL;
	return load_recording(&how, loaded);
}

static void report_free(struct report *report)
{
	annotation_free(&report->annotation);
	disassembler_close(report->disassembler);
	heat_free(&report->heat);
	heat_log_free(report->heat_log);
	callers_callees_free(&report->callers_callees);
	short_names_free(report->names);
	grouped_tree_free(&report->grouped);
}

static struct error *show(const struct report_options *options, const struct tty_writer *terminal)
{
	ENDED_BY(load_free) struct loaded loaded = {0};
	ENDED_BY(report_free) struct report report = {.options = options, .loaded = &loaded};

	if (options->view == REPORT_ANNOTATION)
		report.disassembler = disassembler_open();
	TRY(load(options, &report, &loaded));
	TRY(build(&report));
	if (options->view == REPORT_HEAT)
		TRY(build_heat(&report, options->load.output ? 0 : terminal->width));
	return write_report(&report, terminal);
}

static struct error *report(int argc, char **argv, int *status)
{
	struct report_options options;
	struct tty_writer terminal;
	pid_t pager = 0;
	struct error *err = parse(argc, argv, &options);

	if (!err) {
		tty_writer_init(options.color, &terminal);
		if (!options.no_pager && !options.load.output)
			pager = pager_start();
		err = pager_finish(pager, show(&options, &terminal));
	}
	if (options.has_only)
		regfree(&options.only);
	return err;
}

const struct verb verb_report = {
	.name = "report",
	.summary = "show where the time went, as text",
	.arguments = "[options] RECORDING",
	.about = "Shows where the time went, function by function.\n",
	.options = options_of_report,
	.takes = TAKES_FILES,
	.run = report,
};
