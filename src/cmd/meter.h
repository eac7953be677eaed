/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef UNIPROF_CMD_METER_H
#define UNIPROF_CMD_METER_H

/*
 * Progress as a line on the terminal that standard error is: what is done, how
 * much of it, and how long it will take. Work of less than a second shows
 * nothing, and there is nothing in pipes and files.
 */

#include <stddef.h>

#include "base/progress.h"

struct meter {
	struct progress_sink progress;
	const char *who;  /* in front of the line */
	const char *what; /* the stage; NULL: none yet */
	bool terminal, shown;
	uint64_t first_ns, began_ns, told_ns; /* all of it, this stage, the last line */
};

/* Is not to be moved afterwards. */
void meter_init(struct meter *meter, const char *who);

/*
 * The line after `now_ns`, "" if there is none to be shown. meter_init's is
 * this with the time and a terminal.
 */
void meter_line(struct meter *meter, const char *what, uint64_t done, uint64_t all, uint64_t now_ns,
		char *line, size_t size);

#endif
