/* SPDX-License-Identifier: BSD-3-Clause */
#pragma once

/*
 * Unwind tables from an ELF file's call frame information: from .eh_frame and
 * .debug_frame, also compressed, also in a separate debug file; on 32-bit Arm,
 * where these say nothing, from its tables for exceptions; and from a Linux
 * kernel's ORC, which is used alone where there is any. At more than 20
 * million rows a second there is little to gain from keeping them in files.
 */

#include <gelf.h>

#include "unwind/tables/cfa_program.h"
#include "unwind/tables/unwind_table.h"

/*
 * *out is NULL when the file has no such tables for its code, or is for an
 * unknown machine. ERR_INPUT with a sentence when it cannot be read or is no
 * ELF file. Damaged parts get no rows.
 */
struct error *cfi_load(const char *path, struct unwind_table **out);

/* The same of an ELF file that is open; its debug file is found by `path`. *out must be NULL. */
struct error *cfi_elf(const char *path, Elf *elf, struct unwind_table **out);

/* A stretch of code: only addresses in one of these get rows. */
struct cfi_text {
	uint64_t start, end;
};

/* A section with call frame information (DWARF 5, 6.4.1; LSB 10.6), and what counts of its file. */
struct cfi_section {
	const struct cfa_machine *machine; /* x86 code of both widths is in files of either */
	unsigned char ident[EI_NIDENT];
	struct cfi_text *text;
	size_t n_text;
	Elf_Data *data; /* not compressed */
	uint64_t addr;	/* where it is linked to */
	bool eh;	/* .eh_frame, else .debug_frame */
	unsigned rank;	/* for table_builder_begin */
};

/* Puts a run of rows for each function. Damaged entries are skipped. */
struct error *cfi_section_read(const struct cfi_section *section, struct table_builder *builder);

/*
 * 32-bit Arm's exception tables, .ARM.exidx and the entries that it points to (EHABI32, section 6).
 * Adds a run of one row for each function that they name, in this file's code: the row
 * of its body, ROW_END if there is no way out, ROW_NONE if no row can express
 * it. Damaged entries are skipped.
 */
struct error *exidx_read(Elf *elf, const struct cfi_section *file, unsigned rank,
			 struct table_builder *builder);

/*
 * Compiles the instructions that say how to undo a function's frame (EHABI32,
 * section 10.3) to a row of a function's body and its kept registers;
 * false if they make no sense, forbid unwinding, or do not fit into a row.
 */
bool ehabi_compile(const uint8_t *ops, size_t n, struct row *row, struct row_kept *kept);

/*
 * ORC, what Linux kernels on x86-64 have in place of call frame information
 * (Documentation/arch/x86/orc-unwinder.rst): a table of addresses, and a rule of
 * six bytes for each.
 */

/* Layouts of a rule's bits, by version of Linux. */
enum orc_layout {
	ORC_LINUX_4_14, /* up to 6.3: two bits of type, one for the end of stacks */
	ORC_LINUX_6_4,	/* since then: three bits of type; there is a section .orc_header */
	ORC_LINUX_7_2,	/* with other numbers of registers: orc_table() tells it from 6.4 itself */
};

#define ORC_ADDRESS_SIZE 4u
#define ORC_RULE_SIZE	 6u

/* No kernel has more rules; Debian's 6.12 has 450 thousand. */
#define ORC_RULES_MAX (1u << 22)

struct orc_tables {
	uint64_t va; /* of the addresses, which count from where each of them is */
	const uint8_t *addresses;
	const uint8_t *rules;
	size_t n; /* of both */
	enum orc_layout layout;
};

/* *out is NULL if the addresses are not in order: that is no such table. */
struct error *orc_table(const struct orc_tables *tables, struct unwind_table **out);

/* From a kernel's ELF file; *out is NULL if it has no such tables. */
struct error *orc_table_elf(Elf *elf, struct unwind_table **out);
