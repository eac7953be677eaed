/* SPDX-License-Identifier: BSD-3-Clause */
#include <errno.h>
#include <signal.h>
#include <sys/stat.h>

#include "base/preopen.h"
#include "base/clock.h"
#include "cmd/shared/launcher.h"
#include "cmd/shared/load.h"
#include "cmd/shared/session.h"
#include "format/format.h"

struct artefacts {
	const char *stem;
	const char *recording;
	struct load_options options;
	struct loaded loaded;
	const struct images *images;
	struct symbolizer *addresses; /* names nothing */
	bool quiet;
};

/* NULL: no memory. */
static char *joined(const char *stem, const char *ending)
{
	char *path;

	return asprintf(&path, "%s%s", stem, ending) < 0 ? NULL : path;
}

static struct error *write_symbols(struct artefacts *a, FILE *out)
{
	return images_write_nm(a->images, out);
}

static struct error *write_svg(struct artefacts *a, FILE *out)
{
	FREED char *subtitle = format_guest_line(a->loaded.profile);
	const struct flamegraph_options options = {.title = a->stem,
						   .subtitle = subtitle,
						   .warning = a->loaded.warning,
						   .min_width = -1};
	const struct tree_options how = {0};
	ENDED_BY(tree_end) struct tree *tree = NULL;

	TRY(tree_build(a->loaded.profile, a->loaded.symbolizer, &how, &tree));
	return flamegraph_write(tree, &options, out);
}

/* The files, by the endings of their names. */
static const struct file {
	const char *ending;
	const struct format *format; /* NULL: `write` makes it */
	bool named;
	struct error *(*write)(struct artefacts *a, FILE *out);
} files[] = {
	{".raw", &format_raw, false, NULL},
	{".syms", NULL, true, write_symbols},
	{".resolved.raw", &format_raw, true, NULL},
	{".folded", &format_folded, true, NULL},
	{".svg", NULL, true, write_svg},
};

#define N_FILES (sizeof(files) / sizeof(*files))

/* Opens all files before rights are dropped (base/preopen.h). */
static struct error *artefacts_open(const char *stem)
{
	for (size_t i = 0; i < N_FILES; i++) {
		FREED char *path = joined(stem, files[i].ending);

		if (!path)
			return error_no_memory();
		TRY(preopen_output(path));
	}
	return NULL;
}

static struct error *write_file(struct artefacts *a, const struct file *file, FILE *out)
{
	const struct format_job job = {.path = a->recording,
				       .profile = a->loaded.profile,
				       .filter = &a->options.filter,
				       .symbolizer =
					       file->named ? a->loaded.symbolizer : a->addresses};

	return file->format ? file->format->write(&job, out) : file->write(a, out);
}

static struct error *write_all(struct artefacts *a)
{
	for (const struct file *file = files; file < files + N_FILES; file++) {
		FREED char *path = joined(a->stem, file->ending);
		FILE *out;

		if (file->write == write_symbols && !images_count(a->images))
			continue;
		if (!path)
			return error_no_memory();
		TRY(cmd_open_output(path, &out));
		TRY(cmd_close_output(path, out, write_file(a, file, out)));
		if (!a->quiet)
			cmd_say("wrote %s", path);
	}
	return NULL;
}

/*
 * Writes everything that `run` makes of a recording. `images` are those that
 * were found in the guest: .syms lists their functions by the guest's addresses.
 */
static struct error *artefacts_write(const char *stem, const char *recording,
				     const struct images *images, bool quiet)
{
	struct artefacts a = {.stem = stem,
			      .recording = recording,
			      .images = images,
			      .quiet = quiet};
	struct error *err;

	load_defaults(&a.options);
	a.options.path = recording;
	err = load_recording(&a.options, &a.loaded);
	if (!err)
		err = symbolizer_new(NULL, NULL, &a.addresses);
	if (!err)
		err = write_all(&a);
	if (!err && a.loaded.warning && !quiet)
		cmd_say("warning: %s", a.loaded.warning);
	symbolizer_free(a.addresses);
	load_free(&a.loaded);
	return err;
}

#define DEFAULT_START_TIMEOUT_NS (60 * NS_PER_S)

struct run_args {
	struct session_options session;
	uint64_t start_timeout_ns;
};

#define AT(field) offsetof(struct run_args, field)

static const struct option_row own_options[] = {
	{"output", "DIR", 'o', take_text, AT(session.output),
	 .text = "where the results are put (default: here)", .values = OPTION_DIRECTORY},
	{"start-timeout", "T", 0, take_duration, AT(start_timeout_ns),
	 .text = "how long to wait for the guest (default 60s); -T counts from when it is there"},
	{0}};

static const struct option_group options_of_run[] = {{own_options, 0},
						     {session_sampling_options, AT(session)},
						     {session_reading_options, AT(session)},
						     {0}};

static struct error *parse(int argc, char **argv, struct run_args *options, int *first)
{
	*options = (struct run_args){.start_timeout_ns = DEFAULT_START_TIMEOUT_NS};
	session_defaults(&options->session);
	TRY(options_parse(&verb_run, argc, argv, options, first));
	return *first < argc ? NULL : cmd_usage_error(&verb_run, "which command starts the guest?");
}

/* DIR/GUEST: the beginning of all files' names. The caller frees it. */
static char *stem(const struct target *target, const char *directory)
{
	FREED char *name = session_default_path(target, "");
	char *path = NULL;

	if (name && asprintf(&path, "%s%s%s", directory ?: "", directory ? "/" : "", name) < 0)
		return NULL;
	return path;
}

static struct error *profile_guest(struct target *target, const struct session_options *options)
{
	struct sampler_result result;
	FREED char *base = stem(target, options->output);
	FREED char *path = base ? joined(base, ".uniprof") : NULL;
	ENDED_BY(images_end) struct images *images = NULL;

	if (!path)
		return error_no_memory();
	TRY(preopen_output_and_input(path));
	TRY(artefacts_open(base));
	TRY(session_confine(target, options));
	TRY(session_record(target, options, path, &result, &images));
	if (!options->quiet)
		cmd_say("%s after %.1f s", sampler_outcome_text(result.outcome),
			(double)result.elapsed_ns / 1e9);
	return artefacts_write(base, path, images, options->quiet);
}

static struct error *run(int argc, char **argv, int *status)
{
	struct run_args options;
	struct session_options *session = &options.session;
	ENDED_BY(guest_launch_end) struct guest_launch *launch = NULL;
	ENDED_BY(target_end) struct target *target = NULL;
	int first;

	TRY(parse(argc, argv, &options, &first));
	if (session->output && mkdir(session->output, 0777) && errno != EEXIST)
		return error_errno(ERR_OUTPUT, errno, "cannot make directory %s", session->output);
	session->sampler.stop = cmd_catch_signals();
	signal(SIGPIPE, SIG_IGN);
	TRY(guest_launch(argv + first,
			 &(struct guest_launch_options){.via = session->via,
							.quiet = session->quiet,
							.timeout_ns = options.start_timeout_ns,
							.stop = session->sampler.stop},
			 &launch, &target));
	return profile_guest(target, session);
}

const struct verb verb_run = {
	.name = "run",
	.summary = "start a guest, sample it, and leave recording, traces and picture",
	.arguments = "[options] -- COMMAND [ARGUMENTS]",
	.about = "Runs a command that starts a guest (xl create web.cfg), samples the guest from "
		 "its\n"
		 "beginning, and leaves everything that is made of it, named after the guest:\n"
		 "  web.uniprof       the recording\n"
		 "  web.raw           the classic trace, addresses only\n"
		 "  web.syms          the guest's symbol table, as by nm -n\n"
		 "  web.resolved.raw  the trace with names\n"
		 "  web.folded        folded stacks\n"
		 "  web.svg           the flame graph\n",
	.options = options_of_run,
	.closing = "Only what the command starts is sampled: a process of its own (a unikernel, "
		   "QEMU, another\n"
		   "monitor), or the domain that its `xl create` names. QEMU without a QMP socket "
		   "is given one.\n"
		   "The guest's end ends the recording, and is no error here. Exit codes as of "
		   "record.\n",
	.takes = TAKES_COMMAND,
	.run = run,
};
