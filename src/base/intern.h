/* SPDX-License-Identifier: BSD-3-Clause */
#pragma once

/* Strings, each kept once, so that equal strings are the same pointer. */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "base/owned.h"
#include "base/sample_types.h"

struct pool;

struct error *pool_new(struct pool **out);
void pool_free(struct pool *pool);

/* `*out` is valid until pool_free. */
struct error *pool_intern(struct pool *pool, const char *text, size_t len, const char **out);

/* ... without adding it: NULL if it is not there. */
const char *pool_find(const struct pool *pool, const char *text, size_t len);

/* Replaces the frames' texts by the pool's. */
struct error *pool_intern_frames(struct pool *pool, struct source_frame *frames, size_t n);

/* FNV-1a of 64 bits, which begins with HASH_BEGIN. */
#define HASH_BEGIN UINT64_C(0xcbf29ce484222325)

static inline uint64_t hash_bytes(uint64_t from, const void *bytes, size_t len)
{
	const uint8_t *at = bytes;

	for (size_t i = 0; i < len; i++)
		from = (from ^ at[i]) * UINT64_C(0x100000001b3);
	return from;
}

/* Numbers pairs of 64-bit values in the order in which they are met: 0, 1, 2 ... */

struct ids;

struct error *ids_new(struct ids **out);
void ids_free(struct ids *ids);
OWNED_POINTER(ids)

uint32_t ids_count(const struct ids *ids);

/* The number of (a, b); *added tells whether it is a new one. ERR_FAILED for more than 2^30. */
struct error *ids_get(struct ids *ids, uint64_t a, uint64_t b, uint32_t *id, bool *added);

/* ... without adding it: false if it is not there. */
bool ids_find(const struct ids *ids, uint64_t a, uint64_t b, uint32_t *id);

/* Numbers for the rows of an array that grows, whose pointer starts as NULL and is the caller's. */
struct row_ids {
	struct ids *ids; /* NULL: there are no rows yet */
	size_t room;
};

uint32_t row_ids_count(const struct row_ids *rows);

/*
 * The number of the row of (a, b): a new one is all zeros. `array` is the
 * address of the pointer to rows of `size` bytes.
 */
struct error *row_ids_get(struct row_ids *rows, uint64_t a, uint64_t b, void *array, size_t size,
			  uint32_t *number);

#define ROW_IDS_GET(rows, a, b, array, number) \
	row_ids_get(rows, a, b, array, sizeof(**(array)), number)

/* ... without adding it: false if it is not there. */
bool row_ids_find(const struct row_ids *rows, uint64_t a, uint64_t b, uint32_t *number);
