/* SPDX-License-Identifier: BSD-3-Clause */
#include "target/core/frame_map.h"

#include <stdlib.h>

#include "arch/arch.h"

static struct error *make_room(struct frame_map *map)
{
	const size_t room = map->room ? 2 * map->room : 64;
	struct frame_run *run;

	if (map->n < map->room)
		return NULL;
	if (map->n == FRAME_RUNS_MAX)
		return error_new(ERR_INPUT, "the file's memory is in more than %u pieces",
				 FRAME_RUNS_MAX);
	run = reallocarray(map->run, room, sizeof(*run));
	if (!run)
		return error_no_memory();
	map->run = run;
	map->room = room;
	return NULL;
}

struct error *frame_map_add(struct frame_map *map, uint64_t gfn, uint64_t n, uint64_t at)
{
	struct frame_run *last = map->n ? &map->run[map->n - 1] : NULL;
	struct error *err;

	if (last && last->gfn + last->n == gfn && last->at + (last->n << FRAME_SHIFT) == at) {
		last->n += n;
		return NULL;
	}
	err = make_room(map);
	if (!err)
		map->run[map->n++] = (struct frame_run){gfn, n, at};
	return err;
}

static int by_gfn(const void *a, const void *b)
{
	const struct frame_run *left = a, *right = b;

	return (left->gfn > right->gfn) - (left->gfn < right->gfn);
}

void frame_map_sort(struct frame_map *map)
{
	uint64_t end = 0;
	size_t kept = 0;

	if (map->n)
		qsort(map->run, map->n, sizeof(*map->run), by_gfn);
	for (size_t i = 0; i < map->n; i++) {
		struct frame_run run = map->run[i];
		const uint64_t twice = run.gfn < end ? end - run.gfn : 0;

		if (twice >= run.n)
			continue;
		run.gfn += twice;
		run.n -= twice;
		run.at += twice << FRAME_SHIFT;
		end = run.gfn + run.n;
		map->run[kept++] = run;
	}
	map->n = kept;
}

static int by_place(const void *key, const void *element)
{
	const uint64_t gfn = *(const uint64_t *)key;
	const struct frame_run *run = element;

	if (gfn < run->gfn)
		return -1;
	return gfn - run->gfn >= run->n;
}

bool frame_map_find(const struct frame_map *map, uint64_t gfn, uint64_t *at)
{
	const struct frame_run *run =
		map->n ? bsearch(&gfn, map->run, map->n, sizeof(*map->run), by_place) : NULL;

	if (run)
		*at = run->at + ((gfn - run->gfn) << FRAME_SHIFT);
	return run;
}

void frame_map_free(struct frame_map *map)
{
	free(map->run);
	*map = (struct frame_map){0};
}
