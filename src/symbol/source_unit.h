/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef UNIPROF_SYMBOL_SOURCE_UNIT_H
#define UNIPROF_SYMBOL_SOURCE_UNIT_H

/* One compilation unit of DWARF, private to source_index.c. */

#include <elfutils/libdw.h>
#include <stdbool.h>

#include "symbol/source/source.h"

/* A function, or one that was inlined. */
struct scope {
	const char *name;      /* NULL: it has none */
	uint32_t parent;       /* what it was inlined into; SCOPE_NONE for a function */
	uint32_t call_line;    /* where the call stood */
	const char *call_file; /* NULL: not known */
};
#define SCOPE_NONE UINT32_MAX

/* The code of a scope, which may be in several pieces; of one that is in others these come first. */
struct scope_range {
	uint64_t start, end;
	uint32_t scope;
};

struct source_unit {
	Dwarf_Die die;	       /* that has the line table */
	const char *directory; /* of files without one; NULL: not known */
	struct scope *scope;
	struct scope_range *range;
	size_t n_scopes, scopes_room, n_ranges, ranges_room;
	/* From edge[i] on, owner[i] (of ranges) is the innermost; SCOPE_NONE: none. */
	uint64_t *edge;
	uint32_t *owner;
	size_t n_edges;
};

/* `die` is the unit as it is in the main file. What is damaged in it is left out. */
struct error *source_unit_new(const Dwarf_Die *die, struct source_unit **out);
void source_unit_free(struct source_unit *unit);

void source_unit_find(struct source_unit *unit, uint64_t addr, struct source_answer *answer);

/* source_scopes.c: fills in scopes and ranges. */
struct error *source_scopes(struct source_unit *unit);

#endif
