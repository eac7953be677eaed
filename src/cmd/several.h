/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef UNIPROF_CMD_SEVERAL_H
#define UNIPROF_CMD_SEVERAL_H

/* The same for several guests at once, each in a process of its own. */

#include <stddef.h>

#include "cmd/cmd.h"

/*
 * Calls `each` for all guests, and waits for all; to be called before anything
 * is opened, and after catch_signals(): what is caught is passed on. Errors are
 * told as they come, with the guest's name; *status is that of the first guest
 * that had one.
 */
struct error *several(char **guests, size_t n, struct error *(*each)(void *ctx, const char *guest),
		      void *ctx, int *status);

#endif
