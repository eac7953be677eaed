/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef UNIPROF_CMD_NEWCOMER_H
#define UNIPROF_CMD_NEWCOMER_H

/* Finds the guest that a command starts: the one that was not there before. */

#include <sys/types.h>

#include "cmd/cmd.h"
#include "target/target.h"

struct newcomer;

/* Remembers which guests there are; call before the command is started. */
struct error *newcomer_prepare(struct newcomer **out);
void newcomer_free(struct newcomer *newcomer);

/*
 * Starts the command in a child and waits until a guest has come up that was
 * not there before and is no longer held paused, or the command is through;
 * opens it by the way `via` (NULL: the cheapest that works). The command may go
 * on running (a console, say): *child is its process then, else 0. Errors: the
 * command fails (its status is told), no guest comes, *stop was set.
 */
struct error *newcomer_start(struct newcomer *newcomer, char **command, const char *via,
			     const volatile sig_atomic_t *stop, struct target **target,
			     pid_t *child);

#endif
