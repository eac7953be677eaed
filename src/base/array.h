/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef UNIPROF_BASE_ARRAY_H
#define UNIPROF_BASE_ARRAY_H

/* Arrays that grow: a pointer to the elements, and how many there is room for; both start as 0. */

#include <stdlib.h>
#include <string.h>

#include "base/error.h"

/*
 * Makes room for `need` elements of `size` bytes, mostly for twice as many;
 * `array` is the address of the pointer. On an error nothing has changed.
 */
static inline struct error *array_reserve(void *array, size_t *room, size_t need, size_t size)
{
	const size_t more = 2 * need < 64 ? 64 : 2 * need;
	void *elements;

	if (need <= *room)
		return NULL;
	memcpy(&elements, array, sizeof(elements));
	elements = reallocarray(elements, more, size);
	if (!elements)
		return error_no_memory();
	memcpy(array, &elements, sizeof(elements));
	*room = more;
	return NULL;
}

#define ARRAY_RESERVE(array, room, need) array_reserve(array, room, need, sizeof(**(array)))

/* ... of zeros. */
static inline struct error *array_reserve_zero(void *array, size_t *room, size_t need, size_t size)
{
	const size_t before = *room;
	struct error *err = array_reserve(array, room, need, size);
	char *elements;

	if (err || *room == before)
		return err;
	memcpy(&elements, array, sizeof(elements));
	memset(elements + before * size, 0, (*room - before) * size);
	return NULL;
}

#define ARRAY_RESERVE_ZERO(array, room, need) \
	array_reserve_zero(array, room, need, sizeof(**(array)))

#endif
