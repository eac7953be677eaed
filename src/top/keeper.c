/* SPDX-License-Identifier: BSD-3-Clause */
#include "top/keeper.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "top/screen.h"

static void keep(int fd)
{
	/* What ends us is not meant for this process; and the shell is in front when it comes to work. */
	static const int signals[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGTSTP, SIGTTOU};
	ssize_t got;
	char word;

	for (size_t i = 0; i < sizeof(signals) / sizeof(*signals); i++)
		signal(signals[i], SIG_IGN);
	prctl(PR_SET_NAME, "uniprof-screen");
	do
		got = read(fd, &word, 1);
	while (got < 0 && errno == EINTR);
	if (got == 0)
		screen_rescue();
	_exit(0);
}

void keeper_start(struct keeper *keeper)
{
	int ends[2];

	keeper->pid = 0;
	if (pipe2(ends, O_CLOEXEC))
		return;
	keeper->pid = fork();
	if (!keeper->pid) {
		close(ends[1]);
		keep(ends[0]);
	}
	close(ends[0]);
	keeper->fd = ends[1];
	if (keeper->pid < 0) {
		keeper->pid = 0;
		close(ends[1]);
	}
}

void keeper_stop(struct keeper *keeper)
{
	if (!keeper->pid)
		return;
	/* If it has been killed, there is nobody to tell. */
	if (write(keeper->fd, "x", 1) < 0)
		errno = 0;
	close(keeper->fd);
	while (waitpid(keeper->pid, NULL, 0) < 0 && errno == EINTR)
		;
	keeper->pid = 0;
}
