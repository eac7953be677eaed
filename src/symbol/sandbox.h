/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef UNIPROF_SYMBOL_SANDBOX_H
#define UNIPROF_SYMBOL_SANDBOX_H

#include <stddef.h>

#include "base/error.h"

/*
 * Makes the calling process, just forked, one that the file at `path` is
 * parsed in: it keeps `fds`, standard error and the files that were opened
 * ahead (base/preopen.h), has no rights, ends with its parent, and has bounded
 * memory and CPU time (base/limits.h).
 */
void sandbox_enter(const char *path, const int *fds, size_t n);

/* Seconds, waiting for a disk included, that one answer may take; far more than a loaded machine needs. */
#define SANDBOX_WAIT_S 120

/* The error for a reader's status that is not 0. */
struct error *sandbox_crashed(const char *path, int status) MUST_CHECK;

#endif
