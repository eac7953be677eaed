/* SPDX-License-Identifier: BSD-3-Clause */
#include "profile/recorded_places.h"

#include <stdlib.h>
#include <string.h>

#include "base/pool.h"

struct recorded_places {
	struct pool *pool;
	struct recorded_place *at;
	size_t n, room;
};

struct error *recorded_places_new(struct recorded_places **out)
{
	struct recorded_places *places = calloc(1, sizeof(*places));
	struct error *err;

	if (!places)
		return error_no_memory();
	err = pool_new(&places->pool);
	if (err)
		free(places);
	else
		*out = places;
	return err;
}

void recorded_places_free(struct recorded_places *places)
{
	if (!places)
		return;
	for (size_t i = 0; i < places->n; i++)
		free(places->at[i].frames);
	free(places->at);
	pool_free(places->pool);
	free(places);
}

static struct error *keep(struct recorded_places *places, const char **text)
{
	return *text ? pool_intern(places->pool, *text, strlen(*text), text) : NULL;
}

struct error *recorded_places_add(struct recorded_places *places, uint64_t addr, uint8_t kind,
				  const struct source_frame *frames, size_t n)
{
	struct source_frame *copy;
	struct error *err = NULL;

	if (places->n == places->room) {
		size_t room = 2 * places->room + 256;
		struct recorded_place *list = reallocarray(places->at, room, sizeof(*list));

		if (!list)
			return error_no_memory();
		places->at = list;
		places->room = room;
	}
	copy = reallocarray(NULL, n, sizeof(*copy));
	if (!copy)
		return error_no_memory();
	memcpy(copy, frames, n * sizeof(*copy));
	for (size_t i = 0; i < n && !err; i++) {
		err = keep(places, &copy[i].function);
		if (!err)
			err = keep(places, &copy[i].file);
	}
	places->at[places->n++] = (struct recorded_place){addr, copy, (uint32_t)n, kind};
	return err;
}

bool recorded_places_get(const struct recorded_places *places, size_t i, struct recorded_place *out)
{
	if (i >= places->n)
		return false;
	*out = places->at[i];
	return true;
}
