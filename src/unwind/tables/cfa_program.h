/* SPDX-License-Identifier: BSD-3-Clause */
#pragma once

/*
 * Call frame instructions (DWARF 5, 6.4.2): the programs in .eh_frame and
 * .debug_frame that say, address by address, where a caller's registers are.
 * Of these registers, only those that lead to the caller are followed.
 */

#include "unwind/tables/expression.h"
#include "unwind/tables/unwind_table.h"

/* Properties of these programs on one architecture. */
struct cfa_machine {
	uint16_t machine; /* e_machine */
	uint8_t word;	  /* bytes */
	uint8_t fp, sp;	  /* DWARF numbers of the registers */
	bool link;	  /* there is a link register: a leaf may have its return address there */
	bool kept; /* any register may be a frame pointer: rows have kept registers, not fp */
};

/* NULL: not known. */
const struct cfa_machine *cfa_machine(uint16_t e_machine);

/* A rule with the bytes of its expression, which belong to the section. */
struct cfa_rule {
	struct row_rule rule;
	const uint8_t *expression; /* NULL: none */
};

struct cfa_state {
	struct cfa_rule cfa, ra, fp, sp;
	struct row_kept kept; /* of machines that have it */
};

struct cfa_program {
	const struct cfa_machine *machine;
	uint64_t start, end; /* of the code */
	uint64_t code_factor;
	int64_t data_factor;
	uint64_t ra; /* number of the return address's column */
	bool trap;   /* a signal frame */
};

/* *state: that behind the instructions of a CIE; false if they make no sense. */
bool cfa_run_initial(const struct cfa_program *program, struct dwarf_bytes in,
		     struct cfa_state *state);

/*
 * Runs those of an FDE, which begins with `initial`, and puts a run of rows
 * for it. Where they make no sense, the rest of the code has no rows.
 */
struct error *cfa_run(const struct cfa_program *program, struct dwarf_bytes in,
		      const struct cfa_state *initial, unsigned rank,
		      struct table_builder *builder);
