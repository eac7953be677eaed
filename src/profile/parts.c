/* SPDX-License-Identifier: BSD-3-Clause */
#include "profile/parts.h"

#include <stdlib.h>

/* Open addressing; a slot holds a part's index plus one, 0 is free. */
struct parts {
	struct profile_part *at;
	uint32_t *slots;
	uint32_t n, room, n_slots; /* n_slots is a power of two, and twice the room */
};

#define FIRST_ROOM 256u

struct error *parts_new(struct parts **out)
{
	struct parts *parts = calloc(1, sizeof(*parts));

	if (parts) {
		parts->room = FIRST_ROOM;
		parts->n_slots = 2 * FIRST_ROOM;
		parts->at = calloc(parts->room, sizeof(*parts->at));
		parts->slots = calloc(parts->n_slots, sizeof(*parts->slots));
	}
	if (!parts || !parts->at || !parts->slots) {
		parts_free(parts);
		return error_no_memory();
	}
	*out = parts;
	return NULL;
}

void parts_free(struct parts *parts)
{
	if (!parts)
		return;
	free(parts->at);
	free(parts->slots);
	free(parts);
}

static uint32_t *find(const struct parts *parts, uint32_t stack, uint32_t vcpu, uint8_t state)
{
	uint64_t key = (uint64_t)stack << 32 | vcpu << 8 | state;
	uint32_t slot = (uint32_t)(key * UINT64_C(0x9e3779b97f4a7c15) >> 32);

	for (;; slot++) {
		uint32_t *at = &parts->slots[slot & (parts->n_slots - 1)];
		const struct profile_part *part = *at ? &parts->at[*at - 1] : NULL;

		if (!part || (part->stack == stack && part->vcpu == vcpu && part->state == state))
			return at;
	}
}

static struct error *grow(struct parts *parts)
{
	uint32_t room = parts->room * 2;
	struct profile_part *at = realloc(parts->at, room * sizeof(*at));
	uint32_t *slots = calloc((size_t)room * 2, sizeof(*slots));

	if (at)
		parts->at = at;
	if (!at || !slots) {
		free(slots);
		return error_no_memory();
	}
	free(parts->slots);
	parts->slots = slots;
	parts->room = room;
	parts->n_slots = 2 * room;
	for (uint32_t i = 0; i < parts->n; i++)
		*find(parts, at[i].stack, at[i].vcpu, at[i].state) = i + 1;
	return NULL;
}

struct error *parts_add(struct parts *parts, const struct tick_entry *entry, uint64_t times,
			uint64_t weight_ns)
{
	uint32_t *slot = find(parts, entry->stack, entry->vcpu, entry->state);
	struct profile_part *part;

	if (!*slot && parts->n == parts->room) {
		struct error *err = grow(parts);

		if (err)
			return err;
		slot = find(parts, entry->stack, entry->vcpu, entry->state);
	}
	if (!*slot) {
		parts->at[parts->n] = (struct profile_part){.stack = entry->stack,
							    .vcpu = (uint16_t)entry->vcpu,
							    .state = entry->state};
		*slot = ++parts->n;
	}
	part = &parts->at[*slot - 1];
	part->cell.samples += times;
	if (__builtin_mul_overflow(weight_ns, times, &weight_ns) ||
	    __builtin_add_overflow(part->cell.weight_ns, weight_ns, &part->cell.weight_ns))
		part->cell.weight_ns = UINT64_MAX;
	return NULL;
}

size_t parts_count(const struct parts *parts)
{
	return parts->n;
}

const struct profile_part *parts_at(const struct parts *parts, size_t i)
{
	return &parts->at[i];
}
