/* SPDX-License-Identifier: BSD-3-Clause */
#include "profile/slices.h"

#include <stdlib.h>
#include <string.h>

#include "import/import.h"

struct slicing {
	const struct profile_filter *filter;
	const uint32_t *place_of;
	uint32_t n_stacks;
	struct slices *slices;
	size_t room, max_rows;
	uint32_t *slots; /* rows of the current slice, their number plus one; 0: free */
	size_t n_slots, used;
	uint32_t current;
};

static size_t slot_of(const struct slicing *s, uint32_t vcpu, uint8_t state, uint32_t place)
{
	uint64_t key = ((uint64_t)vcpu * VCPU_STATES + state) << 32 | place;
	uint64_t hash = key * UINT64_C(0x9e3779b97f4a7c15);
	size_t at = (hash ^ hash >> 32) & (s->n_slots - 1);

	for (; s->slots[at]; at = (at + 1) & (s->n_slots - 1)) {
		const struct slice_row *row = &s->slices->rows[s->slots[at] - 1];

		if (row->place == place && row->vcpu == vcpu && row->state == state)
			break;
	}
	return at;
}

/* Rows of the current slice, which are the last ones. */
static size_t current_rows(const struct slices *slices, uint32_t current)
{
	size_t i = slices->n_rows;

	while (i > 0 && slices->rows[i - 1].slice == current)
		i--;
	return slices->n_rows - i;
}

/* Finds the rows of the current slice again, with room for as many more. */
static struct error *index_rows(struct slicing *s)
{
	const struct slices *slices = s->slices;
	size_t n_slots = s->n_slots;

	while (n_slots < 4 * current_rows(slices, s->current))
		n_slots *= 2;
	if (n_slots > s->n_slots) {
		free(s->slots);
		s->slots = malloc(n_slots * sizeof(*s->slots));
		if (!s->slots)
			return error_no_memory();
		s->n_slots = n_slots;
	}
	memset(s->slots, 0, s->n_slots * sizeof(*s->slots));
	s->used = 0;
	for (size_t i = slices->n_rows; i > 0 && slices->rows[i - 1].slice == s->current; i--) {
		const struct slice_row *row = &slices->rows[i - 1];

		s->slots[slot_of(s, row->vcpu, row->state, row->place)] = (uint32_t)i;
		s->used++;
	}
	return NULL;
}

static int by_place(const void *left, const void *right)
{
	const struct slice_row *a = left, *b = right;

	if (a->slice != b->slice)
		return a->slice < b->slice ? -1 : 1;
	if (a->vcpu != b->vcpu)
		return a->vcpu < b->vcpu ? -1 : 1;
	if (a->state != b->state)
		return a->state < b->state ? -1 : 1;
	return (a->place > b->place) - (a->place < b->place);
}

/* Two slices become one. */
static struct error *halve(struct slicing *s)
{
	struct slices *slices = s->slices;
	struct slice_row *rows = slices->rows;
	size_t n = 0;

	slices->slice_ns *= 2;
	s->current /= 2;
	for (size_t i = 0; i < slices->n_rows; i++)
		rows[i].slice /= 2;
	if (slices->n_rows)
		qsort(rows, slices->n_rows, sizeof(*rows), by_place);
	for (size_t i = 0; i < slices->n_rows; i++) {
		if (!n || by_place(&rows[n - 1], &rows[i])) {
			rows[n++] = rows[i];
			continue;
		}
		rows[n - 1].samples += rows[i].samples;
		rows[n - 1].weight_ns += rows[i].weight_ns;
		rows[n - 1].squares += rows[i].squares;
	}
	slices->n_rows = n;
	return index_rows(s);
}

static struct error *add_row(struct slicing *s, uint32_t vcpu, uint8_t state, uint32_t place,
			     struct slice_row **row)
{
	struct slices *slices = s->slices;

	if (slices->n_rows == s->room) {
		size_t room = s->room ? 2 * s->room : 4096;
		struct slice_row *rows = realloc(slices->rows, room * sizeof(*rows));

		if (!rows)
			return error_no_memory();
		slices->rows = rows;
		s->room = room;
	}
	*row = &slices->rows[slices->n_rows++];
	**row = (struct slice_row){.slice = s->current,
				   .vcpu = vcpu,
				   .state = state,
				   .place = place};
	return NULL;
}

static struct error *count(struct slicing *s, const struct tick_entry *entry, uint64_t times,
			   uint64_t weight)
{
	uint32_t place = entry->stack < s->n_stacks ? s->place_of[entry->stack] : 0;
	size_t slot = slot_of(s, entry->vcpu, entry->state, place);
	struct slice_row *row = NULL;
	struct error *err = NULL;

	if (s->slots[slot]) {
		row = &s->slices->rows[s->slots[slot] - 1];
	} else {
		err = add_row(s, entry->vcpu, entry->state, place, &row);
		if (err)
			return err;
		s->slots[slot] = (uint32_t)s->slices->n_rows;
		s->used++;
	}
	row->samples += times;
	row->weight_ns += times * weight;
	row->squares += (double)times * (double)weight * (double)weight;
	return s->used * 2 >= s->n_slots ? index_rows(s) : NULL;
}

/* Makes slices longer until there is room for those and the rows that come. */
static struct error *make_room(struct slicing *s, uint64_t *slice)
{
	size_t wanted = s->slices->n_rows < s->max_rows ? s->max_rows : s->max_rows / 2;

	struct error *err = NULL;

	while (!err && (*slice >= SLICES_MAX || (*slice > 0 && s->slices->n_rows > wanted))) {
		err = halve(s);
		*slice /= 2;
	}
	return err;
}

static struct error *add_tick(void *ctx, const struct tick *tick)
{
	struct slicing *s = ctx;
	const struct profile_filter *filter = s->filter;
	uint64_t slice = tick->time_ns / s->slices->slice_ns;
	struct error *err = make_room(s, &slice);

	if (!err && slice != s->current) {
		s->current = (uint32_t)slice;
		err = index_rows(s);
	}
	for (uint32_t i = 0; i < tick->n && !err; i++) {
		const struct tick_entry *entry = &tick->entries[i];

		if (profile_selects(filter, tick, entry))
			err = count(s, entry, 1 + (uint64_t)tick->more,
				    filter->by_cpu ? entry->ran_ns : tick->weight_ns);
	}
	return err;
}

/* Some looks for each slice, or the time line would be full of holes. */
static uint64_t slices_for(const struct profile *profile)
{
	uint64_t n = profile->ticks / SLICES_LOOKS;

	return n < 1 ? 1 : n > SLICES_MAX ? SLICES_MAX : n;
}

struct error *slices_read(const char *path, const struct profile *profile,
			  const struct profile_filter *filter, const uint32_t *place_of,
			  size_t max_rows, struct slices *out)
{
	struct slicing s = {.filter = filter,
			    .place_of = place_of,
			    .n_stacks = stacks_count(profile->stacks),
			    .slices = out,
			    .max_rows = max_rows,
			    .n_slots = 4096};
	struct recording_visitor visitor = {.ctx = &s,
					    .progress = filter->progress,
					    .stage = "drawing",
					    .tick = add_tick};
	struct error *err;
	bool cut;

	memset(out, 0, sizeof(*out));
	out->slice_ns = profile->last_ns / slices_for(profile) + 1;
	s.slots = calloc(s.n_slots, sizeof(*s.slots));
	err = s.slots ? source_read(path, profile->stacks, &visitor, &cut) : error_no_memory();
	free(s.slots);
	out->n = (uint32_t)(profile->last_ns / out->slice_ns) + 1;
	if (out->n_rows)
		qsort(out->rows, out->n_rows, sizeof(*out->rows), by_place);
	if (err)
		slices_free(out);
	return err;
}

void slices_free(struct slices *slices)
{
	free(slices->rows);
	memset(slices, 0, sizeof(*slices));
}
