/* SPDX-License-Identifier: BSD-3-Clause */
#include <string.h>

#include "cmd/load.h"
#include "output/output.h"

#define FORMAT LOAD_NEXT

static const char help[] =
	"usage: uniprof export [options] RECORDING\n"
	"\n"
	"Writes a recording in a format that other tools read.\n"
	"\n"
	"  -o, --output FILE     where to (default: standard output)\n"
	"      --format NAME     (default: by the ending of FILE)\n"
	"         folded         .folded            a stack a line, root first, with its count\n"
	"         raw            .raw               the classic trace, a stack a sample\n"
	"         pprof          .pb.gz             go tool pprof\n"
	"         speedscope     .speedscope.json   speedscope.app\n"
	"         firefox        .firefox.json      profiler.firefox.com\n"
	"         perf-script    .perf              as perf script prints it\n"
	"         perf.data      .data              perf report, perf script\n"
	"         callgrind      .callgrind         callgrind_annotate, KCachegrind\n"
	"         chrome         .trace.json        time line: Perfetto, "
	"chrome://tracing\n" LOAD_HELP;

static struct error *parse(int argc, char **argv, struct load_options *options,
			   const struct output_format **format)
{
	static const struct option longs[] = {LOAD_LONG_OPTIONS,
					      {"format", required_argument, NULL, FORMAT},
					      {0}};
	struct error *err = NULL;
	int option;

	load_defaults(options);
	*format = NULL;
	opterr = 0;
	optind = 1;
	while (!err && (option = getopt_long(argc, argv, LOAD_SHORT_OPTIONS, longs, NULL)) != -1) {
		bool known;

		if (option == FORMAT) {
			*format = output_format_by_name(optarg);
			if (!*format)
				err = usage_error(&verb_export, "there is no format \"%s\"",
						  optarg);
			continue;
		}
		err = load_option(options, option, optarg, &known);
		if (!err && !known)
			err = usage_error(&verb_export, "option %s is not known or lacks its value",
					  argv[optind - 1]);
	}
	if (!err && optind + 1 != argc)
		err = usage_error(&verb_export, "one recording, please");
	if (!err)
		options->path = argv[optind];
	if (!err && !*format && options->output)
		*format = output_format_by_ending(options->output);
	if (!err && !*format)
		err = usage_error(&verb_export, "which format?");
	return err;
}

static struct error *export(int argc, char **argv, int *status)
{
	const struct output_format *format;
	struct load_options options;
	struct loaded loaded;
	struct error *err = parse(argc, argv, &options, &format);
	const char *path;
	FILE *out;

	if (!err)
		err = load_confine(&options);
	if (!err)
		err = load(&options, &loaded);
	if (err)
		return err;
	path = options.output ? options.output : "-";
	err = open_output(path, &out);
	if (!err) {
		const struct output_job job = {.path = options.path,
					       .profile = loaded.profile,
					       .filter = &options.filter,
					       .namer = loaded.namer};

		err = close_output(path, out, format->write(&job, out));
	}
	if (!err && loaded.warning)
		say("warning: %s", loaded.warning);
	unload(&loaded);
	return err;
}

const struct verb verb_export = {
	.name = "export",
	.summary = "write a recording in a format that other tools read",
	.help = help,
	.run = export,
};
