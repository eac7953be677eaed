/* SPDX-License-Identifier: BSD-3-Clause */

/* Writes recordings anew: in formats of other tools, or several as one. */

#include <string.h>

#include "base/preopen.h"
#include "cmd/shared/load.h"
#include "format/format.h"
#include "import/import.h"

struct export_args {
	struct load_options load;
	struct outer_options outer;
	const struct format *format;
	FILE *scratch;
};

static struct error *take_format(const struct option_row *row, const char *value, void *to)
{
	struct export_args *options = to;

	options->format = format_by_name(value);
	return options->format ? NULL
			       : cmd_usage_error(&verb_export, "there is no format \"%s\"", value);
}

static const struct option_row own_options[] = {
	{"format", "NAME", 0, take_format, .text = "which format (default: by the ending of FILE)",
	 .values =
		 "folded raw pprof otlp speedscope firefox perf-script perf.data callgrind chrome"},
	{0}};

static const struct option_group options_of_export[] = {{load_options,
							 offsetof(struct export_args, load)},
							{load_outer_options,
							 offsetof(struct export_args, outer)},
							{own_options, 0},
							{0}};

static struct error *parse(int argc, char **argv, struct export_args *options)
{
	*options = (struct export_args){0};
	load_defaults(&options->load);
	options->load.naming.unnamed = UNNAMED_OFFSET;
	TRY(options_parse_one(&verb_export, argc, argv, options, "one recording, please",
			      &options->load.path));
	if (!options->format && options->load.output)
		options->format = format_by_ending(options->load.output);
	if (!options->format)
		return cmd_usage_error(&verb_export, "which format?");
	options->load.filter.divide = options->outer.by;
	options->load.filter.exits = options->outer.exits;
	if (options->outer.exits && !options->format->counts)
		return cmd_usage_error(&verb_export,
				       "--by exit is for folded, pprof, speedscope and "
				       "callgrind: exits are counted, and have no "
				       "times that --format=%s could show",
				       options->format->name);
	return options->outer.by && options->format != &format_folded
		       ? cmd_usage_error(&verb_export, "--by %s is for folded stacks",
					 options->outer.by)
		       : NULL;
}

static struct error *write_format(const struct export_args *options, const struct loaded *loaded)
{
	struct group_outer by;
	struct tree_outer outer;
	const struct format_job job = {.path = options->load.path,
				       .profile = loaded->profile,
				       .filter = &options->load.filter,
				       .symbolizer = loaded->symbolizer,
				       .outer = options->outer.by ? &outer : NULL,
				       .scratch = options->scratch};
	FILE *out;

	TRY(load_outer(&options->outer, loaded, &by, &outer));
	TRY(cmd_open_output(options->load.output, &out));
	return cmd_close_output(options->load.output, out,
				format_write(options->format, &job, options->load.output, out));
}

static struct error *export(int argc, char **argv, int *status)
{
	struct export_args options;
	ENDED_BY(load_free) struct loaded loaded = {0};
	struct error *err;

	TRY(parse(argc, argv, &options));
	if (options.format->columns)
		options.scratch = format_scratch();
	err = load_confine(&options.load);
	if (!err)
		err = load_recording(&options.load, &loaded);
	if (!err)
		err = write_format(&options, &loaded);
	if (!err && loaded.warning)
		cmd_say("warning: %s", loaded.warning);
	if (options.scratch)
		fclose(options.scratch);
	return err;
}

const struct verb verb_export = {
	.name = "export",
	.summary = "write a recording in a format that other tools read",
	.arguments = "[options] RECORDING",
	.about = "Writes a recording in a format that other tools read.\n",
	.options = options_of_export,
	.closing =
		"NAME and ending of FILE (with .gz behind it: compressed):\n"
		"  folded         .folded            a stack a line, root first, with its count\n"
		"  raw            .raw               the classic trace, a stack a sample\n"
		"  pprof          .pb.gz             go tool pprof\n"
		"  otlp           .otlp              OpenTelemetry receivers, Pyroscope\n"
		"  speedscope     .speedscope.json   speedscope.app\n"
		"  firefox        .firefox.json      profiler.firefox.com, Perfetto\n"
		"  perf-script    .perf              as perf script prints it\n"
		"  perf.data      .data              perf report, perf script\n"
		"  callgrind      .callgrind         callgrind_annotate, KCachegrind\n"
		"  chrome         .trace.json        time line: chrome://tracing, speedscope\n",
	.takes = TAKES_FILES,
	.run = export,
};

/* Of a const char *. */
static const struct option_row merge_options[] = {
	{"output", "FILE", 'o', take_text, 0, .text = "the new recording (- for standard output)",
	 .values = OPTION_FILE},
	{0}};

static const struct option_group options_of_merge[] = {{merge_options, 0}, {0}};

struct error *merge_confined(char *const *paths, size_t n, const char *output)
{
	for (size_t i = 0; i < n; i++)
		TRY(preopen_input(paths[i]));
	TRY(preopen_output(output));
	cmd_confine_reader();
	return merge_recordings(paths, n, output);
}

static struct error *merge(int argc, char **argv, int *status)
{
	const char *output = NULL;
	int first;

	TRY(options_parse(&verb_merge, argc, argv, &output, &first));
	if (!output)
		return cmd_usage_error(&verb_merge, "where to? (-o FILE)");
	if (first == argc)
		return cmd_usage_error(&verb_merge, "which recordings?");
	for (int i = first; i < argc; i++)
		if (!strcmp(argv[i], "-"))
			return cmd_usage_error(
				&verb_merge, "a recording is read twice: not from standard input");
	return merge_confined(argv + first, (size_t)(argc - first), output);
}

const struct verb verb_merge = {
	.name = "merge",
	.summary = "make one recording of several",
	.arguments = "-o FILE RECORDING...",
	.about = "Makes one recording of several, of different guests or of the same: each guest "
		 "is the\n"
		 "outermost frame of its stacks, and its vCPUs are numbered behind those of the "
		 "guests\n"
		 "before it. Names come along, if the recordings carry them; the files they are "
		 "from, and\n"
		 "so other names than these, do not.\n",
	.options = options_of_merge,
	.takes = TAKES_FILES,
	.run = merge,
};
