/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef UNIPROF_UNWIND_TABLES_ORC_H
#define UNIPROF_UNWIND_TABLES_ORC_H

/*
 * Unwind tables from ORC, what Linux kernels on x86-64 have in place of call
 * frame information (Documentation/arch/x86/orc-unwinder.rst): a table of
 * addresses, and a rule of six bytes for each.
 */

#include <libelf.h>

#include "unwind/tables/unwind_table.h"

/* Layouts of a rule's bits, by version of Linux. */
enum orc_layout {
	ORC_LINUX_4_14, /* up to 6.3: two bits of type, one for the end of stacks */
	ORC_LINUX_6_4,	/* since then: three bits of type; there is a section .orc_header */
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

#endif
