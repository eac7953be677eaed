/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef UNIPROF_TOP_KEEPER_H
#define UNIPROF_TOP_KEEPER_H

/*
 * The process that the shell waits for keeps the terminal, while a child of it
 * does the work. Should that child be killed while it is a screen, the terminal
 * is given back before the shell looks at it: a shell that came first would
 * take a screen's modes for the terminal's own.
 */

#include <stdbool.h>
#include <sys/types.h>

struct keeper {
	pid_t pid; /* 0: there is none */
};

/*
 * Returns in the child, whose keeper hands signals on to it and ends as it
 * does. To be called after screen_prepare, before threads and other children;
 * nothing may wait in the buffers of stdio. Without memory for a process there
 * is no keeper.
 */
void keeper_start(struct keeper *keeper);

/* The keeper was killed: who started us believes that we have ended, and so should we. */
bool keeper_lost(const struct keeper *keeper);

#endif
