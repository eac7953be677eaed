/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef UNIPROF_BASE_CONFINED_TESTING_H
#define UNIPROF_BASE_CONFINED_TESTING_H

/* For tests of what a process can no longer do: tries it in a child. */

#include <sys/wait.h>
#include <unistd.h>

/* What a child that ends in a normal way found; or its signal, negative. */
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

#endif
