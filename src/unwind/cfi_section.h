/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef UNIPROF_UNWIND_CFI_SECTION_H
#define UNIPROF_UNWIND_CFI_SECTION_H

/* The entries of one section with call frame information (DWARF 5, 6.4.1; LSB 10.6). */

#include <gelf.h>

#include "unwind/tables/cfa_program.h"

/* A stretch of code: only what lies in one of these gets rows. */
struct cfi_text {
	uint64_t start, end;
};

struct cfi_section {
	const struct cfa_machine *machine;
	const unsigned char *ident; /* e_ident */
	const struct cfi_text *text;
	size_t n_text;
	Elf_Data *data; /* not compressed */
	uint64_t addr;	/* where it is linked to */
	bool eh;	/* .eh_frame, else .debug_frame */
	unsigned rank;	/* for rows_begin */
};

/* Puts a run of rows for each function. What is damaged is skipped. */
struct error *cfi_section_read(const struct cfi_section *section, struct rows_builder *builder);

#endif
