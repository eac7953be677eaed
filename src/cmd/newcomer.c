/* SPDX-License-Identifier: BSD-3-Clause */
#include "cmd/newcomer.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"

/* How often we look, and how long after the command's end a guest may still turn up. */
#define LOOK_NS	  (10 * 1000000ull)
#define LINGER_NS (5 * NS_PER_S)

/* The status that shells give for a command that cannot be executed. */
#define CANNOT_EXECUTE 127

struct newcomer {
	char **known; /* "SCHEME:ID" */
	size_t n;
	bool no_memory;
	/* Of the look under way: the first stranger. */
	char *found;
	bool paused;
};

static char *spec_of(const struct target_listing *entry)
{
	char *spec;

	return asprintf(&spec, "%s:%s", entry->scheme, entry->id) < 0 ? NULL : spec;
}

static void remember(void *ctx, const struct target_listing *entry)
{
	struct newcomer *newcomer = ctx;
	char **known = realloc(newcomer->known, (newcomer->n + 1) * sizeof(*known));

	if (known) {
		newcomer->known = known;
		known[newcomer->n] = spec_of(entry);
	}
	if (!known || !known[newcomer->n])
		newcomer->no_memory = true;
	else
		newcomer->n++;
}

static void look_at(void *ctx, const struct target_listing *entry)
{
	struct newcomer *newcomer = ctx;
	char *spec;

	if (newcomer->found || entry->note)
		return;
	spec = spec_of(entry);
	for (size_t i = 0; spec && i < newcomer->n; i++) {
		if (!strcmp(spec, newcomer->known[i])) {
			free(spec);
			return;
		}
	}
	newcomer->found = spec;
	newcomer->paused = entry->paused;
}

static struct error *list_all(void (*each)(void *ctx, const struct target_listing *entry),
			      void *ctx)
{
	const struct target_ops *ops;
	struct error *err = NULL;
	unsigned kinds = 0, failed = 0;

	for (size_t i = 0; (ops = target_kind(i)); i++) {
		struct error *own;

		if (!ops->list)
			continue;
		kinds++;
		own = ops->list(each, ctx);
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
	return err;
}

struct error *newcomer_prepare(struct newcomer **out)
{
	struct newcomer *newcomer = calloc(1, sizeof(*newcomer));
	struct error *err;

	if (!newcomer)
		return error_no_memory();
	err = list_all(remember, newcomer);
	if (!err && newcomer->no_memory)
		err = error_no_memory();
	if (err) {
		newcomer_free(newcomer);
		return err;
	}
	*out = newcomer;
	return NULL;
}

void newcomer_free(struct newcomer *newcomer)
{
	if (!newcomer)
		return;
	for (size_t i = 0; i < newcomer->n; i++)
		free(newcomer->known[i]);
	free(newcomer->known);
	free(newcomer->found);
	free(newcomer);
}

static struct error *start(char **command, pid_t *child)
{
	*child = fork();
	if (*child < 0)
		return error_errno(ERR_FAILED, errno, "cannot start %s", command[0]);
	if (*child == 0) {
		signal(SIGPIPE, SIG_DFL);
		execvp(command[0], command);
		say("cannot execute %s: %s", command[0], strerror(errno));
		_exit(CANNOT_EXECUTE);
	}
	return NULL;
}

/* Collects the command if it has ended; sets *child to 0 then. */
static struct error *check_command(const char *name, pid_t *child)
{
	int status;

	if (!*child || waitpid(*child, &status, WNOHANG) != *child)
		return NULL;
	*child = 0;
	if (WIFEXITED(status) && WEXITSTATUS(status) == 0)
		return NULL;
	if (WIFEXITED(status))
		return error_new(ERR_FAILED, "%s failed with status %d", name, WEXITSTATUS(status));
	return error_new(ERR_FAILED, "%s was ended by signal %d", name, WTERMSIG(status));
}

/*
 * One look; *target is set when there is something to profile. A guest that is
 * only half there yet cannot be opened: then we look again, until the command
 * has ended and `last` says that this was the last chance.
 */
static struct error *look(struct newcomer *newcomer, const char *via, bool running, bool last,
			  struct target **target)
{
	struct error *err;

	free(newcomer->found);
	newcomer->found = NULL;
	err = list_all(look_at, newcomer);
	if (err || !newcomer->found || (newcomer->paused && running))
		return err;
	err = target_open_via(newcomer->found, via, target);
	if (err && err->kind != ERR_USAGE && !last) {
		error_free(err);
		err = NULL;
	}
	return err;
}

struct error *newcomer_start(struct newcomer *newcomer, char **command, const char *via,
			     const volatile sig_atomic_t *stop, struct target **target,
			     pid_t *child)
{
	struct error *err = start(command, child);
	uint64_t ended_ns = 0;

	while (!err && !*target) {
		uint64_t now = clock_now_ns();
		bool last = ended_ns && now - ended_ns > LINGER_NS;

		err = check_command(command[0], child);
		if (!*child && !ended_ns)
			ended_ns = now;
		if (!err)
			err = look(newcomer, via, *child != 0, last, target);
		if (err || *target)
			break;
		if (last)
			err = error_new(ERR_GUEST, "%s has ended, but no new guest has come up",
					command[0]);
		else if (*stop)
			err = error_new(ERR_FAILED, "interrupted before the guest was there");
		else
			clock_sleep_until(now + LOOK_NS);
	}
	return err;
}
