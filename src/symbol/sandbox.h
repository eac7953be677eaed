/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef UNIPROF_SYMBOL_SANDBOX_H
#define UNIPROF_SYMBOL_SANDBOX_H

#include <stddef.h>

/*
 * Makes the calling process, just forked, one that files are parsed in: it
 * keeps `fds`, standard error and the files that were opened ahead
 * (base/preopen.h), has no rights, ends with its parent, and has a bounded time
 * of the CPU.
 */
void sandbox_enter(const int *fds, size_t n);

#endif
