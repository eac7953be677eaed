/* SPDX-License-Identifier: BSD-3-Clause */
#include "base/intern.h"

#include <stdlib.h>

#define MAX_IDS (1u << 30)

struct key {
	uint64_t a, b;
};

struct ids {
	struct key *keys;
	uint32_t *slots; /* open addressing: number + 1; 0: free */
	uint32_t n, room, n_slots;
};

struct error *ids_new(struct ids **out)
{
	struct ids *ids = calloc(1, sizeof(*ids));

	if (!ids)
		return error_no_memory();
	ids->room = 256;
	ids->n_slots = 512;
	ids->keys = calloc(ids->room, sizeof(*ids->keys));
	ids->slots = calloc(ids->n_slots, sizeof(*ids->slots));
	if (!ids->keys || !ids->slots) {
		ids_free(ids);
		return error_no_memory();
	}
	*out = ids;
	return NULL;
}

void ids_free(struct ids *ids)
{
	if (!ids)
		return;
	free(ids->keys);
	free(ids->slots);
	free(ids);
}

uint32_t ids_count(const struct ids *ids)
{
	return ids->n;
}

/* Where the key is, or would be. */
static uint32_t *find(const struct ids *ids, uint64_t a, uint64_t b)
{
	uint64_t hash = (a ^ (b << 32 | b >> 32) * 0xff51afd7ed558ccdull) * 0x9e3779b97f4a7c15ull;
	uint32_t slot = (uint32_t)(hash >> 32 ^ hash >> 52) & (ids->n_slots - 1);

	for (;; slot = (slot + 1) & (ids->n_slots - 1)) {
		const struct key *key;

		if (!ids->slots[slot])
			return &ids->slots[slot];
		key = &ids->keys[ids->slots[slot] - 1];
		if (key->a == a && key->b == b)
			return &ids->slots[slot];
	}
}

static struct error *grow(struct ids *ids)
{
	struct key *keys = reallocarray(ids->keys, 2 * (size_t)ids->room, sizeof(*keys));
	uint32_t *slots = calloc(2 * (size_t)ids->n_slots, sizeof(*slots));

	ids->keys = keys ? keys : ids->keys;
	if (!keys || !slots) {
		free(slots);
		return error_no_memory();
	}
	free(ids->slots);
	ids->slots = slots;
	ids->room *= 2;
	ids->n_slots *= 2;
	for (uint32_t i = 0; i < ids->n; i++)
		*find(ids, keys[i].a, keys[i].b) = i + 1;
	return NULL;
}

struct error *ids_get(struct ids *ids, uint64_t a, uint64_t b, uint32_t *id, bool *added)
{
	uint32_t *slot = find(ids, a, b);

	*added = !*slot;
	if (*added) {
		struct error *err = NULL;

		if (ids->n == MAX_IDS)
			return error_new(ERR_FAILED, "more than %u different things", MAX_IDS);
		if (ids->n == ids->room) {
			err = grow(ids);
			slot = find(ids, a, b);
		}
		if (err)
			return err;
		ids->keys[ids->n] = (struct key){a, b};
		*slot = ++ids->n;
	}
	*id = *slot - 1;
	return NULL;
}
