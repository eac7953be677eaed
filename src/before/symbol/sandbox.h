/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef UNIPROF_SYMBOL_APART_H
#define UNIPROF_SYMBOL_APART_H

#include <stddef.h>

/*
 * Makes the calling process, just forked, one that files are parsed in: it
 * keeps `fds`, standard error and the files that were opened ahead
 * (base/ahead.h), has no rights, ends with its parent, and has a bounded time
 * of the CPU.
 */
void apart_begin(const int *fds, size_t n);

#endif
