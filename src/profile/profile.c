/* SPDX-License-Identifier: BSD-3-Clause */
#include "profile/profile.h"

#include <stdlib.h>
#include <string.h>

struct loading {
	struct profile *profile;
	const struct profile_filter *filter;
	size_t cells_cap, names_cap;
};

/* Weights are what a file says: they stop at the top instead of starting again. */
static void add(uint64_t *sum, uint64_t value)
{
	if (__builtin_add_overflow(*sum, value, sum))
		*sum = UINT64_MAX;
}

static void count(struct profile_cell *cell, uint64_t weight_ns)
{
	cell->samples++;
	add(&cell->weight_ns, weight_ns);
}

/* Room for a cell for each node. */
static struct error *grow_cells(struct loading *loading)
{
	size_t need = stacks_count(loading->profile->stacks), cap = loading->cells_cap;
	struct profile_cell *cells;

	if (need <= cap)
		return NULL;
	cap = cap * 2 > need ? cap * 2 : need;
	cells = realloc(loading->profile->cells, cap * sizeof(*cells));
	if (!cells)
		return error_no_memory();
	memset(cells + loading->cells_cap, 0, (cap - loading->cells_cap) * sizeof(*cells));
	loading->profile->cells = cells;
	loading->cells_cap = cap;
	return NULL;
}

static struct error *load_info(void *ctx, const struct recording_info *info)
{
	struct loading *loading = ctx;

	return recording_info_copy(info, &loading->profile->info);
}

static struct error *load_end(void *ctx, const struct recording_end *end)
{
	struct loading *loading = ctx;

	return recording_end_copy(end, &loading->profile->end);
}

static bool selects(const struct profile_filter *filter, const struct tick_entry *entry)
{
	return (filter->states == 0 || filter->states >> entry->state & 1) &&
	       (filter->vcpu < 0 || filter->vcpu == entry->vcpu);
}

static struct error *load_tick(void *ctx, const struct tick *tick)
{
	struct loading *loading = ctx;
	struct profile *profile = loading->profile;
	struct error *err = grow_cells(loading);

	if (err)
		return err;
	profile->ticks++;
	profile->last_ns = tick->time_ns;
	add(&profile->paused_ns, tick->paused_ns);
	histogram_add(&profile->pauses, tick->paused_ns);
	for (uint32_t i = 0; i < tick->n; i++) {
		const struct tick_entry *entry = &tick->entries[i];

		count(&profile->states[entry->state], tick->weight_ns);
		if (!selects(loading->filter, entry))
			continue;
		count(&profile->cells[entry->stack], tick->weight_ns);
		count(&profile->selected, tick->weight_ns);
		profile->ends[entry->end]++;
	}
	return NULL;
}

static struct error *load_name(void *ctx, uint64_t addr, uint8_t kind, const char *name,
			       uint64_t offset)
{
	struct loading *loading = ctx;
	struct profile *profile = loading->profile;
	char *copy;

	if (profile->n_names == loading->names_cap) {
		size_t cap = loading->names_cap ? loading->names_cap * 2 : 256;
		struct profile_name *names = realloc(profile->names, cap * sizeof(*names));

		if (!names)
			return error_no_memory();
		profile->names = names;
		loading->names_cap = cap;
	}
	copy = strdup(name);
	if (!copy)
		return error_no_memory();
	profile->names[profile->n_names++] = (struct profile_name){addr, offset, copy, kind};
	return NULL;
}

static int by_place(const void *left, const void *right)
{
	const struct profile_name *a = left, *b = right;

	if (a->addr != b->addr)
		return a->addr < b->addr ? -1 : 1;
	return a->kind - b->kind;
}

static int by_place_and_name(const void *left, const void *right)
{
	const struct profile_name *a = left, *b = right;
	int order = by_place(a, b);

	if (order)
		return order;
	if (a->offset != b->offset)
		return a->offset < b->offset ? -1 : 1;
	return strcmp(a->name, b->name);
}

/* Sorts, and keeps one name for each place: the one that begins nearest. */
static void sort_names(struct profile *profile)
{
	struct profile_name *names = profile->names;
	size_t n = 0;

	if (profile->n_names == 0)
		return;
	qsort(names, profile->n_names, sizeof(*names), by_place_and_name);
	for (size_t i = 0; i < profile->n_names; i++) {
		if (n > 0 && by_place(&names[n - 1], &names[i]) == 0)
			free(names[i].name);
		else
			names[n++] = names[i];
	}
	profile->n_names = n;
}

struct error *profile_load(const char *path, const struct profile_filter *filter,
			   struct profile **out)
{
	struct loading loading = {.filter = filter};
	struct recording_visitor visitor = {
		.ctx = &loading,
		.info = load_info,
		.tick = load_tick,
		.name = load_name,
		.end = load_end,
	};
	struct profile *profile = calloc(1, sizeof(*profile));
	struct error *err;

	if (!profile)
		return error_no_memory();
	loading.profile = profile;
	err = stacks_new(&profile->stacks);
	if (!err)
		err = recording_read(path, profile->stacks, &visitor, &profile->cut);
	if (!err)
		err = grow_cells(&loading);
	if (err) {
		profile_free(profile);
		return err;
	}
	sort_names(profile);
	*out = profile;
	return NULL;
}

void profile_free(struct profile *profile)
{
	if (!profile)
		return;
	for (size_t i = 0; i < profile->n_names; i++)
		free(profile->names[i].name);
	free(profile->names);
	free(profile->cells);
	stacks_free(profile->stacks);
	recording_info_free(&profile->info);
	recording_end_free(&profile->end);
	free(profile);
}

const struct profile_name *profile_name(const struct profile *profile, uint64_t addr, uint8_t kind)
{
	struct profile_name key = {.addr = addr, .kind = kind};

	if (profile->n_names == 0)
		return NULL;
	return bsearch(&key, profile->names, profile->n_names, sizeof(key), by_place);
}
