/* SPDX-License-Identifier: BSD-3-Clause */
#include "top/keeper.h"

#include <errno.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "top/screen.h"

/* Ends as the child did, so that the shell tells the truth. */
static void end_like(pid_t child, int status, const sigset_t *before)
{
	if (WIFSIGNALED(status)) {
		screen_rescue();
		/* The memory that is worth a look is the child's. */
		prctl(PR_SET_DUMPABLE, 0);
		signal(WTERMSIG(status), SIG_DFL);
		sigprocmask(SIG_SETMASK, before, NULL);
		raise(WTERMSIG(status));
	}
	_exit(WIFEXITED(status) ? WEXITSTATUS(status) : 1);
}

static void keep(pid_t child, const sigset_t *signals, const sigset_t *before)
{
	int signal_number, status;

	prctl(PR_SET_NAME, "uniprof-screen");
	for (;;) {
		signal_number = sigwaitinfo(signals, NULL);
		if (signal_number == SIGCHLD && waitpid(child, &status, WNOHANG) == child)
			end_like(child, status, before);
		else if (signal_number > 0 && signal_number != SIGCHLD)
			kill(child, signal_number);
	}
}

void keeper_start(struct keeper *keeper)
{
	static const int handed_on[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGCHLD};
	const pid_t self = getpid();
	sigset_t signals, before;
	pid_t child;

	keeper->pid = 0;
	sigemptyset(&signals);
	for (size_t i = 0; i < sizeof(handed_on) / sizeof(*handed_on); i++)
		sigaddset(&signals, handed_on[i]);
	/* Whoever started us may have ignored it; then there would be nothing to wait for. */
	signal(SIGCHLD, SIG_DFL);
	sigprocmask(SIG_BLOCK, &signals, &before);
	child = fork();
	if (child > 0)
		keep(child, &signals, &before);
	sigprocmask(SIG_SETMASK, &before, NULL);
	if (child)
		return;
	keeper->pid = self;
	/* Without a keeper it gives the terminal back from behind the shell. */
	signal(SIGTTOU, SIG_IGN);
}

bool keeper_lost(const struct keeper *keeper)
{
	return keeper->pid && getppid() != keeper->pid;
}
