/* SPDX-License-Identifier: BSD-3-Clause */
#include "base/intern.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"

#define CHUNK_SIZE 65536

struct chunk {
	struct chunk *next;
	size_t used, room;
	char bytes[];
};

struct pool_slot {
	const char *text; /* NULL: free */
	uint32_t hash;
	uint32_t len;
};

struct pool {
	struct chunk *chunks;	 /* the one that is being filled first */
	struct pool_slot *slots; /* open addressing; a power of two of them, at most half used */
	size_t n, room;
};

struct error *pool_new(struct pool **out)
{
	struct pool *pool;

	TRY(ARRAY_NEW(&pool, 1));
	pool->room = 1024;
	pool->slots = calloc(pool->room, sizeof(*pool->slots));
	if (!pool->slots) {
		free(pool);
		return error_no_memory();
	}
	*out = pool;
	return NULL;
}

void pool_free(struct pool *pool)
{
	if (!pool)
		return;
	while (pool->chunks) {
		struct chunk *next = pool->chunks->next;

		free(pool->chunks);
		pool->chunks = next;
	}
	free(pool->slots);
	free(pool);
}

/* FNV-1a. */
static uint32_t hash_of(const char *text, size_t len)
{
	uint32_t hash = 2166136261u;

	for (size_t i = 0; i < len; i++)
		hash = (hash ^ (unsigned char)text[i]) * 16777619u;
	return hash;
}

static bool pool_grow(struct pool *pool)
{
	size_t room = 2 * pool->room;
	struct pool_slot *slots = calloc(room, sizeof(*slots));

	if (!slots)
		return false;
	for (size_t i = 0; i < pool->room; i++) {
		size_t at = pool->slots[i].hash & (room - 1);

		if (!pool->slots[i].text)
			continue;
		while (slots[at].text)
			at = (at + 1) & (room - 1);
		slots[at] = pool->slots[i];
	}
	free(pool->slots);
	pool->slots = slots;
	pool->room = room;
	return true;
}

static char *store(struct pool *pool, const char *text, size_t len)
{
	struct chunk *chunk = pool->chunks;
	char *at;

	if (!chunk || chunk->room - chunk->used < len + 1) {
		size_t room = len + 1 > CHUNK_SIZE ? len + 1 : CHUNK_SIZE;

		chunk = malloc(sizeof(*chunk) + room);
		if (!chunk)
			return NULL;
		*chunk = (struct chunk){.next = pool->chunks, .room = room};
		pool->chunks = chunk;
	}
	at = chunk->bytes + chunk->used;
	memcpy(at, text, len);
	at[len] = '\0';
	chunk->used += len + 1;
	return at;
}

/* Finds the text's slot, or the empty slot where it is to be added. */
static struct pool_slot *pool_slot(const struct pool *pool, uint32_t hash, const char *text,
				   size_t len)
{
	struct pool_slot *slot;
	size_t at;

	for (at = hash & (pool->room - 1);; at = (at + 1) & (pool->room - 1)) {
		slot = &pool->slots[at];
		if (!slot->text ||
		    (slot->hash == hash && slot->len == len && !memcmp(slot->text, text, len)))
			return slot;
	}
}

struct error *pool_intern(struct pool *pool, const char *text, size_t len, const char **out)
{
	uint32_t hash = hash_of(text, len);
	struct pool_slot *slot;

	if (len > UINT32_MAX || (2 * pool->n >= pool->room && !pool_grow(pool)))
		return error_no_memory();
	slot = pool_slot(pool, hash, text, len);
	*out = slot->text ?: store(pool, text, len);
	if (slot->text)
		return NULL;
	if (!*out)
		return error_no_memory();
	*slot = (struct pool_slot){.text = *out, .hash = hash, .len = (uint32_t)len};
	pool->n++;
	return NULL;
}

const char *pool_find(const struct pool *pool, const char *text, size_t len)
{
	return pool_slot(pool, hash_of(text, len), text, len)->text;
}

static struct error *intern_text(struct pool *pool, const char **text)
{
	return *text ? pool_intern(pool, *text, strlen(*text), text) : NULL;
}

struct error *pool_intern_frames(struct pool *pool, struct source_frame *frames, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		TRY(intern_text(pool, &frames[i].function));
		TRY(intern_text(pool, &frames[i].file));
	}
	return NULL;
}

#define MAX_IDS (1u << 30)

struct id_key {
	uint64_t a, b;
};

struct ids {
	struct id_key *keys;
	uint32_t *slots; /* open addressing: number + 1; 0: free */
	uint32_t n, room, n_slots;
};

struct error *ids_new(struct ids **out)
{
	struct ids *ids;

	TRY(ARRAY_NEW(&ids, 1));
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

/* Finds the key's slot, or the empty slot where it is to be added. */
static uint32_t *ids_slot(const struct ids *ids, uint64_t a, uint64_t b)
{
	uint64_t hash = (a ^ (b << 32 | b >> 32) * 0xff51afd7ed558ccdull) * 0x9e3779b97f4a7c15ull;
	uint32_t slot = (uint32_t)(hash >> 32 ^ hash >> 52) & (ids->n_slots - 1);

	for (;; slot = (slot + 1) & (ids->n_slots - 1)) {
		const struct id_key *key;

		if (!ids->slots[slot])
			return &ids->slots[slot];
		key = &ids->keys[ids->slots[slot] - 1];
		if (key->a == a && key->b == b)
			return &ids->slots[slot];
	}
}

static struct error *ids_grow(struct ids *ids)
{
	struct id_key *keys = reallocarray(ids->keys, 2 * (size_t)ids->room, sizeof(*keys));
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
		*ids_slot(ids, keys[i].a, keys[i].b) = i + 1;
	return NULL;
}

struct error *ids_get(struct ids *ids, uint64_t a, uint64_t b, uint32_t *id, bool *added)
{
	uint32_t *slot = ids_slot(ids, a, b);

	*added = !*slot;
	if (*added) {
		if (ids->n == MAX_IDS)
			return error_new(ERR_FAILED, "more than %u different things", MAX_IDS);
		if (ids->n == ids->room) {
			TRY(ids_grow(ids));
			slot = ids_slot(ids, a, b);
		}
		ids->keys[ids->n] = (struct id_key){a, b};
		*slot = ++ids->n;
	}
	*id = *slot - 1;
	return NULL;
}

bool ids_find(const struct ids *ids, uint64_t a, uint64_t b, uint32_t *id)
{
	const uint32_t *slot = ids_slot(ids, a, b);

	if (*slot)
		*id = *slot - 1;
	return *slot != 0;
}

uint32_t row_ids_count(const struct row_ids *rows)
{
	return rows->ids ? ids_count(rows->ids) : 0;
}

struct error *row_ids_get(struct row_ids *rows, uint64_t a, uint64_t b, void *array, size_t size,
			  uint32_t *number)
{
	bool added;

	if (!rows->ids)
		TRY(ids_new(&rows->ids));
	/* A number without a row would be taken for one with it. */
	TRY(array_reserve_zero(array, &rows->room, rows->ids->n + (size_t)1, size));
	return ids_get(rows->ids, a, b, number, &added);
}

bool row_ids_find(const struct row_ids *rows, uint64_t a, uint64_t b, uint32_t *number)
{
	return rows->ids && ids_find(rows->ids, a, b, number);
}
