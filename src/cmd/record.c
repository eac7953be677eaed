/* SPDX-License-Identifier: BSD-3-Clause */
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/preopen.h"
#include "cmd/record_together.h"
#include "cmd/session.h"
#include "cmd/several.h"
#include "cmd/snapshot.h"

enum { SNAPSHOT = SESSION_NEXT, TOGETHER };

static const char help[] =
	"usage: uniprof record [options] GUEST...\n"
	"\n"
	"Samples a running guest and keeps what it sees in a recording. Of several guests, which\n"
	"are sampled at once, each has a recording of its own, GUEST-ID.uniprof, unless they are\n"
	"to be together.\n"
	"\n"
	"  -o, --output FILE     the recording (default GUEST.uniprof; - for standard output);\n"
	"                        of several guests, the directory for them\n" SESSION_HELP
	"      --snapshot FILE   instead of a recording, write registers and memory of each\n"
	"                        sample for replay:FILE\n"
	"      --together        several guests into one recording, -o FILE, each of them as the\n"
	"                        outermost frame of its stacks (see uniprof merge)\n"
	"\n"
	"Ctrl-C ends it and keeps what was recorded. Exit codes: 0 done, 2 wrong usage, 3 no such\n"
	"guest, 4 no rights or no hypervisor, 5 the guest ended (the recording is kept), 6 a file\n"
	"that cannot be read, 7 one that cannot be written, 1 anything else.\n";

static struct error *parse(int argc, char **argv, struct session_options *options)
{
	static const struct option longs[] = {SESSION_LONG_OPTIONS,
					      {"snapshot", required_argument, NULL, SNAPSHOT},
					      {"together", no_argument, NULL, TOGETHER},
					      {0}};
	struct error *err = NULL;
	bool together = false;
	int option;

	session_defaults(options);
	opterr = 0;
	optind = 1;
	while (!err &&
	       (option = getopt_long(argc, argv, SESSION_SHORT_OPTIONS, longs, NULL)) != -1) {
		bool known;

		if (option == SNAPSHOT) {
			options->snapshot = optarg;
			continue;
		}
		if (option == TOGETHER) {
			together = true;
			continue;
		}
		err = session_option(options, option, optarg, &known);
		if (!err && !known)
			err = usage_error(&verb_record, "option %s is not known or lacks its value",
					  argv[optind - 1]);
	}
	options->several = argc - optind > 1;
	if (!err && optind == argc)
		err = usage_error(&verb_record, "which guest?");
	if (!err && options->several && options->snapshot)
		err = usage_error(&verb_record, "--snapshot: one guest, please");
	if (!err && options->several && options->output && !strcmp(options->output, "-"))
		err = usage_error(&verb_record, "-o -: one guest, please");
	if (!err && together && (!options->several || !options->output))
		err = usage_error(&verb_record, "--together: several guests, and -o FILE, please");
	options->together = together ? options->output : NULL;
	return err;
}

/* Whatever makes a new domain of a guest ends the old one; what it is called does not change. */
static const char *advice(enum sampler_outcome outcome)
{
	return outcome == SAMPLED_CRASHED
		       ? ""
		       : " (if it was rebooted, restored or migrated, it now has "
			 "a new id: record it anew)";
}

static struct error *outcome_error(const struct sampler_result *result, const char *path)
{
	if (result->outcome == SAMPLED_TIME || result->outcome == SAMPLED_INTERRUPTED)
		return NULL;
	return error_new(ERR_ENDED, "%s after %.1f s; what was recorded until then is in %s%s",
			 sampler_outcome_text(result->outcome), (double)result->elapsed_ns / 1e9,
			 path, advice(result->outcome));
}

/* DIRECTORY/GUEST-ID.uniprof: guests may have the same name. The caller frees it. */
static char *path_among_several(const struct target *target, const char *directory)
{
	char *name = session_default_path(target, ""), *path;

	if (!name ||
	    asprintf(&path, "%s/%s-%s.uniprof", directory ?: ".", name, target->info.id) < 0)
		path = NULL;
	free(name);
	return path;
}

/* The caller frees it. */
static char *path_of(const struct target *target, const struct session_options *options)
{
	if (options->snapshot)
		return strdup(options->snapshot);
	if (options->several)
		return path_among_several(target, options->output);
	return options->output ? strdup(options->output) : session_default_path(target, ".uniprof");
}

static struct error *record_one(void *ctx, const char *guest)
{
	const struct session_options *options = ctx;
	struct sampler_result result;
	struct target *target = NULL;
	char *path;
	struct error *err = target_open_via(guest, options->via, &target);

	if (err)
		return err;
	path = path_of(target, options);
	err = path ? ahead_output(path) : error_no_memory();
	if (!err)
		err = session_confine(target, options);
	if (!err && options->snapshot)
		err = snapshot_record(target, options, &result);
	else if (!err)
		err = session_record(target, options, path, &result, NULL);
	if (!err)
		err = outcome_error(&result, options->together ?: path);
	target_close(target);
	free(path);
	return err;
}

static struct error *record(int argc, char **argv, int *status)
{
	struct session_options options;
	struct error *err = parse(argc, argv, &options);

	if (err)
		return err;
	options.sampler.stop = catch_signals();
	signal(SIGPIPE, SIG_IGN);
	if (!options.several)
		return record_one(&options, argv[optind]);
	if (options.together)
		return record_together(&options, argv + optind, (size_t)(argc - optind), record_one,
				       status);
	if (options.output && mkdir(options.output, 0777) && errno != EEXIST)
		return error_errno(ERR_OUTPUT, errno, "cannot make directory %s", options.output);
	return several(argv + optind, (size_t)(argc - optind), record_one, &options, status);
}

const struct verb verb_record = {
	.name = "record",
	.summary = "sample a running guest into a recording",
	.help = help,
	.run = record,
};
