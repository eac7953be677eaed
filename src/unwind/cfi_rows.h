/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef UNIPROF_UNWIND_CFI_ROWS_H
#define UNIPROF_UNWIND_CFI_ROWS_H

/*
 * Unwind tables from an ELF file's call frame information: from .eh_frame and
 * .debug_frame, also compressed, also in a separate debug file; on 32-bit Arm,
 * where these say nothing, from its tables for exceptions; and from a Linux
 * kernel's ORC, which is used alone where there is any. At more than 20
 * million rows a second there is little to gain from keeping them in files.
 */

#include "unwind/tables/unwind_table.h"

/*
 * *out is NULL when the file has no such tables for its code, or is for a
 * machine that is not known. ERR_INPUT with a sentence when it cannot be read
 * or is no ELF file. What is damaged in it has no rows.
 */
struct error *cfi_rows_load(const char *path, struct rows **out);

#endif
