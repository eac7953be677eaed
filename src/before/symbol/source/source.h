/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef UNIPROF_SYMBOL_SOURCE_H
#define UNIPROF_SYMBOL_SOURCE_H

/*
 * Where in the source the code of a file is, asked of a process of its own
 * that reads the file's DWARF (source_index.h). That process holds nothing but
 * files that were opened ahead and two pipes, and has a bounded time of the
 * CPU: a damaged file costs lines, not the profile. What it answers is checked.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "profile/source_frame.h"

struct source_answer {
	uint32_t n; /* frames, innermost first; 0: nothing is known */
	uint64_t
		start; /* where the code of the last one begins, of which the address is part; 0: not known */
	struct source_frame frame[SOURCE_DEPTH];
};

struct source;

/*
 * *out is NULL when the file has no DWARF, or another build id (in hex; "":
 * none) than it had. Errors are those of making a process.
 */
struct error *source_open(const char *path, const char *build_id, struct source **out);
void source_close(struct source *source);

/* Addresses that are asked for at once are cheapest in hundreds. */
#define SOURCE_BATCH 512

/* Ends the process; strings that it has answered with stay until source_close. */
void source_end(struct source *source);

/*
 * Asks for `n` addresses of the file, SOURCE_BATCH at most; `take` is called
 * for each of them, in order. Strings are good until source_close. False when
 * the process has died, is too slow or talks nonsense: nothing more will come
 * from it.
 */
typedef struct error *source_taker(void *ctx, size_t i, const struct source_answer *answer);
struct error *source_ask(struct source *source, const uint64_t *addr, size_t n, source_taker *take,
			 void *ctx, bool *alive);

#endif
