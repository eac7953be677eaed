/* SPDX-License-Identifier: BSD-3-Clause */
#include "cmd/cmd.h"

#include <string.h>

#include "base/preopen.h"
#include "import/import.h"

struct merge_args {
	const char *output;
};

static const struct option_row own_options[] = {
	{"output", "FILE", 'o', take_text, offsetof(struct merge_args, output),
	 .text = "the new recording (- for standard output)", .values = OPTION_FILE},
	{0}};

static const struct option_group options_of_merge[] = {{own_options, 0}, {0}};

static struct error *parse(int argc, char **argv, struct merge_args *options, int *first)
{
	struct error *err = options_parse(&verb_merge, argc, argv, options, first);

	if (!err && !options->output)
		err = cmd_usage_error(&verb_merge, "where to? (-o FILE)");
	if (!err && *first == argc)
		err = cmd_usage_error(&verb_merge, "which recordings?");
	for (int i = *first; i < argc && !err; i++)
		if (!strcmp(argv[i], "-"))
			err = cmd_usage_error(&verb_merge,
					      "a recording is read twice: not from standard input");
	return err;
}

struct error *merge_confined(char *const *paths, size_t n, const char *output)
{
	struct error *err = NULL;

	for (size_t i = 0; i < n && !err; i++)
		err = preopen_input(paths[i]);
	if (!err)
		err = preopen_output(output);
	if (err)
		return err;
	cmd_confine_reader();
	return merge_recordings(paths, n, output);
}

static struct error *merge(int argc, char **argv, int *status)
{
	struct merge_args options = {0};
	int first;
	struct error *err = parse(argc, argv, &options, &first);

	return err ? err : merge_confined(argv + first, (size_t)(argc - first), options.output);
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
