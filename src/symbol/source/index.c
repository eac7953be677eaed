/* SPDX-License-Identifier: BSD-3-Clause */
#include "symbol/source/source.h"

#include <dwarf.h>
#include <elfutils/libdw.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "symbol/names/stretches.h"

/* One compilation unit of DWARF. */

/* A function, or one that was inlined. */
struct scope {
	const char *name;      /* NULL: it has none */
	uint32_t parent;       /* the scope that it was inlined into; SCOPE_NONE for a function */
	uint32_t call_line;    /* where the call stood */
	const char *call_file; /* NULL: not known */
};

#define SCOPE_NONE UINT32_MAX

/* Code of a scope or a unit, which may be in several pieces. */
struct range {
	uint64_t start, end;
	uint32_t of; /* index of the scope, which comes behind those around it; or of the unit */
};

struct ranges {
	struct range *at;
	size_t n, room;
};

struct source_unit {
	Dwarf_Die die;	       /* that has the line table */
	const char *directory; /* of files without one; NULL: not known */
	struct scope *scope;
	size_t n_scopes, scopes_room;
	struct ranges ranges;
	struct stretches cut; /* into ranges, by their indices */
};

/* Nesting depth of entries at most; compilers stay far below. */
#define DEPTH_MAX 256

struct scope_walk {
	struct source_unit *unit;
	Dwarf_Files *files; /* NULL: none */
};

static struct error *add_scope(struct source_unit *unit, const struct scope *one, uint32_t *index)
{
	if (unit->n_scopes + 1 >= SCOPE_NONE)
		return error_no_memory();
	*index = (uint32_t)unit->n_scopes;
	return ARRAY_ADD(&unit->scope, &unit->scopes_room, &unit->n_scopes, one);
}

static struct error *add_range(struct ranges *ranges, const struct range *one)
{
	return ranges->n + 1 < STRETCH_NOBODY
		       ? ARRAY_ADD(&ranges->at, &ranges->room, &ranges->n, one)
		       : error_no_memory();
}

/* In order of address, outer ones before those in them. */
static int range_cmp(const void *left, const void *right)
{
	const struct range *a = left, *b = right;
	const int order = COMPARE(a->start, b->start) ?: COMPARE(b->end, a->end);

	return order ?: COMPARE(a->of, b->of);
}

static void sort_ranges(struct ranges *ranges)
{
	if (ranges->n)
		qsort(ranges->at, ranges->n, sizeof(*ranges->at), range_cmp);
}

const char *dwarf_function_name(Dwarf_Die *die)
{
	static const unsigned names[] = {DW_AT_linkage_name, DW_AT_MIPS_linkage_name, DW_AT_name};
	Dwarf_Attribute attribute;
	const char *name = NULL;

	for (size_t i = 0; i < sizeof(names) / sizeof(*names) && !name; i++)
		if (dwarf_attr_integrate(die, names[i], &attribute))
			name = dwarf_formstring(&attribute);
	return name && *name ? name : NULL;
}

static Dwarf_Word number_of(Dwarf_Die *die, unsigned name)
{
	Dwarf_Attribute attribute;
	Dwarf_Word value = 0;

	if (!dwarf_attr(die, name, &attribute) || dwarf_formudata(&attribute, &value))
		return 0;
	return value;
}

static struct error *take_scope(const struct scope_walk *walk, Dwarf_Die *die, bool inlined,
				uint32_t *outer)
{
	struct range range = {.of = SCOPE_NONE};
	struct scope scope = {.parent = SCOPE_NONE};
	ptrdiff_t at = 0;
	Dwarf_Addr base;

	/* A function without code is a declaration, or was inlined everywhere. */
	while ((at = dwarf_ranges(die, at, &base, &range.start, &range.end)) > 0) {
		if (range.end <= range.start)
			continue;
		if (range.of == SCOPE_NONE) {
			scope.name = dwarf_function_name(die);
			if (inlined) {
				Dwarf_Word line = number_of(die, DW_AT_call_line);
				Dwarf_Word file = number_of(die, DW_AT_call_file);

				scope.parent = *outer;
				scope.call_line = line <= INT32_MAX ? (uint32_t)line : 0;
				if (walk->files)
					scope.call_file =
						dwarf_filesrc(walk->files, file, NULL, NULL);
			}
			TRY(add_scope(walk->unit, &scope, &range.of));
		}
		TRY(add_range(&walk->unit->ranges, &range));
	}
	if (range.of != SCOPE_NONE)
		*outer = range.of;
	return NULL;
}

/* Nothing that has code is below these. */
static bool is_barren(int tag)
{
	switch (tag) {
	case DW_TAG_array_type:
	case DW_TAG_subroutine_type:
	case DW_TAG_call_site:
	case DW_TAG_GNU_call_site:
	case DW_TAG_formal_parameter:
	case DW_TAG_variable:
		return true;
	}
	return false;
}

static struct error *walk_below(const struct scope_walk *walk, Dwarf_Die *parent, uint32_t outer,
				unsigned depth)
{
	Dwarf_Die die;

	if (depth == DEPTH_MAX || dwarf_child(parent, &die) != 0)
		return NULL;
	do {
		int tag = dwarf_tag(&die);
		uint32_t inside = outer;

		if (is_barren(tag))
			continue;
		if (tag == DW_TAG_subprogram || tag == DW_TAG_inlined_subroutine)
			TRY(take_scope(walk, &die, tag == DW_TAG_inlined_subroutine, &inside));
		if (dwarf_haschildren(&die) > 0)
			TRY(walk_below(walk, &die, inside, depth + 1));
	} while (dwarf_siblingof(&die, &die) == 0);
	return NULL;
}

/* The functions of a skeleton are in a file of their own (.dwo). */
static bool find_split(struct source_unit *unit, const struct dwarf_file *file, Dwarf_Die *split)
{
	static const unsigned names[] = {DW_AT_dwo_name, DW_AT_GNU_dwo_name};
	Dwarf_Attribute attribute;
	uint8_t type;

	/* Without a place for it, libdw does not open that file. */
	if (dwarf_cu_info(unit->die.cu, NULL, &type, NULL, NULL, NULL, NULL, NULL) ||
	    type != DW_UT_skeleton)
		return false;
	for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++) {
		const char *name = dwarf_attr(&unit->die, names[i], &attribute)
					   ? dwarf_formstring(&attribute)
					   : NULL;

		if (name && !dwarf_split_is_regular(file, unit->directory, name))
			return false;
	}
	return !dwarf_cu_info(unit->die.cu, NULL, &type, NULL, split, NULL, NULL, NULL) &&
	       split->addr;
}

/* Fills in scopes and ranges. */
static struct error *source_scopes(struct source_unit *unit, const struct dwarf_file *file)
{
	struct scope_walk walk = {.unit = unit};
	Dwarf_Die split = {0}, *top = &unit->die;
	size_t n;

	if (find_split(unit, file, &split))
		top = &split;
	if (dwarf_getsrcfiles(&unit->die, &walk.files, &n))
		walk.files = NULL;
	return walk_below(&walk, top, SCOPE_NONE, 0);
}

/*
 * Cuts the code into stretches by innermost function; overlaps are cut off at
 * the end of the outer one.
 */
static struct error *cut(struct source_unit *unit)
{
	sort_ranges(&unit->ranges);
	TRY(stretches_new(&unit->cut, unit->ranges.n));
	for (size_t i = 0; i < unit->ranges.n; i++) {
		const struct range *range = &unit->ranges.at[i];
		uint64_t end = range->end;

		stretches_close(&unit->cut, range->start);
		if (unit->cut.n_open && end > unit->cut.open[unit->cut.n_open - 1].end)
			end = unit->cut.open[unit->cut.n_open - 1].end;
		stretches_open(&unit->cut, range->start, end, (uint32_t)i);
	}
	stretches_end(&unit->cut);
	return NULL;
}

static void source_unit_free(struct source_unit *unit)
{
	if (!unit)
		return;
	free(unit->scope);
	free(unit->ranges.at);
	stretches_free(&unit->cut);
	free(unit);
}

/* `die` is the unit's entry in the main file. Damaged parts are left out. */
static struct error *source_unit_new(const Dwarf_Die *die, const struct dwarf_file *file,
				     struct source_unit **out)
{
	struct source_unit *unit;
	Dwarf_Attribute directory;
	struct error *err;

	TRY(ARRAY_NEW(&unit, 1));
	unit->die = *die;
	if (dwarf_attr(&unit->die, DW_AT_comp_dir, &directory))
		unit->directory = dwarf_formstring(&directory);
	err = source_scopes(unit, file);
	if (!err)
		err = cut(unit);
	if (err)
		source_unit_free(unit);
	else
		*out = unit;
	return err;
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

/* Start of the piece of the outermost function that holds the address. */
static uint64_t start_of(const struct source_unit *unit, uint32_t scope, uint32_t range)
{
	/* In order of address, outer ones first: it is before those in it. */
	for (uint32_t i = range + 1; i-- > 0;)
		if (unit->ranges.at[i].of == scope)
			return unit->ranges.at[i].start;
	return 0;
}

static void source_unit_find(struct source_unit *unit, uint64_t addr, struct source_answer *answer)
{
	uint32_t range = stretches_find(&unit->cut, addr), at;
	struct source_frame *frame = answer->frame;

	*frame = (struct source_frame){0};
	answer->start = 0;
	find_line(unit, addr, frame);
	if (range == STRETCH_NOBODY) {
		answer->n = frame->line != 0;
		return;
	}
	answer->n = 1;
	at = unit->ranges.at[range].of;
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

struct known_unit {
	Dwarf_Die die;
	struct source_unit *unit; /* NULL: nobody has asked for it yet */
};

struct source_index {
	struct dwarf_file file;
	struct known_unit *unit;
	size_t n_units, units_room;
	struct ranges ranges;
	uint64_t *reach; /* for each range: the greatest end of this and all before */
};

static struct error *take_unit(struct source_index *index, Dwarf_Die *die)
{
	const struct known_unit unit = {.die = *die};
	struct range range = {.of = (uint32_t)index->n_units};
	ptrdiff_t at = 0;
	Dwarf_Addr base;

	TRY(ARRAY_ADD(&index->unit, &index->units_room, &index->n_units, &unit));
	while ((at = dwarf_ranges(die, at, &base, &range.start, &range.end)) > 0)
		if (range.end > range.start)
			TRY(add_range(&index->ranges, &range));
	return NULL;
}

static struct error *list_units(struct source_index *index)
{
	uint64_t reach = 0;
	Dwarf_CU *cu = NULL;
	Dwarf_Die die;
	uint8_t type;

	while (dwarf_get_units(index->file.dwarf, cu, &cu, NULL, &type, &die, NULL) == 0)
		if (type == DW_UT_compile || type == DW_UT_skeleton)
			TRY(take_unit(index, &die));
	TRY(ARRAY_NEW(&index->reach, index->ranges.n + 1));
	sort_ranges(&index->ranges);
	for (size_t i = 0; i < index->ranges.n; i++) {
		if (index->ranges.at[i].end > reach)
			reach = index->ranges.at[i].end;
		index->reach[i] = reach;
	}
	return NULL;
}

static void source_index_close(struct source_index *index)
{
	if (!index)
		return;
	for (size_t i = 0; i < index->n_units; i++)
		source_unit_free(index->unit[i].unit);
	free(index->unit);
	free(index->ranges.at);
	free(index->reach);
	dwarf_file_close(&index->file);
	free(index);
}

struct error *source_index_open(const char *path, const char *build_id, struct source_index **out)
{
	struct source_index *index = calloc(1, sizeof(*index));
	struct error *err = NULL;

	*out = NULL;
	if (!index)
		return error_no_memory();
	if (dwarf_file_open(path, build_id, &index->file))
		err = list_units(index);
	if (err || !index->ranges.n)
		source_index_close(index);
	else
		*out = index;
	return err;
}

/* The last range that begins at or before `addr` and holds it. */
static const struct range *range_at(const struct source_index *index, uint64_t addr)
{
	const struct range *range = index->ranges.at;
	size_t low = ARRAY_UPTO(range, index->ranges.n, start, addr);

	while (low-- > 0 && index->reach[low] > addr)
		if (range[low].end > addr)
			return &range[low];
	return NULL;
}

const char *source_index_find(struct source_index *index, uint64_t addr,
			      struct source_answer *answer)
{
	const struct range *range = range_at(index, addr);
	struct known_unit *known = range ? &index->unit[range->of] : NULL;

	answer->n = 0;
	if (known && !known->unit)
		error_free(source_unit_new(&known->die, &index->file, &known->unit));
	if (!known || !known->unit)
		return NULL;
	source_unit_find(known->unit, addr, answer);
	return known->unit->directory;
}
