/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef UNIPROF_UNWIND_EHABI_H
#define UNIPROF_UNWIND_EHABI_H

/* The instructions that say how to undo a function's frame (EHABI32, section 10.3). */

#include <stddef.h>

#include "unwind/tables/unwind_table.h"

/*
 * What they come to, as a row of a function's body and its kept registers;
 * false if they make no sense, forbid it, or cannot be said by a row.
 */
bool ehabi_compile(const uint8_t *ops, size_t n, struct row *row, struct row_kept *kept);

#endif
