/* SPDX-License-Identifier: BSD-3-Clause */
#include <string.h>

#include "cmd/shared/load.h"
#include "format/format.h"

struct export_args {
	struct load_options load;
	struct outer_options outer;
	const struct format *format;
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
	const char *output;
	struct error *err;
	int first;

	*options = (struct export_args){0};
	load_defaults(&options->load);
	options->load.naming.unnamed = UNNAMED_OFFSET;
	err = options_parse(&verb_export, argc, argv, options, &first);
	if (!err && first + 1 != argc)
		err = cmd_usage_error(&verb_export, "one recording, please");
	if (err)
		return err;
	options->load.path = argv[first];
	output = options->load.output;
	if (!options->format && output)
		options->format = format_by_ending(output);
	if (!options->format)
		return cmd_usage_error(&verb_export, "which format?");
	options->load.filter.divide = options->outer.by;
	return options->outer.by && options->format != &format_folded
		       ? cmd_usage_error(&verb_export, "--by is for folded stacks")
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
				       .outer = options->outer.by ? &outer : NULL};
	struct error *err = load_outer(&options->outer, loaded, &by, &outer);
	FILE *out;

	if (!err)
		err = cmd_open_output(options->load.output, &out);
	return err ? err
		   : cmd_close_output(options->load.output, out,
				      format_write(options->format, &job, options->load.output,
						   out));
}

static struct error *export(int argc, char **argv, int *status)
{
	struct export_args options;
	struct loaded loaded;
	struct error *err = parse(argc, argv, &options);

	if (!err)
		err = load_confine(&options.load);
	if (!err)
		err = load_recording(&options.load, &loaded);
	if (err)
		return err;
	err = write_format(&options, &loaded);
	if (!err && loaded.warning)
		cmd_say("warning: %s", loaded.warning);
	load_free(&loaded);
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
