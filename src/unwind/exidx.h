/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef UNIPROF_UNWIND_EXIDX_H
#define UNIPROF_UNWIND_EXIDX_H

/* 32-bit Arm's tables for exceptions: .ARM.exidx and what it points to (EHABI32, section 6). */

#include "unwind/cfi_section.h"

/*
 * Puts a run of one row for each function that they name, in this code: its
 * body's, ROW_END where there is no way out, ROW_NONE where a row cannot say
 * it. What is damaged is skipped.
 */
struct error *exidx_read(Elf *elf, const struct cfi_text *text, size_t n_text, unsigned rank,
			 struct rows_builder *builder);

#endif
