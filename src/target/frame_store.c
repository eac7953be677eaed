/* SPDX-License-Identifier: BSD-3-Clause */
#include "target/frame_store.h"

#include <stdlib.h>
#include <string.h>

struct entry {
	uint64_t gfn;
	uint8_t *bytes; /* NULL: free */
	uint64_t round; /* in which it was stored last */
};

/* Open addressing; the size is a power of two, at least twice the number of frames. */
struct frame_store {
	struct entry *entries;
	size_t size, n;
	uint64_t round;
};

static struct entry *find(const struct frame_store *store, uint64_t gfn)
{
	size_t i = (size_t)(gfn * 0x9e3779b97f4a7c15ull >> 32) & (store->size - 1);

	while (store->entries[i].bytes && store->entries[i].gfn != gfn)
		i = (i + 1) & (store->size - 1);
	return &store->entries[i];
}

static struct error *grow(struct frame_store *store)
{
	struct frame_store larger = {.size = store->size * 2, .n = store->n, .round = store->round};

	larger.entries = calloc(larger.size, sizeof(*larger.entries));
	if (!larger.entries)
		return error_no_memory();
	for (size_t i = 0; i < store->size; i++)
		if (store->entries[i].bytes)
			*find(&larger, store->entries[i].gfn) = store->entries[i];
	free(store->entries);
	*store = larger;
	return NULL;
}

struct error *frame_store_new(struct frame_store **out)
{
	struct frame_store *store = calloc(1, sizeof(*store));

	if (!store)
		return error_no_memory();
	store->size = 64;
	store->entries = calloc(store->size, sizeof(*store->entries));
	if (!store->entries) {
		free(store);
		return error_no_memory();
	}
	*out = store;
	return NULL;
}

void frame_store_free(struct frame_store *store)
{
	if (!store)
		return;
	for (size_t i = 0; i < store->size; i++)
		free(store->entries[i].bytes);
	free(store->entries);
	free(store);
}

struct error *frame_store_put(struct frame_store *store, uint64_t gfn, const void *bytes,
			      bool *changed)
{
	struct entry *entry = find(store, gfn);
	struct error *err;

	if (entry->bytes) {
		*changed = memcmp(entry->bytes, bytes, FRAME_SIZE) != 0;
		memcpy(entry->bytes, bytes, FRAME_SIZE);
		entry->round = store->round;
		return NULL;
	}
	if (store->n == FRAME_STORE_MAX)
		return error_new(ERR_FAILED, "a snapshot holds at most %u frames", FRAME_STORE_MAX);
	if (2 * (store->n + 1) > store->size) {
		err = grow(store);
		if (err)
			return err;
		entry = find(store, gfn);
	}
	entry->bytes = malloc(FRAME_SIZE);
	if (!entry->bytes)
		return error_no_memory();
	memcpy(entry->bytes, bytes, FRAME_SIZE);
	entry->gfn = gfn;
	entry->round = store->round;
	store->n++;
	*changed = true;
	return NULL;
}

bool frame_store_is_new(const struct frame_store *store, uint64_t gfn)
{
	const struct entry *entry = find(store, gfn);

	return entry->bytes && entry->round == store->round;
}

void frame_store_next(struct frame_store *store)
{
	store->round++;
}

const void *frame_store_get(void *store, uint64_t gfn)
{
	return find(store, gfn)->bytes;
}
