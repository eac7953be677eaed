/* SPDX-License-Identifier: BSD-3-Clause */
#pragma once

/*
 * Functions of CPython: names and lines of its code objects, kept by their
 * addresses. A function's identity is a hash of all that is told of it. One that
 * was read while a frame held the object proves a name that is read later, and one
 * that is kept. A stop reads it the first times that an address is met, and where
 * it was another function's before; elsewhere it is enough that the object is
 * the same before and after the stop.
 */

#include <string.h>

#include "runtime/runtime.h"

/* Offsets in objects, which differ between versions, bytes. */
struct python_offsets {
	struct {
		uint16_t line, file, name, lines, bytes;
	} code;
	struct {
		uint16_t ascii, other; /* sizes of their heads */
	} text;
};

/* Addresses of types in the process. */
struct python_types {
	uint64_t code, text, bytes;
};

struct python_functions;

/* Names go to `stand_ins`, which must outlive it. */
struct error *python_functions_new(const struct python_types *types,
				   const struct python_offsets *at, struct stand_ins *stand_ins,
				   struct python_functions **out);
void python_functions_free(struct python_functions *python);

/* runtime_system.identify and name */
bool python_functions_identify(const struct python_functions *python,
			       const struct guest_memory *memory, uint64_t va, uint64_t *identity);
struct error *python_functions_name(struct python_functions *python,
				    const struct guest_memory *memory, uint64_t round,
				    const struct runtime_frame *frame, uint64_t *addr);

static inline uint64_t word_at(const uint8_t *bytes, size_t offset)
{
	uint64_t word;

	memcpy(&word, bytes + offset, sizeof(word));
	return word;
}
