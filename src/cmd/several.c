/* SPDX-License-Identifier: BSD-3-Clause */
#include "cmd/several.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"

#define NAP_NS 50000000ull

struct worker {
	pid_t pid; /* 0: through */
	int status;
};

/* What is typed at the terminal goes to who started us all, and is passed on once. */
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
		say("%s: %s", guest, err->text);
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
			say("%s: ended by signal %d", guests[i], WTERMSIG(status));
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
		if (caught_signal() && !passed_on) {
			passed_on = true;
			pass_on(workers, n, caught_signal());
		}
		if (!pid)
			clock_sleep_until(clock_now_ns() + NAP_NS);
	}
}

struct error *several(char **guests, size_t n, struct error *(*each)(void *ctx, const char *guest),
		      void *ctx, int *status)
{
	struct worker *workers = calloc(n, sizeof(*workers));
	struct error *err = workers ? NULL : error_no_memory();

	for (size_t i = 0; i < n && !err; i++) {
		workers[i].pid = fork();
		if (!workers[i].pid)
			work(guests[i], each, ctx);
		if (workers[i].pid < 0) {
			err = error_errno(ERR_FAILED, errno, "cannot start a process");
			workers[i].pid = 0;
		}
	}
	if (err && workers)
		pass_on(workers, n, SIGTERM);
	if (workers)
		wait_for_all(workers, guests, n);
	for (size_t i = n; i-- && workers;)
		*status = workers[i].status ?: *status;
	free(workers);
	return err;
}
