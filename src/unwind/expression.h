/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef UNIPROF_UNWIND_EXPRESSION_H
#define UNIPROF_UNWIND_EXPRESSION_H

/*
 * DWARF expressions (DWARF 5, 2.5), with all operations that unwind tables can
 * have (6.4.2) but DW_OP_addr: an address of the file, which nobody slides.
 */

#include "unwind/tables/unwind_table.h"

/* No expression takes more operations: loops and damaged ones end here. */
#define EXPRESSION_STEPS 256

/*
 * Evaluates `len` bytes of operations; `first`, if not NULL, is on the stack
 * at the beginning. False if an operation is not known, lacks a register or a
 * word of memory, or makes no sense.
 */
bool expression_value(const uint8_t *bytes, size_t len, const struct row_env *env,
		      const uint64_t *first, uint64_t *value);

#endif
