/* SPDX-License-Identifier: BSD-3-Clause */
#include "target/xen/frames.h"

#include <stdlib.h>
#include <string.h>

/* 16 MiB of a guest at hand: 64 vCPUs with 60 frames each. A power of two. */
#define SLOTS	 8192u
#define MAX_USED (SLOTS / 2)

/* Samples after which a frame that could not be mapped is tried again (ballooning, hot-plug). */
#define RETRY_AFTER 512

struct slot {
	uint64_t gfn;
	const void *bytes; /* NULL in a used slot: could not be mapped */
	uint32_t used;	   /* frames->now of the last use; 0: empty slot */
};

struct frames {
	struct xen_if *xi;
	uint32_t now;
	uint32_t n;
	uint64_t mapped, clearings;
	struct slot slots[SLOTS];
};

struct error *frames_new(struct xen_if *xi, struct frames **out)
{
	struct frames *frames = calloc(1, sizeof(*frames));

	if (!frames)
		return error_no_memory();
	frames->xi = xi;
	frames->now = 1;
	*out = frames;
	return NULL;
}

void frames_free(struct frames *frames)
{
	if (!frames)
		return;
	for (uint32_t i = 0; i < SLOTS; i++)
		if (frames->slots[i].bytes)
			xen_if_unmap(frames->xi, frames->slots[i].bytes);
	free(frames);
}

static uint32_t home(uint64_t gfn)
{
	return (uint32_t)((gfn * 0x9e3779b97f4a7c15u) >> 32) & (SLOTS - 1);
}

/* The slot that holds gfn, or the empty one where it belongs: the table is never full. */
static struct slot *probe(struct frames *frames, uint64_t gfn)
{
	uint32_t i = home(gfn);

	while (frames->slots[i].used && frames->slots[i].gfn != gfn)
		i = (i + 1) & (SLOTS - 1);
	return &frames->slots[i];
}

const void *frames_find(void *table, uint64_t gfn)
{
	struct frames *frames = table;
	struct slot *slot = probe(frames, gfn);

	if (!slot->used)
		return NULL;
	if (slot->bytes)
		slot->used = frames->now;
	return slot->bytes;
}

/*
 * Rebuilds the table with the slots that were used since the last tick. When
 * those alone would fill it, everything goes: the next sample brings back what
 * it needs.
 */
static void make_room(struct frames *frames)
{
	struct slot keep[MAX_USED];
	uint32_t n = 0;

	frames->clearings++;
	for (uint32_t i = 0; i < SLOTS; i++) {
		struct slot *slot = &frames->slots[i];

		if (slot->bytes && slot->used == frames->now)
			keep[n++] = *slot;
		else if (slot->bytes)
			xen_if_unmap(frames->xi, slot->bytes);
	}
	if (n > MAX_USED / 2) {
		for (uint32_t i = 0; i < n; i++)
			xen_if_unmap(frames->xi, keep[i].bytes);
		n = 0;
	}
	memset(frames->slots, 0, sizeof(frames->slots));
	for (uint32_t i = 0; i < n; i++)
		*probe(frames, keep[i].gfn) = keep[i];
	frames->n = n;
}

const void *frames_bring(void *table, uint64_t gfn)
{
	struct frames *frames = table;
	struct slot *slot = probe(frames, gfn);

	if (slot->used && (slot->bytes || frames->now - slot->used < RETRY_AFTER)) {
		if (slot->bytes)
			slot->used = frames->now;
		return slot->bytes;
	}
	if (!slot->used && frames->n == MAX_USED) {
		make_room(frames);
		slot = probe(frames, gfn);
	}
	if (!slot->used)
		frames->n++;
	slot->gfn = gfn;
	slot->bytes = xen_if_map(frames->xi, gfn);
	slot->used = frames->now;
	frames->mapped += slot->bytes != NULL;
	return slot->bytes;
}

bool frames_refused(const struct frames *frames, uint64_t gfn)
{
	const struct slot *slot = probe((struct frames *)frames, gfn);

	return slot->used && !slot->bytes && frames->now - slot->used < RETRY_AFTER;
}

void frames_tick(struct frames *frames)
{
	if (++frames->now == 0)
		frames->now = 1;
}

uint64_t frames_clearings(const struct frames *frames)
{
	return frames->clearings;
}

uint64_t frames_mapped(const struct frames *frames)
{
	return frames->mapped;
}
