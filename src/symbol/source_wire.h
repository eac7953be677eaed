/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef UNIPROF_SYMBOL_SOURCE_WIRE_H
#define UNIPROF_SYMBOL_SOURCE_WIRE_H

/*
 * Between source.c and the process that it asks, private to both. That process
 * first says whether there is anything to ask, SOURCE_HAS or SOURCE_LACKS.
 * Then, as often as somebody asks: a number of addresses and the addresses; an
 * answer for each of them: its head, and its frames. Strings have numbers from
 * 1 on, 0 is none; where a number is used for the first time, which is then the
 * next one, the string's length (uint32_t) and bytes follow at once.
 */

#include <stdint.h>

#define SOURCE_HAS   1u
#define SOURCE_LACKS 0u

/* The longest string, bytes: that of a name in a recording. */
#define SOURCE_STRING_MAX (64u << 10)

struct wire_answer {
	uint64_t start;
	uint32_t n;
	uint32_t unused;
};

/* Then twice: the number of a string (function, file), and it if it is new; then the line. */
typedef uint32_t wire_number;

/* Answers questions until nobody asks any more; `in` and `out` are pipes. Never returns. */
void source_serve(const char *path, const char *build_id, int in, int out)
	__attribute__((noreturn));

#endif
