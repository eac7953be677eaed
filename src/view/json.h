/* SPDX-License-Identifier: BSD-3-Clause */
#pragma once

/* Values of JSON, as other programs read them. A value that is NULL stands for a lack of memory. */

#include <inttypes.h>
#include <jansson.h>
#include <stdlib.h>

#include "base/owned.h"
#include "symbol/names/display_name.h"

/* A text of a guest or a file; null where there is none. */
static inline json_t *json_text(const char *text)
{
	FREED char *sanitized = text ? sanitize_new(text) : NULL;

	if (!text)
		return json_null();
	return sanitized ? json_string_nocheck(sanitized) : NULL;
}

static inline json_int_t json_count(uint64_t value)
{
	return value > INT64_MAX ? INT64_MAX : (json_int_t)value;
}

/* A number that may not be known: UINT64_MAX, UINT32_MAX; null then. */
static inline json_t *json_known(uint64_t value)
{
	return value == UINT64_MAX ? json_null() : json_integer(json_count(value));
}

static inline json_t *json_id(uint32_t value)
{
	return value == UINT32_MAX ? json_null() : json_integer(value);
}

static inline json_t *json_hex(uint64_t value)
{
	return json_sprintf("0x%" PRIx64, value);
}

/* Takes `value` over; without it, *object is NULL from then on. */
static inline void json_put(json_t **object, const char *key, json_t *value)
{
	if (json_object_set_new_nocheck(*object, key, value)) {
		json_decref(*object);
		*object = NULL;
	}
}

/* The same for an array. */
static inline void json_append(json_t **array, json_t *value)
{
	if (json_array_append_new(*array, value)) {
		json_decref(*array);
		*array = NULL;
	}
}

/* Writes it and ends the line; frees it. Errors of `out` are seen by its owner. */
static inline struct error *json_write(json_t *json, size_t flags, FILE *out)
{
	const bool failed = !json || json_dumpf(json, out, flags) || fputc('\n', out) == EOF;

	json_decref(json);
	return failed && !ferror(out) ? error_no_memory() : NULL;
}
