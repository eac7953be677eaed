/* SPDX-License-Identifier: BSD-3-Clause */
#include <dirent.h>
#include <errno.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/array.h"
#include "base/preopen.h"
#include "base/clock.h"
#include "cmd/shared/session.h"
#include "target/inside/inside.h"

#define NAP_NS 50000000ull

struct worker {
	pid_t pid; /* 0: through */
	int status;
};

/* A process group of its own: Ctrl-C reaches only the parent, which passes it on once. */
static void work(const char *guest, struct error *(*each)(void *ctx, const char *guest), void *ctx)
{
	struct error *err;
	int status = 0;

	/* All speak to one terminal: a line at a time, not its parts. */
	setvbuf(stderr, NULL, _IOLBF, BUFSIZ);
	setpgid(0, 0);
	prctl(PR_SET_PDEATHSIG, SIGTERM);
	err = each(ctx, guest);
	if (err) {
		cmd_say("%s: %s", guest, err->text);
		status = (int)err->kind;
	}
	error_free(err);
	exit(status);
}

static void pass_on(const struct worker *workers, size_t n, int number)
{
	for (size_t i = 0; i < n; i++)
		if (workers[i].pid)
			kill(workers[i].pid, number);
}

static void note_end(struct worker *workers, char **guests, size_t n, pid_t pid, int status)
{
	for (size_t i = 0; i < n; i++) {
		if (workers[i].pid != pid)
			continue;
		workers[i].pid = 0;
		workers[i].status = WIFEXITED(status) ? WEXITSTATUS(status) : ERR_FAILED;
		if (WIFSIGNALED(status))
			cmd_say("%s: ended by signal %d", guests[i], WTERMSIG(status));
	}
}

/* Looks now and then: a signal may have come just before waiting for an end would begin. */
static void wait_for_all(struct worker *workers, char **guests, size_t n)
{
	bool passed_on = false;
	int status;
	pid_t pid;

	while ((pid = waitpid(-1, &status, WNOHANG)) >= 0) {
		if (pid)
			note_end(workers, guests, n, pid, status);
		if (cmd_caught_signal() && !passed_on) {
			passed_on = true;
			pass_on(workers, n, cmd_caught_signal());
		}
		if (!pid)
			clock_sleep_until(clock_now_ns() + NAP_NS);
	}
}

/*
 * Runs one worker process per guest, and waits for all. Nothing may be open
 * yet. Caught signals are passed on. Errors are printed as they come, with the
 * guest's name; *status is that of the first guest that had one.
 */
static struct error *parallel(char **guests, size_t n,
			      struct error *(*each)(void *ctx, const char *guest), void *ctx,
			      int *status)
{
	FREED struct worker *workers = NULL;
	struct error *err = NULL;

	TRY(ARRAY_NEW(&workers, n));
	for (size_t i = 0; i < n && !err; i++) {
		workers[i].pid = fork();
		if (!workers[i].pid)
			work(guests[i], each, ctx);
		if (workers[i].pid < 0) {
			err = error_errno(ERR_FAILED, errno, "cannot start a process");
			workers[i].pid = 0;
		}
	}
	if (err)
		pass_on(workers, n, SIGTERM);
	wait_for_all(workers, guests, n);
	for (size_t i = n; i--;)
		*status = workers[i].status ?: *status;
	return err;
}

struct members {
	char *directory;
	char **path;
	size_t n;
};

static int is_member(const struct dirent *entry)
{
	return entry->d_name[0] != '.';
}

static struct error *find_members(struct members *members)
{
	struct dirent **found;
	int n = scandir(members->directory, &found, is_member, alphasort);
	bool good;

	if (n < 0)
		return error_errno(ERR_FAILED, errno, "cannot read %s", members->directory);
	members->path = calloc((size_t)n + 1, sizeof(*members->path));
	good = members->path;
	for (int i = 0; i < n; i++) {
		good = good && asprintf(&members->path[members->n], "%s/%s", members->directory,
					found[i]->d_name) >= 0;
		members->n += good;
		free(found[i]);
	}
	free(found);
	return good ? NULL : error_no_memory();
}

static void remove_members(struct members *members)
{
	for (size_t i = 0; i < members->n; i++) {
		unlink(members->path[i]);
		free(members->path[i]);
	}
	free(members->path);
	rmdir(members->directory);
	free(members->directory);
}

/* Runs in a process of its own: root's files here have to be removed afterwards. */
static struct error *merge_members(void *ctx, const char *output)
{
	const struct members *members = ctx;

	return merge_confined(members->path, members->n, output);
}

/*
 * Records each guest into a file of its own, in a directory beside
 * options->output (`each` finds the directory there), and merges these.
 */
static struct error *record_together(struct session_options *options, char **guests, size_t n,
				     struct error *(*each)(void *ctx, const char *guest),
				     int *status)
{
	char *output = (char *)options->output;
	struct members members = {0};
	struct error *err;
	int merged = 0;

	if (asprintf(&members.directory, "%s.XXXXXX", output) < 0)
		return error_no_memory();
	if (!mkdtemp(members.directory)) {
		err = error_errno(ERR_OUTPUT, errno, "cannot make directory %s", members.directory);
		free(members.directory);
		return err;
	}
	options->output = members.directory;
	err = parallel(guests, n, each, options, status);
	options->output = output;
	if (!err)
		err = find_members(&members);
	if (!err && members.n)
		err = parallel(&output, 1, merge_members, &members, &merged);
	*status = merged ?: *status;
	remove_members(&members);
	return err;
}

struct record_args {
	struct session_options session;
	bool together;
};

static const struct option_row own_options[] = {
	{"output", "FILE", 'o', take_text, offsetof(struct record_args, session.output),
	 .text = "the recording (default GUEST.uniprof; - for standard output); of several guests, "
		 "the directory for them",
	 .values = OPTION_FILE},
	{"snapshot", "FILE", 0, take_text, offsetof(struct record_args, session.snapshot),
	 .text = "instead of a recording, write registers and memory of each sample for "
		 "replay:FILE",
	 .values = OPTION_FILE},
	{"inside", NULL, 0, take_true, offsetof(struct record_args, session.inside),
	 .text = "let the guest sample itself, by the sampler that is linked into it, and never "
		 "pause it",
	 .more = "For unikernels with\n.Pa libuniprof-inside :\nthose of KVM and QEMU, "
		 "processes, and on x86 those of Xen.\n"
		 "The guest's timer sets the pace: it is sampled at each of its ticks, or at each "
		 "second one, and so on, to come close to\n.Fl -frequency .\n"
		 "Sampling is switched on by a word in the guest's memory, and ends with the "
		 "recording, or some 3 s after\n.Nm uniprof\nhas ended in whatever way."},
	{"host", NULL, 0, take_true, offsetof(struct record_args, session.host),
	 .text = "of a guest of KVM, sample the host's side of each virtual CPU, too, and count "
		 "exits",
	 .more = "Each virtual CPU is one frame, and below it\n.Li [guest]\nwith the guest's "
		 "functions while these run;\n.Li [entry and exit]\nwhile KVM enters or leaves the "
		 "guest, of which the kernel knows no stack;\n.Li [exits]\nwhile KVM works for the "
		 "guest, and\n"
		 ".Li [VMM]\nwhile the monitor does, with functions of the host's kernel and of "
		 "the "
		 "monitor;\n.Li [idle]\nwhile the guest has halted it\n"
		 ".Pq Fl -state Ns = Ns Li all .\n"
		 "Callers in the monitor are found by frame pointers, and are guesses.\n"
		 "All is read by BPF; virtual CPUs are stopped only until what it sees has been "
		 "compared, at the beginning.\nWithout BPF, perf events tell the host's side, and "
		 "virtual CPUs that have a CPU are stopped.\n"
		 "What the guest was left for is counted, by reason and by the instruction that "
		 "caused it:\n.Xr uniprof-report 1 , Fl -by Ns = Ns Li exit ."},
	{"together", NULL, 0, take_true, offsetof(struct record_args, together),
	 .text = "several guests into one recording, -o FILE, each of them as the outermost frame "
		 "of its stacks (see uniprof merge)",
	 .more = "Until they end, each has a recording of its own, in a directory beside that."},
	{0}};

static const struct option_group options_of_record[] = {{own_options, 0},
							{session_sampling_options,
							 offsetof(struct record_args, session)},
							{session_reading_options,
							 offsetof(struct record_args, session)},
							{0}};

/* What does not go together, as a sentence; NULL: all does. */
static const char *what_is_wrong(const struct record_args *options, int guests)
{
	const struct session_options *session = &options->session;

	if (!guests)
		return "which guest?";
	if (guests > 1 && session->snapshot)
		return "--snapshot: one guest, please";
	if (session->waits && session->snapshot)
		return "--snapshot keeps nothing of --threads";
	if (session->inside && (session->via || session->snapshot || session->waits))
		return "--inside goes with none of --via, --snapshot and --threads";
	if (session->host &&
	    (session->inside || session->via || session->snapshot || session->always_pause))
		return "--host goes with none of --inside, --via, --snapshot and --always-pause";
	if (guests > 1 && session->output && !strcmp(session->output, "-"))
		return "-o -: one guest, please";
	if (options->together && (guests < 2 || !session->output))
		return "--together: several guests, and -o FILE, please";
	return NULL;
}

static struct error *parse(int argc, char **argv, struct session_options *out, char ***guests)
{
	struct record_args options = {0};
	struct session_options *session = &options.session;
	const char *wrong;
	int first;

	session_defaults(session);
	TRY(options_parse(&verb_record, argc, argv, &options, &first));
	session->parallel = argc - first > 1;
	wrong = what_is_wrong(&options, argc - first);
	if (wrong)
		return cmd_usage_error(&verb_record, "%s", wrong);
	if (session->host)
		session->via = "host";
	session->together = options.together ? session->output : NULL;
	*out = *session;
	*guests = argv + first;
	return NULL;
}

/* A new domain for the same guest ends the old one; its name does not change. */
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
static char *path_in_directory(const struct target *target, const char *directory)
{
	FREED char *name = session_default_path(target, "");
	char *path = NULL;

	if (name &&
	    asprintf(&path, "%s/%s-%s.uniprof", directory ?: ".", name, target->info.id) < 0)
		return NULL;
	return path;
}

/* The caller frees it. */
static char *path_of(const struct target *target, const struct session_options *options)
{
	if (options->snapshot)
		return strdup(options->snapshot);
	if (options->parallel)
		return path_in_directory(target, options->output);
	return options->output ? strdup(options->output) : session_default_path(target, ".uniprof");
}

static struct error *record_one(void *ctx, const char *guest)
{
	const struct session_options *options = ctx;
	struct sampler_result result;
	ENDED_BY(target_end) struct target *target = NULL;
	FREED char *path = NULL;
	struct error *err = options->inside ? inside_open(guest, options->sampler.rate_hz,
							  options->sampler.stop, &target)
					    : target_open(guest, options->via, &target);

	if (err)
		return options->host && err->kind == ERR_USAGE
			       ? error_prefix(err, "--host is for guests of KVM")
			       : err;
	path = path_of(target, options);
	if (!path)
		return error_no_memory();
	if (options->snapshot)
		TRY(snapshot_check(target));
	TRY(preopen_output(path));
	TRY(session_confine(target, options));
	if (options->snapshot)
		TRY(snapshot_record(target, options, &result));
	else
		TRY(session_record(target, options, path, &result, NULL));
	return outcome_error(&result, options->together ?: path);
}

static struct error *record(int argc, char **argv, int *status)
{
	struct session_options options;
	char **guests = NULL;
	size_t n;

	TRY(parse(argc, argv, &options, &guests));
	n = (size_t)(argv + argc - guests);
	options.sampler.stop = cmd_catch_signals();
	signal(SIGPIPE, SIG_IGN);
	if (!options.parallel)
		return record_one(&options, guests[0]);
	if (options.together)
		return record_together(&options, guests, n, record_one, status);
	if (options.output && mkdir(options.output, 0777) && errno != EEXIST)
		return error_errno(ERR_OUTPUT, errno, "cannot make directory %s", options.output);
	return parallel(guests, n, record_one, &options, status);
}

const struct verb verb_record = {
	.name = "record",
	.summary = "sample a running guest into a recording",
	.arguments = "[options] GUEST...",
	.about = "Samples a running guest and keeps what it sees in a recording. Of several "
		 "guests, which\n"
		 "are sampled at once, each has a recording of its own, GUEST-ID.uniprof, unless "
		 "they are\n"
		 "to be together.\n",
	.options = options_of_record,
	.closing = "Ctrl-C ends it and keeps what was recorded. Exit codes: 0 done, 2 wrong usage, "
		   "3 no such\n"
		   "guest, 4 no rights or no hypervisor, 5 the guest ended (the recording is "
		   "kept), 6 a file\n"
		   "that cannot be read, 7 one that cannot be written, 1 anything else.\n",
	.takes = TAKES_GUESTS,
	.run = record,
};
