/* SPDX-License-Identifier: BSD-3-Clause */
#pragma once

/*
 * Unwind tables: for each stretch of code, one row that says how to get from a
 * frame there to its caller. Compiled once, from an ELF file's CFI or Arm's
 * exception tables (cfi.h) or from Linux's ORC, then only searched. A row
 * suffices for nearly all code; longer rules are kept beside it (ROW_RARE).
 *
 * Addresses are those of the file; the caller subtracts the slide.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

enum row_kind {
	ROW_NONE, /* no rule is known from here on: another source must serve */
	ROW_CALL, /* the caller is behind a call: its address is a return address */
	ROW_TRAP, /* the caller was interrupted at this very address (signal frame, pt_regs) */
	ROW_END,  /* outermost: nobody called this */
	ROW_RARE, /* an expression or a rule that a row cannot hold: rare[cfa_offset] */
	/* As ROW_CALL, but only good where calls stand: how a function begins and ends is not told. */
	ROW_BODY,
};

/* The canonical frame address (CFA): how it is computed from the base register. */
enum row_base {
	ROW_PLUS,	/* reg + cfa_offset */
	ROW_PLUS_DEREF, /* the word at reg + cfa_offset */
	ROW_DEREF_PLUS, /* the word at reg, plus cfa_offset */
};

/* For ra_at, fp_at and sp_at: in place of bytes from the CFA. */
#define ROW_SAME INT16_MIN	 /* ra, fp: still in its register; sp: the caller's is the CFA */
#define ROW_LOST (INT16_MIN + 1) /* the caller's value is lost */

struct row {
	uint32_t start;	    /* bytes from the table's base; good up to the next row's start */
	int32_t cfa_offset; /* bytes */
	int16_t ra_at;	    /* bytes from the CFA to the word with the return address */
	union {
		int16_t fp_at; /* ... with the caller's frame pointer */
		uint16_t kept; /* in a table with kept registers, in its place: kept[kept] */
	};
	int16_t sp_at;	    /* ... with the caller's stack pointer */
	uint8_t cfa_reg;    /* DWARF register number (arch/arch.h, struct regs) */
	uint8_t kind : 4;   /* enum row_kind */
	uint8_t base : 3;   /* enum row_base */
	uint8_t begins : 1; /* in a table with kept registers: a function starts here */
};

_Static_assert(sizeof(struct row) == 16, "sixteen bytes a row");

/* Location of a caller's register, in full (DWARF 5, 6.4.1). */
enum rule_how {
	RULE_SAME,	    /* in its register; sp: the CFA */
	RULE_LOST,	    /* DWARF's undefined */
	RULE_AT_CFA,	    /* in the word at CFA + value */
	RULE_IS_CFA,	    /* it is CFA + value */
	RULE_IN_REG,	    /* in register `value` */
	RULE_AT_REG,	    /* in the word at register `reg` + value */
	RULE_AT_EXPRESSION, /* in the word at the expression's value */
	RULE_IS_EXPRESSION  /* the expression's value itself */
};

struct row_rule {
	uint8_t how;	 /* enum rule_how */
	uint8_t reg;	 /* of RULE_AT_REG; of the CFA's RULE_IS_CFA, which counts from it */
	uint16_t len;	 /* of the expression, bytes */
	uint32_t offset; /* of the expression, in rows.expressions */
	int64_t value;
};

_Static_assert(sizeof(struct row_rule) == 16, "no padding: rules are compared as bytes");

struct row_rare {
	struct row_rule cfa, ra, fp, sp; /* cfa: RULE_IS_CFA, _AT_REG or _IS_EXPRESSION */
	bool trap;			 /* as ROW_TRAP */
};

/*
 * Kept registers, on machines where any register may be the frame pointer, as
 * on 32-bit Arm: where the caller's values of the callee-saved registers are.
 * As fp_at.
 */
#define ROW_KEPT       8
#define ROW_KEPT_FIRST 4 /* the number of the first of them */
struct row_kept {
	int16_t at[ROW_KEPT];
};

/* A sorted table. Immutable once made, except `shared`. */
struct unwind_table {
	unsigned shared; /* how many have it, beside the first */
	uint64_t base;	 /* address of offset 0, as in the file */
	uint32_t n;
	struct row *row; /* in order of start; neighbours differ, but where one begins */
	uint32_t n_rare;
	struct row_rare *rare;
	uint32_t n_expressions; /* bytes */
	uint8_t *expressions;	/* DWARF operations */
	uint32_t n_kept;	/* 0: a frame pointer is all that matters */
	struct row_kept *kept;
};

/* Has the caller been interrupted, not called? */
static inline bool row_is_trap(const struct unwind_table *table, const struct row *row)
{
	return row->kind == ROW_TRAP ||
	       (row->kind == ROW_RARE && table->rare[row->cfa_offset].trap);
}

/* The row that is good at `addr` (an address of the file), NULL if none; ROW_NONE counts as none. */
const struct row *unwind_table_find(const struct unwind_table *table, uint64_t addr);

/* For one more to have the same table: each of them calls unwind_table_free. */
struct unwind_table *unwind_table_share(struct unwind_table *table);

void unwind_table_free(struct unwind_table *table);

/* The registers and the memory that a row is applied to. */
struct row_env {
	void *ctx;
	/* The value of a register (DWARF number); false if it is not known. */
	bool (*reg)(const void *ctx, unsigned n, uint64_t *value);
	/* The word at `va`, of the stack; false if it cannot be read. */
	bool (*load)(void *ctx, uint64_t va, uint64_t *value);
	unsigned word;	    /* bytes */
	uint8_t fp, sp, ra; /* numbers of these registers */
};

struct row_caller {
	uint64_t pc, sp, fp;
	uint64_t slot; /* where pc was read from; 0: from no memory */
	bool fp_known; /* false in tables with kept registers, which count from sp, the CFA */
	bool trap;     /* pc is the interrupted instruction, not a return address */
};

/*
 * Finds the caller's registers by `row`, of any kind that has a caller. False
 * if a register or a word that this takes is missing: then out->slot is where
 * the walk got stuck, if that was a word of memory, else 0. Checks nothing
 * but that; bounded, whatever an expression says.
 */
bool unwind_table_step(const struct unwind_table *table, const struct row *row,
		       const struct row_env *env, struct row_caller *out);

/*
 * Makes tables: runs of rows, in any order, from one or several sources. A
 * run is a stretch of code [start, end) with the rows that are good in it.
 * Where runs overlap, those of the lower rank win. Within a rank, what
 * contradicts itself (several runs that start at the same address but end
 * elsewhere, as linkers leave them behind for code that they dropped) is left
 * out altogether, and any other overlap belongs to the later start.
 */
struct table_builder;

struct error *table_builder_new(struct table_builder **out);
void table_builder_free(struct table_builder *builder);

/* Begins a run; the former one ends. */
struct error *table_builder_begin(struct table_builder *builder, uint64_t start, uint64_t end,
				  unsigned rank);

/*
 * Adds a row to the run, good from `addr` on: not below the last one's, which
 * it replaces if it is the same. row->start is ignored.
 */
struct error *table_builder_put(struct table_builder *builder, uint64_t addr,
				const struct row *row);

/*
 * Adds a row with a rare rule, whose expressions are copied: `bytes` in the order cfa, ra, fp, sp,
 * NULL where there is none. It becomes ROW_NONE when there are too many.
 */
struct error *table_builder_put_rare(struct table_builder *builder, uint64_t addr,
				     const struct row_rare *rare, const uint8_t *const bytes[4]);

/*
 * Stores kept registers: fills row->kept, to be used in all rows of a table or
 * in none. Makes it ROW_NONE when there are too many different ones.
 */
struct error *table_builder_keep(struct table_builder *builder, const struct row_kept *kept,
				 struct row *row);

/* The table, with at least one row, or *out NULL. Nothing can be added any more. */
struct error *table_builder_finish(struct table_builder *builder, struct unwind_table **out);
