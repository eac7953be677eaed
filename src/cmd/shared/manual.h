/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef UNIPROF_CMD_SHARED_MANUAL_H
#define UNIPROF_CMD_SHARED_MANUAL_H

/* Texts that are made of the rows of options (option.h). All end at `out`'s errors, which its owner sees. */

#include <stdio.h>

#include "cmd/cmd.h"

/* The verb's --help. */
void manual_write_help(const struct verb *verb, FILE *out);

/* The verb's options as a list in mdoc(7), for its man page. */
void manual_write_options(const struct verb *verb, FILE *out);

/* Completions of all verbs for "bash", "zsh" or "fish"; false: there is no such shell. */
bool manual_write_completions(const char *shell, const struct verb *const *verbs, size_t n,
			      FILE *out);

#endif
