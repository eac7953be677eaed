/* SPDX-License-Identifier: BSD-3-Clause */
#include "cmd/shared/launcher.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/array.h"
#include "base/clock.h"
#include "base/owned.h"
#include "cmd/cmd.h"
#include "target/host/proc.h"

/* Pause between two searches, in addition to the length of the last one. */
#define SEARCH_NS (10 * 1000000ull)

/* An obstacle that lasts for so long stays. */
#define OBSTACLE_NS (500 * 1000000ull)

/* Guests of others that an error names. */
#define CANDIDATES_MAX 4

#define TEXT_MAX 1024

struct guest_launch {
	const struct guest_launch_options *options;
	struct launch_command command;
	struct launcher *launcher;
	char **known; /* "SCHEME:ID" of guests that were there before */
	size_t n_known, known_room;
	char domain[256];     /* the name that xl was given; "": not known yet */
	uint64_t obstacle_ns; /* since when there has been one; 0: there is none */
	bool told;	      /* the obstacle has been printed */
	/* Result of one search: */
	bool no_memory;
	char *found; /* "SCHEME:ID" */
	bool paused;
	char seen[TEXT_MAX];	     /* the guest found last, by any search */
	char obstacle[2 * TEXT_MAX]; /* in the way of profiling it; "": nothing */
	bool lasting;		     /* ... which it cannot get rid of */
	char candidates[CANDIDATES_MAX * TEXT_MAX];
	unsigned n_candidates;
};

static char *spec_of(const struct target_listing *entry)
{
	char *spec;

	return asprintf(&spec, "%s:%s", entry->scheme, entry->id) < 0 ? NULL : spec;
}

static void remember(void *ctx, const struct target_listing *entry)
{
	struct guest_launch *launch = ctx;
	char *spec = spec_of(entry);
	struct error *err = ARRAY_RESERVE(&launch->known, &launch->known_room, launch->n_known + 1);

	if (err || !spec) {
		launch->no_memory = true;
		free(spec);
	} else {
		launch->known[launch->n_known++] = spec;
	}
	error_free(err);
}

static bool is_known(const struct guest_launch *launch, const char *spec)
{
	for (size_t i = 0; i < launch->n_known; i++)
		if (!strcmp(spec, launch->known[i]))
			return true;
	return false;
}

static bool find_xl(void *ctx, int pid)
{
	struct guest_launch *launch = ctx;
	char name[sizeof(launch->domain)];

	if (!launch_xl_name_of(pid, name, sizeof(name)) || !launcher_owns(launch->launcher, pid))
		return true;
	memcpy(launch->domain, name, sizeof(name));
	return false;
}

/* A domain is no process: it belongs to the xl that made it. */
static bool is_named(struct guest_launch *launch, const struct target_listing *entry)
{
	return *launch->domain && !strcmp(entry->name, launch->domain);
}

/* "qemu:4242 (web)" */
static void describe(const struct target_listing *entry, const char *spec, char *text, size_t size)
{
	snprintf(text, size, *entry->name ? "%s (%s)" : "%s", spec, entry->name);
}

static void add_candidate(struct guest_launch *launch, const struct target_listing *entry,
			  const char *spec)
{
	const size_t len = strlen(launch->candidates);
	char text[TEXT_MAX];

	if (launch->n_candidates++ >= CANDIDATES_MAX)
		return;
	describe(entry, spec, text, sizeof(text));
	snprintf(launch->candidates + len, sizeof(launch->candidates) - len, "%s%s",
		 len ? ", " : "", text);
}

static void take(struct guest_launch *launch, const struct target_listing *entry, char *spec)
{
	describe(entry, spec, launch->seen, sizeof(launch->seen));
	launch->lasting = entry->note || !entry->way;
	launch->found = spec;
	launch->paused = entry->paused;
	*launch->obstacle = '\0';
	if (launch->lasting)
		snprintf(launch->obstacle, sizeof(launch->obstacle), "%s: %s", launch->seen,
			 entry->note ?: entry->missing ?: "it cannot be read");
}

static void judge(void *ctx, const struct target_listing *entry)
{
	struct guest_launch *launch = ctx;
	FREED char *spec = spec_of(entry);

	if (!spec) {
		launch->no_memory = true;
	} else if (entry->pid ? launcher_owns(launch->launcher, entry->pid)
			      : !is_known(launch, spec) && is_named(launch, entry)) {
		if (!launch->found) {
			take(launch, entry, spec);
			spec = NULL;
		}
	} else if (!is_known(launch, spec)) {
		add_candidate(launch, entry, spec);
	}
}

static struct error *list_all(target_each *each, struct guest_launch *launch)
{
	const struct target_ops *ops;
	struct error *err = NULL;
	unsigned kinds = 0, failed = 0;

	for (size_t i = 0; (ops = target_kind(i)); i++) {
		struct error *own;

		if (!ops->list)
			continue;
		kinds++;
		own = ops->list(ops, each, launch);
		failed += own != NULL;
		err = error_first(err, own);
	}
	/* Machines are hosts of one kind, as a rule. */
	if (failed < kinds) {
		error_free(err);
		err = NULL;
	}
	if (!kinds)
		return error_new(ERR_DENIED,
				 "this uniprof was built without any kind of guest that "
				 "can be found (see uniprof -V)");
	return !err && launch->no_memory ? error_no_memory() : err;
}

static struct error *search(struct guest_launch *launch)
{
	free(launch->found);
	launch->found = NULL;
	*launch->candidates = '\0';
	launch->n_candidates = 0;
	*launch->obstacle = '\0';
	launch->lasting = false;
	if (!*launch->domain)
		proc_numbers(0, "", find_xl, launch);
	return list_all(judge, launch);
}

/* Reports lasting errors only: the guest may not be complete yet. */
static struct error *open_found(struct guest_launch *launch, bool running, struct target **target)
{
	struct error *err;

	if (launch->paused && running) {
		snprintf(launch->obstacle, sizeof(launch->obstacle), "%s is held paused",
			 launch->seen);
		return NULL;
	}
	err = target_open(launch->found, launch->options->via, target);
	if (!err || err->kind == ERR_USAGE)
		return err;
	snprintf(launch->obstacle, sizeof(launch->obstacle), "%s: %s", launch->seen, err->text);
	error_free(err);
	return NULL;
}

/*
 * Ignores an obstacle for OBSTACLE_NS. After that a lasting one is an error;
 * one that may pass is printed once.
 */
static struct error *check_obstacle(struct guest_launch *launch)
{
	const uint64_t now = clock_now_ns();

	if (!*launch->obstacle) {
		launch->obstacle_ns = 0;
		return NULL;
	}
	if (!launch->obstacle_ns)
		launch->obstacle_ns = now;
	if (now - launch->obstacle_ns < OBSTACLE_NS)
		return NULL;
	if (launch->lasting)
		return error_new(ERR_GUEST, "%s", launch->obstacle);
	if (!launch->told && !launch->options->quiet)
		cmd_say("waiting for the guest: %s", launch->obstacle);
	launch->told = true;
	return NULL;
}

/*
 * The error after `what`, with no guest opened: its reason, as far as known,
 * and what to type next.
 */
static struct error *no_guest(const struct guest_launch *launch, const char *what)
{
	if (*launch->obstacle)
		return error_new(ERR_GUEST, "%s; %s", what, launch->obstacle);
	if (*launch->seen)
		return error_new(ERR_GUEST, "%s: %s ended before it could be read", what,
				 launch->seen);
	if (launch->n_candidates)
		return error_new(ERR_GUEST,
				 "%s; these came up meanwhile, but cannot be told to be its: %s%s; "
				 "sample one by `uniprof record KIND:ID`",
				 what, launch->candidates,
				 launch->n_candidates > CANDIDATES_MAX ? ", ..." : "");
	return error_new(ERR_GUEST,
			 "%s; a program that is no virtual machine is sampled by `uniprof record "
			 "process:PID`",
			 what);
}

static struct error *check_end(struct guest_launch *launch, enum launch_state state,
			       uint64_t began_ns)
{
	const uint64_t timeout_ns = launch->options->timeout_ns;
	const char *name = launch->command.argv[0];
	char what[TEXT_MAX];

	if (*launch->options->stop)
		return error_new(ERR_FAILED, "interrupted before the guest was there");
	if (state == LAUNCH_EMPTY)
		snprintf(what, sizeof(what), "%s has ended, and no guest of it is there", name);
	else if (clock_now_ns() - began_ns > timeout_ns)
		snprintf(what, sizeof(what), "%s started no guest within %g s (--start-timeout)",
			 name, (double)timeout_ns / 1e9);
	else
		return NULL;
	return no_guest(launch, what);
}

static struct error *await(struct guest_launch *launch, struct target **target)
{
	const uint64_t began_ns = clock_now_ns();

	for (;;) {
		const uint64_t now = clock_now_ns();
		enum launch_state state;

		/* The state comes first: after the launcher's end there is still one search. */
		TRY(launcher_state(launch->launcher, &state));
		TRY(search(launch));
		if (launch->found && !launch->lasting)
			TRY(open_found(launch, state == LAUNCH_RUNS, target));
		if (*target)
			return NULL;
		TRY(check_obstacle(launch));
		TRY(check_end(launch, state, began_ns));
		clock_sleep_until(clock_now_ns() + SEARCH_NS + (clock_now_ns() - now));
	}
}

static struct error *start(struct guest_launch *launch, char *const *command)
{
	const char *const *words = (const char *const *)command;
	char directory[4096];
	size_t n = 0;

	TRY(list_all(remember, launch));
	TRY(launch_command_new(command, &launch->command));
	while (words[n])
		n++;
	if (getcwd(directory, sizeof(directory)))
		launch_xl_name(words, n, directory, launch->domain, sizeof(launch->domain));
	return launcher_start(launch->command.argv, launch->command.directory, &launch->launcher);
}

struct error *guest_launch(char *const *command, const struct guest_launch_options *options,
			   struct guest_launch **out, struct target **target)
{
	struct guest_launch *launch;
	struct error *err;

	TRY(ARRAY_NEW(&launch, 1));
	launch->options = options;
	err = start(launch, command);
	if (!err)
		err = await(launch, target);
	if (err)
		guest_launch_free(launch);
	else
		*out = launch;
	return err;
}

void guest_launch_free(struct guest_launch *launch)
{
	if (!launch)
		return;
	launcher_free(launch->launcher);
	launch_command_free(&launch->command);
	for (size_t i = 0; i < launch->n_known; i++)
		free(launch->known[i]);
	free(launch->known);
	free(launch->found);
	free(launch);
}
