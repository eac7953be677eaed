/* SPDX-License-Identifier: BSD-3-Clause */
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/preopen.h"
#include "cmd/artefacts.h"
#include "cmd/newcomer.h"
#include "cmd/session.h"

static const char help[] =
	"usage: uniprof run [options] -- COMMAND [ARGUMENTS]\n"
	"\n"
	"Runs a command that starts a guest (xl create web.cfg), samples the guest from its\n"
	"beginning, and leaves everything that is made of it, named after the guest:\n"
	"  web.uniprof       the recording\n"
	"  web.raw           the classic trace, addresses only\n"
	"  web.syms          the guest's symbol table, as by nm -n\n"
	"  web.resolved.raw  the trace with names\n"
	"  web.folded        folded stacks\n"
	"  web.svg           the flame graph\n"
	"\n"
	"  -o, --output DIR      where they are put (default: here)\n" SESSION_HELP "\n"
	"The guest's end ends the recording, and is no error here. Exit codes as of record.\n";

static struct error *parse(int argc, char **argv, struct session_options *options)
{
	static const struct option longs[] = {SESSION_LONG_OPTIONS, {0}};
	struct error *err = NULL;
	int option;

	session_defaults(options);
	opterr = 0;
	optind = 1;
	/* '+': options behind the command's name are the command's. */
	while (!err &&
	       (option = getopt_long(argc, argv, "+" SESSION_SHORT_OPTIONS, longs, NULL)) != -1) {
		bool known;

		err = session_option(options, option, optarg, &known);
		if (!err && !known)
			err = usage_error(&verb_run, "option %s is not known or lacks its value",
					  argv[optind - 1]);
	}
	if (!err && optind == argc)
		err = usage_error(&verb_run, "which command starts the guest?");
	return err;
}

static struct error *make_directory(const char *path)
{
	if (mkdir(path, 0777) && errno != EEXIST)
		return error_errno(ERR_OUTPUT, errno, "cannot make directory %s", path);
	return NULL;
}

/* DIR/GUEST: what all the files' names begin with. The caller frees it. */
static char *stem(const struct target *target, const char *directory)
{
	char *name = session_default_path(target, ""), *path;

	if (name &&
	    asprintf(&path, "%s%s%s", directory ? directory : "", directory ? "/" : "", name) < 0)
		path = NULL;
	else if (!name)
		path = NULL;
	free(name);
	return path;
}

static struct error *profile_guest(struct target *target, const struct session_options *options)
{
	struct sampler_result result;
	char *base = stem(target, options->output), *path = NULL;
	struct images *images = NULL;
	struct error *err = NULL;

	if (!base || asprintf(&path, "%s.uniprof", base) < 0)
		err = error_no_memory();
	if (!err)
		err = ahead_output_and_input(path);
	if (!err)
		err = artefacts_open(base);
	if (!err)
		err = session_confine(target, options);
	if (!err)
		err = session_record(target, options, path, &result, &images);
	if (!err && !options->quiet)
		say("%s after %.1f s", sampler_outcome_text(result.outcome),
		    (double)result.elapsed_ns / 1e9);
	if (!err)
		err = artefacts_write(base, path, images, options->quiet);
	images_free(images);
	free(path);
	free(base);
	return err;
}

static struct error *run(int argc, char **argv, int *status)
{
	struct session_options options;
	struct newcomer *newcomer = NULL;
	struct target *target = NULL;
	pid_t child = 0;
	struct error *err = parse(argc, argv, &options);

	if (!err && options.output)
		err = make_directory(options.output);
	if (err)
		return err;
	options.sampler.stop = catch_signals();
	signal(SIGPIPE, SIG_IGN);
	err = newcomer_prepare(&newcomer);
	if (!err)
		err = newcomer_start(newcomer, argv + optind, options.via, options.sampler.stop,
				     &target, &child);
	if (!err)
		err = profile_guest(target, &options);
	target_close(target);
	newcomer_free(newcomer);
	return err;
}

const struct verb verb_run = {
	.name = "run",
	.summary = "start a guest, sample it, and leave recording, traces and picture",
	.help = help,
	.run = run,
};
