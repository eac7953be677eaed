/* SPDX-License-Identifier: BSD-3-Clause */
#include "cmd/merge.h"

#include <getopt.h>
#include <string.h>

#include "base/preopen.h"
#include "cmd/confine.h"
#include "import/merge.h"

static const char help[] =
	"usage: uniprof merge -o FILE RECORDING...\n"
	"\n"
	"Makes one recording of several, of different guests or of the same: each guest is the\n"
	"outermost frame of its stacks, and its vCPUs are numbered behind those of the guests\n"
	"before it. Names come along, if the recordings carry them; the files they are from, and\n"
	"so other names than these, do not.\n"
	"\n"
	"  -o, --output FILE     the new recording (- for standard output)\n";

static struct error *parse(int argc, char **argv, const char **output)
{
	static const struct option longs[] = {{"output", required_argument, NULL, 'o'}, {0}};
	int option;

	*output = NULL;
	opterr = 0;
	optind = 1;
	while ((option = getopt_long(argc, argv, "o:", longs, NULL)) != -1) {
		if (option != 'o')
			return usage_error(&verb_merge, "option %s is not known or lacks its value",
					   argv[optind - 1]);
		*output = optarg;
	}
	if (!*output)
		return usage_error(&verb_merge, "where to? (-o FILE)");
	if (optind == argc)
		return usage_error(&verb_merge, "which recordings?");
	for (int i = optind; i < argc; i++)
		if (!strcmp(argv[i], "-"))
			return usage_error(&verb_merge,
					   "a recording is read twice: not from standard input");
	return NULL;
}

struct error *merge_confined(char *const *paths, size_t n, const char *output)
{
	struct error *err = NULL;

	for (size_t i = 0; i < n && !err; i++)
		err = ahead_input(paths[i]);
	if (!err)
		err = ahead_output(output);
	if (err)
		return err;
	confine_reader();
	return merge_recordings(paths, n, output);
}

static struct error *merge(int argc, char **argv, int *status)
{
	const char *output;
	struct error *err = parse(argc, argv, &output);

	(void)status;
	return err ? err : merge_confined(argv + optind, (size_t)(argc - optind), output);
}

const struct verb verb_merge = {
	.name = "merge",
	.summary = "make one recording of several",
	.help = help,
	.run = merge,
};
