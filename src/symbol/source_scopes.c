/* SPDX-License-Identifier: BSD-3-Clause */
#include "symbol/source_unit.h"

#include <dwarf.h>
#include <stdlib.h>

/* How deep entries may be in one another; compilers stay far below. */
#define DEPTH_MAX 256

struct walk {
	struct source_unit *unit;
	Dwarf_Files *files; /* NULL: none */
};

static struct error *add_scope(struct source_unit *unit, const struct scope *one, uint32_t *index)
{
	if (unit->n_scopes == unit->scopes_room) {
		size_t room = 2 * unit->scopes_room + 64;
		struct scope *list = reallocarray(unit->scope, room, sizeof(*list));

		if (!list || room >= SCOPE_NONE)
			return error_no_memory();
		unit->scope = list;
		unit->scopes_room = room;
	}
	*index = (uint32_t)unit->n_scopes;
	unit->scope[unit->n_scopes++] = *one;
	return NULL;
}

static struct error *add_range(struct source_unit *unit, const struct scope_range *one)
{
	if (unit->n_ranges == unit->ranges_room) {
		size_t room = 2 * unit->ranges_room + 64;
		struct scope_range *list = reallocarray(unit->range, room, sizeof(*list));

		if (!list || room >= SCOPE_NONE)
			return error_no_memory();
		unit->range = list;
		unit->ranges_room = room;
	}
	unit->range[unit->n_ranges++] = *one;
	return NULL;
}

/* The name that says most: what the linker calls it, for that can be demangled. */
static const char *name_of(Dwarf_Die *die)
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

static struct error *take_scope(const struct walk *walk, Dwarf_Die *die, bool inlined,
				uint32_t *around)
{
	struct source_unit *unit = walk->unit;
	struct scope_range range = {0};
	struct scope scope = {.parent = SCOPE_NONE};
	ptrdiff_t at = 0;
	Dwarf_Addr base;
	struct error *err = NULL;
	bool first = true;

	/* One without code is a declaration, or what was inlined everywhere. */
	while (!err && (at = dwarf_ranges(die, at, &base, &range.start, &range.end)) > 0) {
		if (range.end <= range.start)
			continue;
		if (first) {
			scope.name = name_of(die);
			if (inlined) {
				Dwarf_Word line = number_of(die, DW_AT_call_line);
				Dwarf_Word file = number_of(die, DW_AT_call_file);

				scope.parent = *around;
				scope.call_line = line <= INT32_MAX ? (uint32_t)line : 0;
				if (walk->files)
					scope.call_file =
						dwarf_filesrc(walk->files, file, NULL, NULL);
			}
			err = add_scope(unit, &scope, &range.scope);
			first = false;
		}
		if (!err)
			err = add_range(unit, &range);
	}
	if (!first)
		*around = range.scope;
	return err;
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

static struct error *walk_below(const struct walk *walk, Dwarf_Die *parent, uint32_t around,
				unsigned depth)
{
	struct error *err = NULL;
	Dwarf_Die die;

	if (depth == DEPTH_MAX || dwarf_child(parent, &die) != 0)
		return NULL;
	do {
		int tag = dwarf_tag(&die);
		uint32_t inside = around;

		if (is_barren(tag))
			continue;
		if (tag == DW_TAG_subprogram || tag == DW_TAG_inlined_subroutine)
			err = take_scope(walk, &die, tag == DW_TAG_inlined_subroutine, &inside);
		if (!err && dwarf_haschildren(&die) > 0)
			err = walk_below(walk, &die, inside, depth + 1);
	} while (!err && dwarf_siblingof(&die, &die) == 0);
	return err;
}

struct error *source_scopes(struct source_unit *unit)
{
	struct walk walk = {.unit = unit};
	Dwarf_Die split = {0}, *top = &unit->die;
	uint8_t type;
	size_t n;

	/* The functions of a skeleton are in a file of their own (.dwo). */
	if (!dwarf_cu_info(unit->die.cu, NULL, &type, NULL, &split, NULL, NULL, NULL) &&
	    type == DW_UT_skeleton && split.addr)
		top = &split;
	if (dwarf_getsrcfiles(&unit->die, &walk.files, &n))
		walk.files = NULL;
	return walk_below(&walk, top, SCOPE_NONE, 0);
}
