/* SPDX-License-Identifier: BSD-3-Clause */
#include "profile/profile.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/error.h"
#include "base/intern.h"
#include "base/sample_types.h"
#include "import/import.h"

/* The source locations that a recording carries for an address. */
struct recorded_location {
	uint64_t addr;
	struct source_frame *frames;
	uint32_t n;
	uint8_t kind;
};

struct recorded_locations {
	struct pool *texts;
	struct recorded_location *at;
	size_t n, room;
};

static struct error *recorded_locations_new(struct recorded_locations **out)
{
	*out = calloc(1, sizeof(**out));
	return *out ? pool_new(&(*out)->texts) : error_no_memory();
}

static void recorded_locations_free(struct recorded_locations *locations)
{
	if (!locations)
		return;
	for (size_t i = 0; i < locations->n; i++)
		free(locations->at[i].frames);
	free(locations->at);
	pool_free(locations->texts);
	free(locations);
}

/*
 * Samples on their way to the cells of their stacks: of many stacks neither the cell's number nor
 * the cell is in any cache, so memory is asked for that many samples ahead, for each of both.
 */
#define AHEAD 16u

struct pending {
	uint64_t times, weight_ns;
	uint32_t stack, cell;
};

struct loading {
	struct profile *profile;
	struct pending pending[2 * AHEAD];
	uint64_t n_pending; /* that ever were */
	const struct profile_filter *filter;
	size_t of_n, of_room, cells_room, names_cap, threads_cap;
	struct weighting weighting;
};

static void add(uint64_t *sum, uint64_t value)
{
	*sum = weight_sum(*sum, value);
}

static void add_times(uint64_t *sum, uint64_t times, uint64_t value)
{
	uint64_t product;

	add(sum, __builtin_mul_overflow(value, times, &product) ? UINT64_MAX : product);
}

void profile_cell_count(struct profile_cell *cell, uint64_t times, uint64_t weight_ns)
{
	cell->samples += times;
	add_times(&cell->weight_ns, times, weight_ns);
	cell->squares += (double)times * (double)weight_ns * (double)weight_ns;
}

void profile_cell_add(struct profile_cell *to, const struct profile_cell *from)
{
	to->samples += from->samples;
	add(&to->weight_ns, from->weight_ns);
	to->squares += from->squares;
}

void profile_mark_used(const struct profile *profile, const struct profile_cells *cells, bool *used)
{
	used[STACK_ROOT] = true;
	/* A parent's id is smaller. */
	for (uint32_t id = stacks_count(profile->stacks) - 1; id > STACK_ROOT; id--) {
		used[id] |= profile_cell(cells, id)->samples > 0;
		if (used[id])
			used[stacks_node(profile->stacks, id)->parent] = true;
	}
}

/* Each node has a place for the number of its cell. */
static struct error *grow_of(struct loading *loading)
{
	const size_t need = stacks_count(loading->profile->stacks), had = loading->of_n;
	struct profile_cells *cells = &loading->profile->cells;

	if (need <= had)
		return NULL;
	TRY(ARRAY_RESERVE(&cells->of, &loading->of_room, need));
	/* Pages that are not needed yet stay untouched, and so take no memory. */
	memset(cells->of + had, 0, (need - had) * sizeof(*cells->of));
	loading->of_n = need;
	return NULL;
}

/* The number of the stack's cell, which is new if it had none. */
static struct error *find_cell(struct loading *loading, struct pending *pending)
{
	struct profile_cells *cells = &loading->profile->cells;
	uint32_t *number = &cells->of[pending->stack];

	if (!*number) {
		TRY(ARRAY_RESERVE(&cells->at, &loading->cells_room, cells->n + (size_t)1));
		cells->at[cells->n] = (struct profile_cell){0};
		*number = cells->n++;
	}
	pending->cell = *number;
	__builtin_prefetch(&cells->at[pending->cell], 1);
	return NULL;
}

/* Moves all samples on by one; behind the last ones there is nothing, taken 0 times. */
static struct error *move_on(struct loading *loading)
{
	const uint64_t n = loading->n_pending++;
	struct pending *middle = &loading->pending[(n + AHEAD) % (2 * AHEAD)];
	struct pending *last = &loading->pending[(n + 1) % (2 * AHEAD)];
	struct error *err = middle->times ? find_cell(loading, middle) : NULL;

	if (!err && last->times)
		profile_cell_count(&loading->profile->cells.at[last->cell], last->times,
				   last->weight_ns);
	last->times = 0;
	return err;
}

/* All samples have been read. */
static struct error *end_pending(struct loading *loading)
{
	TRY(grow_of(loading));
	for (unsigned i = 0; i < 2 * AHEAD; i++)
		TRY(move_on(loading));
	return NULL;
}

/* The cell of nothing. */
static struct error *begin_cells(struct loading *loading)
{
	struct profile_cells *cells = &loading->profile->cells;

	TRY(ARRAY_RESERVE(&cells->at, &loading->cells_room, 1));
	cells->at[cells->n++] = (struct profile_cell){0};
	return grow_of(loading);
}

static struct error *load_info(void *ctx, const struct recording_info *info)
{
	struct loading *loading = ctx;

	struct recording_info *copy = &loading->profile->info;

	weighting_start(&loading->weighting, loading->filter->weight, loading->filter->states,
			info);
	TRY(recording_info_copy(info, copy));
	if (!loading->filter->exits)
		return NULL;
	free(copy->weight_unit);
	copy->weight_unit = strdup("exits");
	copy->timeless = true;
	return copy->weight_unit ? NULL : error_no_memory();
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

/* A thread that does not run is on no vCPU. */
static bool selects_vcpu(const struct profile_filter *filter, uint32_t vcpu)
{
	if (filter->vcpus)
		return vcpu != NO_VCPU && filter->vcpus[vcpu];
	return filter->vcpu < 0 || filter->vcpu == vcpu;
}

bool profile_selects(const struct profile_filter *filter, const struct tick *tick,
		     const struct tick_entry *entry)
{
	return in_stretch(filter, tick) &&
	       (filter->states ?: STATES_OF_VCPUS) >> entry->state & 1 &&
	       selects_vcpu(filter, entry->vcpu) && profile_selects_thread(filter, tick, entry);
}

static struct error *load_entry(struct loading *loading, const struct tick_entry *entry,
				uint64_t times, uint64_t weight)
{
	struct profile *profile = loading->profile;

	loading->pending[loading->n_pending % (2 * AHEAD)] =
		(struct pending){times, weight, .stack = entry->stack};
	__builtin_prefetch(&profile->cells.of[entry->stack], 1);
	TRY(move_on(loading));
	profile_cell_count(&profile->selected, times, weight);
	profile->ends[entry->end] += times;
	return profile->breakdown ? breakdown_add(profile->breakdown, entry, times, weight) : NULL;
}

/* True if a vCPU has run since the tick before. */
static bool any_ran(const struct tick *tick)
{
	for (uint32_t i = 0; i < tick->n; i++)
		if (tick->entries[i].state == VCPU_RUNNING && tick->entries[i].ran_ns)
			return true;
	return false;
}

/* The tick before was `since_ns` ago. */
static void count_tick(struct profile *profile, const struct tick *tick, uint64_t since_ns)
{
	profile->ticks += 1 + (uint64_t)tick->more;
	add(&profile->paused_ns, tick->paused_ns);
	histogram_add(&profile->pauses, tick->paused_ns);
	profile->without_pause += !tick->paused_ns;
	if (!any_ran(tick))
		return;
	profile->ran++;
	profile->at_yields +=
		!tick->paused_ns && since_ns < profile->info.rate_limit_us * UINT64_C(1000);
}

static struct error *listen(const struct loading *loading, const struct tick *tick)
{
	const struct profile_listener *listener = loading->filter->listener;

	return listener && listener->tick
		       ? listener->tick(listener->ctx, &loading->profile->info, tick)
		       : NULL;
}

static struct error *load_tick(void *ctx, const struct tick *tick)
{
	struct loading *loading = ctx;
	const struct profile_listener *listener = loading->filter->listener;
	struct profile *profile = loading->profile;
	struct error *err = grow_of(loading);
	uint64_t times = 1 + (uint64_t)tick->more;
	const uint64_t since_ns = tick->time_ns - profile->last_ns;
	struct weight stretch, weight;
	double selected = 0;

	if (!err && !loading->filter->exits)
		err = listen(loading, tick);
	weighting_tick(&loading->weighting, tick);
	stretch = weighting_time(&loading->weighting, tick);
	profile->ticks_read++;
	profile->last_ns = tick->time_ns;
	for (uint32_t i = 0; i < tick->n; i++)
		profile->seen[tick->entries[i].vcpu] = true;
	if (err || !in_stretch(loading->filter, tick))
		return err;
	count_tick(profile, tick, since_ns);
	for (uint32_t i = 0; i < tick->n + tick->waits && !err; i++) {
		const struct tick_entry *entry = &tick->entries[i];

		profile_cell_count(&profile->states[entry->state], times,
				   i < tick->n ? stretch.sampled_ns : entry->weight_ns);
		if (i < tick->n)
			add_times(&profile->vcpu_states_ns[entry->vcpu][entry->state], times,
				  stretch.sampled_ns);
		if (loading->filter->exits || !profile_selects(loading->filter, tick, entry))
			continue;
		weight = weighting_entry(&loading->weighting, tick, entry);
		err = load_entry(loading, entry, times, weight.sampled_ns);
		if (!err && listener && listener->sample)
			err = listener->sample(listener->ctx, tick, entry, weight.sampled_ns);
		add(&profile->not_sampled_ns, weight.not_sampled_ns);
		profile->by_cpu_time |= weighting_is_cpu_time(&loading->weighting, entry);
		selected += (double)weight.sampled_ns;
	}
	profile->tick_weights += (double)times * selected;
	profile->tick_weights_squared += (double)times * selected * selected;
	return err;
}

struct tick profile_tick_of_exits(const struct recorded_exits *exits, struct tick_entry *entry)
{
	*entry = (struct tick_entry){.vcpu = exits->vcpu,
				     .stack = exits->stack,
				     .state = VCPU_RUNNING,
				     .end = UNWIND_OUTERMOST,
				     .ran_ns = 1};
	return (struct tick){
		.weight_ns = 1, .period_ns = 1, .n = 1, .entries = entry, .more = exits->count - 1};
}

bool profile_counts_exits(const struct profile *profile)
{
	return profile->info.weight_unit && !import_is_target(profile->info.target);
}

/* Each exit is a draw of its own. */
static struct error *load_exits(void *ctx, const struct recorded_exits *exits)
{
	struct loading *loading = ctx;
	struct profile *profile = loading->profile;
	struct tick_entry entry;
	const struct tick tick = profile_tick_of_exits(exits, &entry);

	TRY(grow_of(loading));
	if (!loading->filter->exits || !exits->count)
		return NULL;
	profile->seen[exits->vcpu] = true;
	TRY(listen(loading, &tick));
	if (!selects_vcpu(loading->filter, exits->vcpu))
		return NULL;
	profile->tick_weights += (double)exits->count;
	profile->tick_weights_squared += (double)exits->count;
	return load_entry(loading, &entry, exits->count, 1);
}

static struct error *load_name(void *ctx, uint64_t addr, uint8_t kind, const char *name,
			       uint64_t offset)
{
	struct loading *loading = ctx;
	struct profile *profile = loading->profile;
	char *copy;

	TRY(ARRAY_RESERVE(&profile->names, &loading->names_cap, profile->n_names + 1));
	copy = strdup(name);
	if (!copy)
		return error_no_memory();
	profile->names[profile->n_names++] =
		(struct profile_name){.addr = addr, .offset = offset, .name = copy, .kind = kind};
	return NULL;
}

static struct error *load_thread(void *ctx, uint32_t number, const struct recorded_thread *thread)
{
	struct loading *loading = ctx;
	struct profile *profile = loading->profile;

	TRY(ARRAY_RESERVE(&profile->threads, &loading->threads_cap, profile->n_threads + 1));
	TRY(recorded_thread_copy(thread, &profile->threads[profile->n_threads]));
	profile->n_threads++;
	return NULL;
}

static int by_address(const void *left, const void *right)
{
	const struct profile_name *a = left, *b = right;

	return COMPARE(a->addr, b->addr) ?: a->kind - b->kind;
}

static int by_address_and_name(const void *left, const void *right)
{
	const struct profile_name *a = left, *b = right;
	int order = by_address(a, b);

	if (order)
		return order;
	return COMPARE(a->offset, b->offset) ?: strcmp(a->name, b->name);
}

/* Copies the frames with their strings, each string once. */
static struct error *load_locations(void *ctx, uint64_t addr, uint8_t kind,
				    const struct source_frame *frames, size_t n)
{
	struct loading *loading = ctx;
	struct recorded_locations *locations = loading->profile->locations;
	struct source_frame *copy;

	TRY(ARRAY_RESERVE(&locations->at, &locations->room, locations->n + 1));
	copy = reallocarray(NULL, n, sizeof(*copy));
	if (!copy)
		return error_no_memory();
	memcpy(copy, frames, n * sizeof(*copy));
	locations->at[locations->n++] = (struct recorded_location){addr, copy, (uint32_t)n, kind};
	return pool_intern_frames(locations->texts, copy, n);
}

/* Sorts, and keeps one name for each address: the one that begins nearest. */
static void sort_names(struct profile *profile)
{
	struct profile_name *names = profile->names;
	size_t n = 0;

	if (profile->n_names == 0)
		return;
	qsort(names, profile->n_names, sizeof(*names), by_address_and_name);
	for (size_t i = 0; i < profile->n_names; i++) {
		if (n > 0 && by_address(&names[n - 1], &names[i]) == 0)
			free(names[i].name);
		else
			names[n++] = names[i];
	}
	profile->n_names = n;
}

/* Gives names their source locations. */
static void attach_locations(struct profile *profile)
{
	const struct recorded_locations *locations = profile->locations;

	for (size_t i = 0; profile->n_names && i < locations->n; i++) {
		const struct recorded_location *location = &locations->at[i];
		const struct profile_name key = {.addr = location->addr, .kind = location->kind};
		struct profile_name *name =
			bsearch(&key, profile->names, profile->n_names, sizeof(key), by_address);

		if (!name)
			continue;
		name->frames = location->frames;
		name->n_frames = location->n;
	}
}

struct error *profile_load(const char *path, const struct profile_filter *filter,
			   struct profile **out)
{
	struct loading loading = {.filter = filter};
	struct recording_visitor visitor = {.ctx = &loading,
					    .progress = filter->progress,
					    .info = load_info,
					    .tick = load_tick,
					    .thread = load_thread,
					    .name = load_name,
					    .exits = load_exits,
					    .locations = load_locations,
					    .end = load_end};
	ENDED_BY(profile_end) struct profile *profile = calloc(1, sizeof(*profile));

	if (!profile)
		return error_no_memory();
	loading.profile = profile;
	profile->from_ns = filter->from_ns;
	profile->to_ns = filter->to_ns;
	profile->stacks = filter->stacks;
	profile->shares_stacks = filter->stacks != NULL;
	if (!filter->stacks)
		TRY(stacks_new(&profile->stacks));
	TRY(recorded_locations_new(&profile->locations));
	if (filter->divide)
		TRY(breakdown_new(&profile->breakdown));
	TRY(begin_cells(&loading));
	TRY(source_read(path, profile->stacks, &visitor, &profile->cut));
	TRY(end_pending(&loading));
	if (filter->listener && filter->listener->end)
		TRY(filter->listener->end(filter->listener->ctx));
	sort_names(profile);
	attach_locations(profile);
	*out = profile;
	profile = NULL;
	return NULL;
}

void profile_free(struct profile *profile)
{
	if (!profile)
		return;
	for (size_t i = 0; i < profile->n_names; i++)
		free(profile->names[i].name);
	free(profile->names);
	for (size_t i = 0; i < profile->n_threads; i++)
		recorded_thread_free(&profile->threads[i]);
	free(profile->threads);
	recorded_locations_free(profile->locations);
	free(profile->cells.at);
	free(profile->cells.of);
	breakdown_free(profile->breakdown);
	if (!profile->shares_stacks)
		stacks_free(profile->stacks);
	recording_info_free(&profile->info);
	recording_end_free(&profile->end);
	free(profile);
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
	return bsearch(&key, profile->names, profile->n_names, sizeof(key), by_address);
}
