/* SPDX-License-Identifier: BSD-3-Clause */
#include "symbol/sandbox.h"

#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/limits.h"
#include "base/preopen.h"
#include "base/privilege.h"

/* The name in lists of processes. */
#define READER_NAME "uniprof-reader"

/* Signals that end a process over its limits, whatever its parent made of them. */
static void end_by_signals(void)
{
	const struct sigaction end = {.sa_handler = SIG_DFL};
	sigset_t set;

	sigemptyset(&set);
	sigaddset(&set, SIGALRM);
	sigaddset(&set, SIGXCPU);
	sigaction(SIGALRM, &end, NULL);
	sigaction(SIGXCPU, &end, NULL);
	sigprocmask(SIG_UNBLOCK, &set, NULL);
}

/* A pipe is not opened, for that may wait. */
static void limit_for(const char *path)
{
	const int fd = is_regular_file(path) ? open_to_read(path) : -1;

	limits_set();
	if (fd < 0)
		return;
	limits_raise(fd);
	close(fd);
}

void sandbox_enter(const char *path, const int *fds, size_t n)
{
	struct descriptors keep = {0};
	struct privilege rights;

	prctl(PR_SET_NAME, READER_NAME);
	end_by_signals();
	for (size_t i = 0; i < n; i++)
		descriptors_add(&keep, fds[i]);
	descriptors_add(&keep, STDERR_FILENO);
	preopen_add(&keep);
	descriptors_close_others(&keep);
	limit_for(path);
	privilege_drop(SECCOMP_PARSER, &rights);
	/* Behind what changes users, which takes it away again. */
	prctl(PR_SET_PDEATHSIG, SIGKILL);
}

struct error *sandbox_crashed(const char *path, int status)
{
	if (!WIFSIGNALED(status))
		return error_new(ERR_FAILED, "%s: what reads it has failed", path);
	if (WTERMSIG(status) == SIGXCPU)
		return error_new(ERR_INPUT, "%s: a damaged file: reading it takes too long", path);
	if (WTERMSIG(status) == SIGALRM)
		return error_new(ERR_INPUT, "%s: it could not be read within %u s", path,
				 limits_seconds(path));
	return error_new(ERR_INPUT, "%s: a damaged file: what reads it was ended by signal %d (%s)",
			 path, WTERMSIG(status), strsignal(WTERMSIG(status)));
}
