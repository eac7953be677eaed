/* SPDX-License-Identifier: BSD-3-Clause */
#include "base/pool.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define CHUNK_SIZE 65536

struct chunk {
	struct chunk *next;
	size_t used, room;
	char bytes[];
};

struct slot {
	const char *text; /* NULL: free */
	uint32_t hash;
	uint32_t len;
};

struct pool {
	struct chunk *chunks; /* the one that is being filled first */
	struct slot *slots;   /* open addressing; a power of two of them, at most half used */
	size_t n, room;
};

struct error *pool_new(struct pool **out)
{
	struct pool *pool = calloc(1, sizeof(*pool));

	if (!pool)
		return error_no_memory();
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

static bool grow(struct pool *pool)
{
	size_t room = 2 * pool->room;
	struct slot *slots = calloc(room, sizeof(*slots));

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

struct error *pool_intern(struct pool *pool, const char *text, size_t len, const char **out)
{
	uint32_t hash = hash_of(text, len);
	struct slot *slot;
	size_t at;

	if (len > UINT32_MAX || (2 * pool->n >= pool->room && !grow(pool)))
		return error_no_memory();
	for (at = hash & (pool->room - 1); pool->slots[at].text; at = (at + 1) & (pool->room - 1)) {
		slot = &pool->slots[at];
		if (slot->hash == hash && slot->len == len && !memcmp(slot->text, text, len)) {
			*out = slot->text;
			return NULL;
		}
	}
	*out = store(pool, text, len);
	if (!*out)
		return error_no_memory();
	pool->slots[at] = (struct slot){.text = *out, .hash = hash, .len = (uint32_t)len};
	pool->n++;
	return NULL;
}
