/* SPDX-License-Identifier: BSD-3-Clause */
#pragma once

/*
 * Large arrays; arrays that grow: a pointer to the elements, and how many there is room for; both
 * start as 0; and arrays in order.
 */

#include <malloc.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/error.h"

/* -1, 0 or 1, for qsort(); several keys are put together by `?:`. */
#define COMPARE(a, b) (((a) > (b)) - ((a) < (b)))

#define ARRAY_LARGE ((size_t)4 << 20)

/*
 * Large pages for an array of 4 MiB or more, as far as the kernel has such: they save faults, and
 * misses of the TLB where elements are read in no order. All of its mapping is advised: a part
 * would be a mapping of its own, and realloc() had to copy instead of moving pages.
 */
static inline void array_advise(void *elements, size_t bytes)
{
	const uintptr_t page = 4096, start = (uintptr_t)elements & ~(page - 1);
	uintptr_t end;

	if (!elements || bytes < ARRAY_LARGE)
		return;
	end = ((uintptr_t)elements + malloc_usable_size(elements) + page - 1) & ~(page - 1);
	(void)madvise((void *)start, end - start, MADV_HUGEPAGE);
}

#define ARRAY_PAGE ((size_t)2 << 20)

/*
 * How much to ask malloc() for, which adds less than a small page: a large array gets a mapping of
 * whole large pages, which the kernel aligns, and moves as such when it grows. False: too much.
 */
static inline bool array_bytes(size_t n, size_t size, size_t *bytes)
{
	if (__builtin_mul_overflow(n, size, bytes) || *bytes > PTRDIFF_MAX - ARRAY_PAGE)
		return false;
	if (*bytes >= ARRAY_LARGE)
		*bytes = ((*bytes + 4096 + ARRAY_PAGE - 1) & ~(ARRAY_PAGE - 1)) - 4096;
	return true;
}

/* Sets *array, a pointer whose address is given, to `n` elements of zeros; to NULL with an error. */
static inline struct error *array_new(void *array, size_t n, size_t size)
{
	void *elements = calloc(n ? n : 1, size);

	memcpy(array, &elements, sizeof(elements));
	return elements ? NULL : error_no_memory();
}

#define ARRAY_NEW(array, n) array_new(array, n, sizeof(**(array)))

/* As calloc(). */
static inline void *array_zeros(size_t n, size_t size)
{
	size_t bytes;
	void *elements;

	if (!array_bytes(n, size, &bytes))
		return NULL;
	elements = calloc(bytes, 1);
	array_advise(elements, bytes);
	return elements;
}

/* As reallocarray(). */
static inline void *array_resize(void *elements, size_t n, size_t size)
{
	size_t bytes;

	if (!array_bytes(n, size, &bytes))
		return NULL;
	elements = realloc(elements, bytes);
	array_advise(elements, bytes);
	return elements;
}

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
	elements = array_resize(elements, more, size);
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
	char *elements;

	TRY(array_reserve(array, room, need, size));
	if (*room == before)
		return NULL;
	memcpy(&elements, array, sizeof(elements));
	memset(elements + before * size, 0, (*room - before) * size);
	return NULL;
}

#define ARRAY_RESERVE_ZERO(array, room, need) \
	array_reserve_zero(array, room, need, sizeof(**(array)))

/* Adds a copy of `one` behind the `*n` elements that there are. */
static inline struct error *array_add(void *array, size_t *room, size_t *n, const void *one,
				      size_t size)
{
	char *elements;

	TRY(array_reserve(array, room, *n + 1, size));
	memcpy(&elements, array, sizeof(elements));
	memcpy(elements + (*n)++ * size, one, size);
	return NULL;
}

#define ARRAY_ADD(array, room, n, one) array_add(array, room, n, one, sizeof(**(array)))

/* How many elements of a sorted array, from the first on, have a key of 64 bits that is at most `key`. */
static inline size_t array_upto(const void *array, size_t n, size_t size, size_t at, uint64_t key)
{
	size_t low = 0, high = n;

	while (low < high) {
		const size_t middle = low + (high - low) / 2;
		uint64_t here;

		memcpy(&here, (const char *)array + middle * size + at, sizeof(here));
		if (here <= key)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

#define ARRAY_UPTO(array, n, member, key) \
	array_upto(array, n, sizeof(*(array)), offsetof(__typeof__(*(array)), member), key)
