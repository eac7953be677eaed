/* SPDX-License-Identifier: BSD-3-Clause */
#include "target/host/guest_ram.h"

#include <stdlib.h>
#include <string.h>

#include "target/host/memory.h"

/* A power of two; a sample of a vCPU takes four tables and a few frames of stack. */
#define FRAMES 64u

struct held {
	uint64_t gfn;
	uint64_t round; /* in which it was read; 0: never */
	bool there;
	uint8_t bytes[FRAME_SIZE];
};

struct guest_ram {
	struct ram_map map;
	int fd;
	bool missed;
	uint64_t round;
	struct held frame[FRAMES];
};

bool ram_map_add(struct ram_map *map, uint64_t gpa, uint64_t size, uint64_t hva)
{
	if (map->n == RAM_SLOTS_MAX)
		return false;
	map->slot[map->n++] = (struct ram_slot){gpa, size, hva};
	return true;
}

bool ram_map_find(const struct ram_map *map, uint64_t gfn, uint64_t *hva)
{
	const uint64_t gpa = gfn << FRAME_SHIFT;

	for (size_t i = 0; i < map->n; i++) {
		const struct ram_slot *slot = &map->slot[i];

		if (gpa - slot->gpa >= slot->size)
			continue;
		*hva = slot->hva + (gpa - slot->gpa);
		return true;
	}
	return false;
}

bool ram_map_is_same(const struct ram_map *a, const struct ram_map *b)
{
	return a->n == b->n && !memcmp(a->slot, b->slot, a->n * sizeof(*a->slot));
}

uint64_t ram_map_size(const struct ram_map *map)
{
	uint64_t size = 0;

	for (size_t i = 0; i < map->n; i++)
		size += map->slot[i].size;
	return size;
}

struct error *guest_ram_new(int fd, struct guest_ram **out)
{
	struct guest_ram *ram = calloc(1, sizeof(*ram));

	if (!ram)
		return error_no_memory();
	ram->fd = fd;
	ram->round = 1;
	*out = ram;
	return NULL;
}

void guest_ram_free(struct guest_ram *ram)
{
	free(ram);
}

struct ram_map *guest_ram_map(struct guest_ram *ram)
{
	return &ram->map;
}

void guest_ram_forget(struct guest_ram *ram)
{
	ram->round++;
}

bool guest_ram_missed(struct guest_ram *ram)
{
	const bool missed = ram->missed;

	ram->missed = false;
	return missed;
}

/* Its own slot, or the next one that is free in this round, or its own after all. */
static struct held *place_of(struct guest_ram *ram, uint64_t gfn)
{
	const size_t home = (size_t)(gfn * 0x9e3779b97f4a7c15ull >> 32);

	for (size_t i = 0; i < FRAMES; i++) {
		struct held *held = &ram->frame[(home + i) & (FRAMES - 1)];

		if (held->round != ram->round || held->gfn == gfn)
			return held;
	}
	return &ram->frame[home & (FRAMES - 1)];
}

const void *guest_ram_frame(void *ctx, uint64_t gfn)
{
	struct guest_ram *ram = ctx;
	struct held *held = place_of(ram, gfn);
	uint64_t hva;

	if (held->round == ram->round && held->gfn == gfn)
		return held->there ? held->bytes : NULL;
	held->round = ram->round;
	held->gfn = gfn;
	held->there = ram_map_find(&ram->map, gfn, &hva) &&
		      host_memory_read(ram->fd, hva, held->bytes, FRAME_SIZE) == FRAME_SIZE;
	ram->missed |= !held->there;
	return held->there ? held->bytes : NULL;
}
