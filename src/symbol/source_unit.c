/* SPDX-License-Identifier: BSD-3-Clause */
#include "symbol/source_unit.h"

#include <dwarf.h>
#include <stdlib.h>
#include <string.h>

/* Outer ones before those in them. */
static int range_cmp(const void *left, const void *right)
{
	const struct scope_range *a = left, *b = right;

	if (a->start != b->start)
		return a->start < b->start ? -1 : 1;
	if (a->end != b->end)
		return a->end > b->end ? -1 : 1;
	return (a->scope > b->scope) - (a->scope < b->scope);
}

static void set_edge(struct source_unit *unit, uint64_t addr, uint32_t owner)
{
	if (!unit->n_edges || unit->edge[unit->n_edges - 1] != addr)
		unit->edge[unit->n_edges++] = addr;
	unit->owner[unit->n_edges - 1] = owner;
}

/* The ranges that are open at some address, innermost last. */
struct open {
	uint32_t *at;
	size_t n;
};

static void close_upto(struct source_unit *unit, struct open *open, uint64_t upto)
{
	while (open->n && unit->range[open->at[open->n - 1]].end <= upto) {
		uint64_t end = unit->range[open->at[open->n - 1]].end;

		while (open->n && unit->range[open->at[open->n - 1]].end <= end)
			open->n--;
		set_edge(unit, end, open->n ? open->at[open->n - 1] : SCOPE_NONE);
	}
}

/* Cuts the code into stretches by who is innermost; what overlaps is cut off at its outer one's end. */
static void cut(struct source_unit *unit, struct open *open)
{
	for (size_t i = 0; i < unit->n_ranges; i++) {
		struct scope_range *range = &unit->range[i];

		close_upto(unit, open, range->start);
		if (open->n && range->end > unit->range[open->at[open->n - 1]].end)
			range->end = unit->range[open->at[open->n - 1]].end;
		set_edge(unit, range->start, (uint32_t)i);
		open->at[open->n++] = (uint32_t)i;
	}
	close_upto(unit, open, UINT64_MAX);
}

static struct error *index_ranges(struct source_unit *unit)
{
	struct open open = {.at = calloc(unit->n_ranges + 1, sizeof(*open.at))};

	unit->edge = calloc(2 * unit->n_ranges + 1, sizeof(*unit->edge));
	unit->owner = calloc(2 * unit->n_ranges + 1, sizeof(*unit->owner));
	if (!open.at || !unit->edge || !unit->owner) {
		free(open.at);
		return error_no_memory();
	}
	if (unit->n_ranges)
		qsort(unit->range, unit->n_ranges, sizeof(*unit->range), range_cmp);
	cut(unit, &open);
	free(open.at);
	return NULL;
}

struct error *source_unit_new(const Dwarf_Die *die, struct source_unit **out)
{
	struct source_unit *unit = calloc(1, sizeof(*unit));
	Dwarf_Attribute directory;
	struct error *err;

	if (!unit)
		return error_no_memory();
	unit->die = *die;
	if (dwarf_attr(&unit->die, DW_AT_comp_dir, &directory))
		unit->directory = dwarf_formstring(&directory);
	err = source_scopes(unit);
	if (!err)
		err = index_ranges(unit);
	if (err)
		source_unit_free(unit);
	else
		*out = unit;
	return err;
}

void source_unit_free(struct source_unit *unit)
{
	if (!unit)
		return;
	free(unit->scope);
	free(unit->range);
	free(unit->edge);
	free(unit->owner);
	free(unit);
}

/* Of ranges; SCOPE_NONE: no function's. */
static uint32_t innermost(const struct source_unit *unit, uint64_t addr)
{
	const uint64_t *base = unit->edge;
	size_t n = unit->n_edges;

	if (!n || addr < base[0])
		return SCOPE_NONE;
	while (n > 1) {
		size_t half = n / 2;

		base += half * (base[half] <= addr);
		n -= half;
	}
	return unit->owner[base - unit->edge];
}

static void find_line(struct source_unit *unit, uint64_t addr, struct source_frame *frame)
{
	Dwarf_Line *line = dwarf_getsrc_die(&unit->die, addr);
	int number = 0;

	/* Line 0: code that the compiler has made up. */
	if (!line || dwarf_lineno(line, &number) || number <= 0)
		return;
	frame->line = (uint32_t)number;
	frame->file = dwarf_linesrc(line, NULL, NULL);
}

/* Where the piece of the outermost function begins that holds the address. */
static uint64_t start_of(const struct source_unit *unit, uint32_t scope, uint32_t range)
{
	/* In order of address, outer ones first: it is before those in it. */
	for (uint32_t i = range + 1; i-- > 0;)
		if (unit->range[i].scope == scope)
			return unit->range[i].start;
	return 0;
}

void source_unit_find(struct source_unit *unit, uint64_t addr, struct source_answer *answer)
{
	uint32_t range = innermost(unit, addr), at;
	struct source_frame *frame = answer->frame;

	*frame = (struct source_frame){0};
	answer->start = 0;
	find_line(unit, addr, frame);
	if (range == SCOPE_NONE) {
		answer->n = frame->line != 0;
		return;
	}
	answer->n = 1;
	at = unit->range[range].scope;
	for (;;) {
		const struct scope *scope = &unit->scope[at];

		frame->function = scope->name;
		if (scope->parent == SCOPE_NONE || answer->n == SOURCE_DEPTH)
			break;
		frame = &answer->frame[answer->n++];
		*frame = (struct source_frame){.file = scope->call_line ? scope->call_file : NULL,
					       .line = scope->call_line};
		at = scope->parent;
	}
	answer->start = start_of(unit, at, range);
}
