/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef UNIPROF_CMD_SHARED_TERMINAL_H
#define UNIPROF_CMD_SHARED_TERMINAL_H

/* The terminal of a verb: the pager that its output goes through, and the line that tells of progress. */

#include <stddef.h>
#include <sys/types.h>

#include "base/error.h"
#include "base/progress.h"

/*
 * Sends output through $UNIPROF_PAGER, $PAGER or less. The pager is a process
 * of its own, forked before rights are given up (executing is no longer
 * possible then), which becomes the pager's program when the first text comes:
 * until then the terminal is ours, for progress and errors.
 */
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

/*
 * Progress as a line on the terminal that standard error is: the stage, its
 * share that is done, and the time that is left. Work of less than a second
 * shows nothing, and there is nothing in pipes and files.
 */
struct progress_line {
	struct progress_sink progress;
	const char *who;  /* in front of the line */
	const char *what; /* the stage; NULL: none yet */
	bool terminal, visible;
	uint64_t first_ns, began_ns, told_ns; /* all of it, this stage, the last line */
	char text[256];
};

/* The struct must not be moved afterwards: pointers to `progress` are kept. */
void progress_line_init(struct progress_line *display, const char *who);

/* Puts the line for the time `now_ns` into display->text, "" if none is to be shown. */
void progress_line_update(struct progress_line *display, const char *what, uint64_t done,
			  uint64_t all, uint64_t now_ns);

#endif
