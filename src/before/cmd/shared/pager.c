/* SPDX-License-Identifier: BSD-3-Clause */
#include "cmd/shared/pager.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

/* What a shell ends with when it does not find the command (POSIX, 2.8.2). */
#define NOT_FOUND 127

static const char *program(void)
{
	const char *own = getenv("UNIPROF_PAGER"), *general = getenv("PAGER");

	return own ? own : general ? general : "less";
}

/* False when whoever writes has ended without a word. */
static bool wait_for_text(int fd)
{
	struct pollfd poll_fd = {.fd = fd, .events = POLLIN};

	while (poll(&poll_fd, 1, -1) < 0)
		if (errno != EINTR)
			return false;
	return poll_fd.revents & POLLIN;
}

static void become_pager(int fd, const char *command)
{
	if (!wait_for_text(fd))
		_exit(0);
	if (dup2(fd, STDIN_FILENO) < 0)
		_exit(NOT_FOUND);
	close(fd);
	/* As git and perf do: end at once if one page is enough, show colours, leave the text there. */
	setenv("LESS", "FRX", 0);
	setenv("LESSCHARSET", "utf-8", 0);
	execl("/bin/sh", "sh", "-c", command, (char *)NULL);
	_exit(NOT_FOUND);
}

void pager_start(struct pager *pager)
{
	const char *command = program();
	int ends[2];

	pager->pid = 0;
	if (!isatty(STDOUT_FILENO) || !*command || !strcmp(command, "cat") || pipe(ends))
		return;
	pager->pid = fork();
	if (!pager->pid) {
		close(ends[1]);
		become_pager(ends[0], command);
	}
	if (pager->pid > 0) {
		dup2(ends[1], STDOUT_FILENO);
		/* Who leaves the pager early has seen enough: no error, and we end in order. */
		signal(SIGPIPE, SIG_IGN);
	} else {
		pager->pid = 0;
	}
	close(ends[0]);
	close(ends[1]);
}

struct error *pager_finish(struct pager *pager, struct error *err)
{
	int status = 0;

	if (!pager->pid)
		return err;
	/* Ctrl-C is the pager's now. */
	signal(SIGINT, SIG_IGN);
	signal(SIGQUIT, SIG_IGN);
	fclose(stdout);
	while (waitpid(pager->pid, &status, 0) < 0 && errno == EINTR)
		;
	pager->pid = 0;
	if (err && err->kind == ERR_OUTPUT) {
		error_free(err);
		err = NULL;
	}
	if (!err && WIFEXITED(status) && WEXITSTATUS(status) == NOT_FOUND)
		err = error_new(ERR_FAILED, "the pager \"%s\" cannot be run (try --no-pager)",
				program());
	return err;
}
