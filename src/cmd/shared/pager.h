/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef UNIPROF_CMD_SHARED_PAGER_H
#define UNIPROF_CMD_SHARED_PAGER_H

/*
 * Sends output through $UNIPROF_PAGER, $PAGER or less. The pager is a process
 * of its own, forked before rights are given up (executing is no longer
 * possible then), which becomes the pager's program when the first text comes:
 * until then the terminal is ours, for progress and errors.
 */

#include <sys/types.h>

#include "base/error.h"

struct pager {
	pid_t pid; /* 0: there is none */
};

/*
 * From now on standard output leads to the pager. None is started when standard
 * output is no terminal, or the pager is "" or "cat".
 */
void pager_start(struct pager *pager);

/*
 * Closes standard output and waits until the user has seen enough. An error of
 * writing, if passed, is dropped when the pager was left before the end.
 */
struct error *pager_finish(struct pager *pager, struct error *err);

#endif
