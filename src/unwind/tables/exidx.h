/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef UNIPROF_UNWIND_TABLES_EXIDX_H
#define UNIPROF_UNWIND_TABLES_EXIDX_H

/*
 * 32-bit Arm's exception tables: .ARM.exidx and the entries that it points to
 * (EHABI32, section 6).
 */

#include <stddef.h>

#include "unwind/tables/cfi.h"
#include "unwind/tables/unwind_table.h"

/*
 * Compiles the instructions that say how to undo a function's frame (EHABI32,
 * section 10.3) to a row of a function's body and its kept registers;
 * false if they make no sense, forbid unwinding, or do not fit into a row.
 */
bool ehabi_compile(const uint8_t *ops, size_t n, struct row *row, struct row_kept *kept);

/*
 * Adds a run of one row for each function that they name, in this file's code: the row
 * of its body, ROW_END if there is no way out, ROW_NONE if no row can express
 * it. Damaged entries are skipped.
 */
struct error *exidx_read(Elf *elf, const struct cfi_section *file, unsigned rank,
			 struct table_builder *builder);

#endif
