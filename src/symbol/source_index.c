/* SPDX-License-Identifier: BSD-3-Clause */
#include "symbol/source/index.h"

#include <dwarf.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "symbol/source/dwarf.h"
#include "symbol/source_unit.h"

struct unit_range {
	uint64_t start, end;
	uint32_t unit;
};

struct known_unit {
	Dwarf_Die die;
	struct source_unit *unit; /* NULL: nobody has asked for it yet */
};

struct source_index {
	struct dwarf_file file;
	struct known_unit *unit;
	struct unit_range *range; /* by start */
	uint64_t *reach;	  /* [n_ranges]: the greatest end of this and all before */
	size_t n_units, units_room, n_ranges, ranges_room;
};

static struct error *add_unit(struct source_index *index, const Dwarf_Die *die)
{
	if (index->n_units == index->units_room) {
		size_t room = 2 * index->units_room + 64;
		struct known_unit *list = reallocarray(index->unit, room, sizeof(*list));

		if (!list)
			return error_no_memory();
		index->unit = list;
		index->units_room = room;
	}
	index->unit[index->n_units++] = (struct known_unit){.die = *die};
	return NULL;
}

static struct error *add_range(struct source_index *index, const struct unit_range *one)
{
	if (index->n_ranges == index->ranges_room) {
		size_t room = 2 * index->ranges_room + 64;
		struct unit_range *list = reallocarray(index->range, room, sizeof(*list));

		if (!list)
			return error_no_memory();
		index->range = list;
		index->ranges_room = room;
	}
	index->range[index->n_ranges++] = *one;
	return NULL;
}

static struct error *take_unit(struct source_index *index, Dwarf_Die *die)
{
	struct unit_range range = {.unit = (uint32_t)index->n_units};
	struct error *err = add_unit(index, die);
	ptrdiff_t at = 0;
	Dwarf_Addr base;

	while (!err && (at = dwarf_ranges(die, at, &base, &range.start, &range.end)) > 0)
		if (range.end > range.start)
			err = add_range(index, &range);
	return err;
}

static int range_cmp(const void *left, const void *right)
{
	const struct unit_range *a = left, *b = right;

	if (a->start != b->start)
		return a->start < b->start ? -1 : 1;
	if (a->end != b->end)
		return a->end > b->end ? -1 : 1;
	return (a->unit > b->unit) - (a->unit < b->unit);
}

static struct error *list_units(struct source_index *index)
{
	Dwarf_CU *cu = NULL;
	struct error *err = NULL;
	Dwarf_Die die;
	uint8_t type;

	while (!err && dwarf_get_units(index->file.dwarf, cu, &cu, NULL, &type, &die, NULL) == 0)
		if (type == DW_UT_compile || type == DW_UT_skeleton)
			err = take_unit(index, &die);
	if (err)
		return err;
	index->reach = calloc(index->n_ranges + 1, sizeof(*index->reach));
	if (!index->reach)
		return error_no_memory();
	if (index->n_ranges)
		qsort(index->range, index->n_ranges, sizeof(*index->range), range_cmp);
	for (size_t i = 0; i < index->n_ranges; i++) {
		index->reach[i] = index->range[i].end;
		if (i && index->reach[i - 1] > index->reach[i])
			index->reach[i] = index->reach[i - 1];
	}
	return NULL;
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
	if (err || !index->n_ranges) {
		source_index_close(index);
		return err;
	}
	*out = index;
	return NULL;
}

void source_index_close(struct source_index *index)
{
	if (!index)
		return;
	for (size_t i = 0; i < index->n_units; i++)
		source_unit_free(index->unit[i].unit);
	free(index->unit);
	free(index->range);
	free(index->reach);
	dwarf_file_close(&index->file);
	free(index);
}

/* The last range that begins at or before `addr` and holds it. */
static const struct unit_range *range_at(const struct source_index *index, uint64_t addr)
{
	size_t low = 0, high = index->n_ranges;

	while (low < high) {
		size_t middle = (low + high) / 2;

		if (index->range[middle].start <= addr)
			low = middle + 1;
		else
			high = middle;
	}
	while (low-- > 0 && index->reach[low] > addr)
		if (index->range[low].end > addr)
			return &index->range[low];
	return NULL;
}

const char *source_index_find(struct source_index *index, uint64_t addr,
			      struct source_answer *answer)
{
	const struct unit_range *range = range_at(index, addr);
	struct known_unit *known = range ? &index->unit[range->unit] : NULL;
	struct error *err = NULL;

	answer->n = 0;
	if (known && !known->unit)
		err = source_unit_new(&known->die, &known->unit);
	error_free(err);
	if (!known || !known->unit)
		return NULL;
	source_unit_find(known->unit, addr, answer);
	return known->unit->directory;
}
