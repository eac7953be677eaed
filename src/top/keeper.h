/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef UNIPROF_TOP_KEEPER_H
#define UNIPROF_TOP_KEEPER_H

/*
 * A process that outlives us and gives the terminal back as it was, should we
 * be killed while it is a screen. It learns of our death by the end of a pipe.
 */

#include <sys/types.h>

struct keeper {
	pid_t pid; /* 0: there is none */
	int fd;	   /* our end of the pipe */
};

/* Between screen_prepare and the opening of anything that must not be kept open by it. */
void keeper_start(struct keeper *keeper);

/* The terminal is back. */
void keeper_stop(struct keeper *keeper);

#endif
