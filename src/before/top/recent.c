/* SPDX-License-Identifier: BSD-3-Clause */
#include "top/recent.h"

#include <stdlib.h>
#include <string.h>

#define FIRST_ROOM 1024u

/* Both lists begin with what is kept; what is forgotten is moved away now and then. */
struct recent {
	uint64_t span_ns;
	struct kept *ticks;
	size_t first, n, room; /* ticks[first] to ticks[n - 1] are kept */
	struct tick_entry *entries;
	size_t first_entry, n_entries, room_entries;
};

struct kept {
	uint64_t time_ns, weight_ns, paused_ns;
	uint32_t n;
	size_t entry; /* its first one */
};

struct error *recent_new(uint64_t span_ns, struct recent **out)
{
	struct recent *recent = calloc(1, sizeof(*recent));

	if (!recent)
		return error_no_memory();
	recent->span_ns = span_ns;
	*out = recent;
	return NULL;
}

void recent_free(struct recent *recent)
{
	if (!recent)
		return;
	free(recent->ticks);
	free(recent->entries);
	free(recent);
}

void recent_clear(struct recent *recent)
{
	recent->first = recent->n = recent->first_entry = recent->n_entries = 0;
}

static void drop_first(struct recent *recent)
{
	recent->first_entry += recent->ticks[recent->first++].n;
	if (recent->first == recent->n)
		recent_clear(recent);
}

static void forget_old(struct recent *recent)
{
	uint64_t last = recent->n ? recent->ticks[recent->n - 1].time_ns : 0;

	while (recent->first < recent->n &&
	       last - recent->ticks[recent->first].time_ns >= recent->span_ns)
		drop_first(recent);
}

void recent_set_span(struct recent *recent, uint64_t span_ns)
{
	recent->span_ns = span_ns;
	forget_old(recent);
}

/* Moves what is kept to the front. */
static void tidy(struct recent *recent)
{
	size_t gone = recent->first_entry;

	memmove(recent->ticks, recent->ticks + recent->first,
		(recent->n - recent->first) * sizeof(*recent->ticks));
	memmove(recent->entries, recent->entries + gone,
		(recent->n_entries - gone) * sizeof(*recent->entries));
	recent->n -= recent->first;
	recent->n_entries -= gone;
	recent->first = recent->first_entry = 0;
	for (size_t i = 0; i < recent->n; i++)
		recent->ticks[i].entry -= gone;
}

static bool grow(void **list, size_t *room, size_t need, size_t size)
{
	size_t more = *room ? *room : FIRST_ROOM;
	void *grown;

	while (more < need)
		more *= 2;
	if (more == *room)
		return true;
	grown = realloc(*list, more * size);
	if (!grown)
		return false;
	*list = grown;
	*room = more;
	return true;
}

static struct error *make_room(struct recent *recent, uint32_t entries)
{
	if (recent->first > recent->n / 2)
		tidy(recent);
	while (recent->first < recent->n &&
	       recent->n_entries - recent->first_entry + entries > RECENT_MAX_ENTRIES)
		drop_first(recent);
	if (!grow((void **)&recent->ticks, &recent->room, recent->n + 1, sizeof(*recent->ticks)) ||
	    !grow((void **)&recent->entries, &recent->room_entries, recent->n_entries + entries,
		  sizeof(*recent->entries)))
		return error_no_memory();
	return NULL;
}

struct error *recent_add(struct recent *recent, const struct tick *tick)
{
	struct error *err = make_room(recent, tick->n);

	if (err)
		return err;
	recent->ticks[recent->n++] = (struct kept){.time_ns = tick->time_ns,
						   .weight_ns = tick->weight_ns,
						   .paused_ns = tick->paused_ns,
						   .n = tick->n,
						   .entry = recent->n_entries};
	if (tick->n)
		memcpy(recent->entries + recent->n_entries, tick->entries,
		       tick->n * sizeof(*tick->entries));
	recent->n_entries += tick->n;
	forget_old(recent);
	return NULL;
}

size_t recent_count(const struct recent *recent)
{
	return recent->n - recent->first;
}

void recent_get(struct recent *recent, size_t i, struct tick *tick)
{
	const struct kept *kept = &recent->ticks[recent->first + i];

	*tick = (struct tick){.time_ns = kept->time_ns,
			      .weight_ns = kept->weight_ns,
			      .paused_ns = kept->paused_ns,
			      .n = kept->n,
			      .entries = recent->entries + kept->entry};
}
