/* SPDX-License-Identifier: BSD-3-Clause */
#include "profile/profile.h"

#include <stdlib.h>
#include <string.h>

#include "import/import.h"
#include "profile/parts.h"
#include "profile/recorded_places.h"

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

static void count(struct profile_cell *cell, uint64_t times, uint64_t weight_ns)
{
	uint64_t weight;

	cell->samples += times;
	if (__builtin_mul_overflow(weight_ns, times, &weight))
		weight = UINT64_MAX;
	add(&cell->weight_ns, weight);
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

static bool in_stretch(const struct profile_filter *filter, const struct tick *tick)
{
	return tick->time_ns >= filter->from_ns &&
	       (!filter->to_ns || tick->time_ns < filter->to_ns);
}

bool profile_selects(const struct profile_filter *filter, const struct tick *tick,
		     const struct tick_entry *entry)
{
	return in_stretch(filter, tick) &&
	       (filter->states == 0 || filter->states >> entry->state & 1) &&
	       (filter->vcpus ? filter->vcpus[entry->vcpu]
			      : filter->vcpu < 0 || filter->vcpu == entry->vcpu);
}

static struct error *load_entry(struct loading *loading, const struct tick_entry *entry,
				uint64_t times, uint64_t weight)
{
	struct profile *profile = loading->profile;

	count(&profile->cells[entry->stack], times, weight);
	count(&profile->selected, times, weight);
	profile->ends[entry->end] += times;
	return profile->parts ? parts_add(profile->parts, entry, times, weight) : NULL;
}

static void count_look(struct profile *profile, const struct tick *tick)
{
	profile->ticks += 1 + (uint64_t)tick->more;
	add(&profile->paused_ns, tick->paused_ns);
	histogram_add(&profile->pauses, tick->paused_ns);
	profile->unpaused += !tick->paused_ns;
}

static struct error *load_tick(void *ctx, const struct tick *tick)
{
	struct loading *loading = ctx;
	struct profile *profile = loading->profile;
	struct error *err = grow_cells(loading);
	uint64_t times = 1 + (uint64_t)tick->more;
	double selected = 0;

	profile->ticks_read++;
	for (uint32_t i = 0; i < tick->n; i++)
		profile->seen[tick->entries[i].vcpu] = true;
	profile->last_ns = tick->time_ns;
	if (err || !in_stretch(loading->filter, tick))
		return err;
	count_look(profile, tick);
	for (uint32_t i = 0; i < tick->n && !err; i++) {
		const struct tick_entry *entry = &tick->entries[i];
		uint64_t weight = loading->filter->by_cpu ? entry->ran_ns : tick->weight_ns;

		count(&profile->states[entry->state], times, tick->weight_ns);
		if (!profile_selects(loading->filter, tick, entry))
			continue;
		err = load_entry(loading, entry, times, weight);
		selected += (double)weight;
	}
	profile->tick_weights += (double)times * selected;
	profile->tick_weights_squared += (double)times * selected * selected;
	return err;
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
	profile->names[profile->n_names++] =
		(struct profile_name){.addr = addr, .offset = offset, .name = copy, .kind = kind};
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

static struct error *load_places(void *ctx, uint64_t addr, uint8_t kind,
				 const struct source_frame *frames, size_t n)
{
	struct loading *loading = ctx;

	return recorded_places_add(loading->profile->places, addr, kind, frames, n);
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

/* Tells names where in the source they are. */
static void attach_places(struct profile *profile)
{
	struct recorded_place place;

	for (size_t i = 0; profile->n_names && recorded_places_get(profile->places, i, &place);
	     i++) {
		const struct profile_name key = {.addr = place.addr, .kind = place.kind};
		struct profile_name *name =
			bsearch(&key, profile->names, profile->n_names, sizeof(key), by_place);

		if (!name)
			continue;
		name->frames = place.frames;
		name->n_frames = place.n;
	}
}

struct error *profile_load(const char *path, const struct profile_filter *filter,
			   struct profile **out)
{
	struct loading loading = {.filter = filter};
	struct recording_visitor visitor = {
		.ctx = &loading,
		.progress = filter->progress,
		.info = load_info,
		.tick = load_tick,
		.name = load_name,
		.places = load_places,
		.end = load_end,
	};
	struct profile *profile = calloc(1, sizeof(*profile));
	struct error *err;

	if (!profile)
		return error_no_memory();
	loading.profile = profile;
	profile->from_ns = filter->from_ns;
	profile->to_ns = filter->to_ns;
	err = stacks_new(&profile->stacks);
	if (!err)
		err = recorded_places_new(&profile->places);
	if (!err && filter->divide)
		err = parts_new(&profile->parts);
	if (!err)
		err = source_read(path, profile->stacks, &visitor, &profile->cut);
	if (!err)
		err = grow_cells(&loading);
	if (err) {
		profile_free(profile);
		return err;
	}
	sort_names(profile);
	attach_places(profile);
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
	recorded_places_free(profile->places);
	free(profile->cells);
	parts_free(profile->parts);
	stacks_free(profile->stacks);
	recording_info_free(&profile->info);
	recording_end_free(&profile->end);
	free(profile);
}

double profile_draws(const struct profile *profile)
{
	return profile->tick_weights_squared > 0 ? profile->tick_weights * profile->tick_weights /
							   profile->tick_weights_squared
						 : 0;
}

uint32_t profile_vcpus(const struct profile *profile)
{
	const char *target = profile->info.target ? profile->info.target : "";
	uint32_t seen = 0;

	for (uint32_t i = 0; i < profile->info.vcpus; i++)
		seen += profile->seen[i];
	return strcmp(target, "process") ? profile->info.vcpus : seen;
}

const struct recorded_images *profile_images(const struct profile *profile)
{
	return profile->end.images.at ? &profile->end.images : &profile->info.images;
}

uint64_t profile_elapsed_ns(const struct profile *profile)
{
	uint64_t end = profile->cut ? 0 : profile->end.elapsed_ns;

	end = end > profile->last_ns ? end : profile->last_ns;
	if (profile->to_ns && profile->to_ns < end)
		end = profile->to_ns;
	return end > profile->from_ns ? end - profile->from_ns : 0;
}

const struct profile_name *profile_name(const struct profile *profile, uint64_t addr, uint8_t kind)
{
	struct profile_name key = {.addr = addr, .kind = kind};

	if (profile->n_names == 0)
		return NULL;
	return bsearch(&key, profile->names, profile->n_names, sizeof(key), by_place);
}
