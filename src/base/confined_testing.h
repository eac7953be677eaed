/* SPDX-License-Identifier: BSD-3-Clause */
#pragma once

/* Tests that a confined process can no longer do something, by trying it in a child. */

#include <sys/wait.h>
#include <unistd.h>

/* Exit code of the child, or its signal as a negative number. */
static inline int in_a_child(int (*work)(const void *arg), const void *arg)
{
	pid_t child = fork();
	int status;

	if (child == 0)
		_exit(work(arg));
	if (child < 0 || waitpid(child, &status, 0) != child)
		return 255;
	return WIFSIGNALED(status) ? -WTERMSIG(status) : WEXITSTATUS(status);
}
