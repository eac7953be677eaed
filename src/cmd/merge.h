/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef UNIPROF_CMD_MERGE_H
#define UNIPROF_CMD_MERGE_H

#include <stddef.h>

#include "cmd/cmd.h"

/* Opens all of them, gives up all rights, and merges (profile/merge.h). */
struct error *merge_confined(char *const *paths, size_t n, const char *output);

#endif
