/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef UNIPROF_CMD_SHARED_PROGRESS_LINE_H
#define UNIPROF_CMD_SHARED_PROGRESS_LINE_H

/*
 * Progress as a line on the terminal that standard error is: the stage, its
 * share that is done, and the time that is left. Work of less than a second
 * shows nothing, and there is nothing in pipes and files.
 */

#include <stddef.h>

#include "base/progress.h"

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
