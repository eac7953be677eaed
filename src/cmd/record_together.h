/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef UNIPROF_CMD_RECORD_TOGETHER_H
#define UNIPROF_CMD_RECORD_TOGETHER_H

#include <stddef.h>

#include "cmd/session.h"

/*
 * Several guests into the one recording options->output: each into a recording
 * of its own first, in a directory beside it, by `each` (as for several()),
 * which finds that directory in options->output.
 */
struct error *record_together(struct session_options *options, char **guests, size_t n,
			      struct error *(*each)(void *ctx, const char *guest), int *status);

#endif
