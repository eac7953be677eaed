/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef UNIPROF_SYMBOL_SOURCE_INDEX_H
#define UNIPROF_SYMBOL_SOURCE_INDEX_H

/*
 * Finds the source functions at an address of a file, by the DWARF in it or in
 * its separate debug file: those that were inlined there, and the one that they
 * were inlined into. All addresses are the file's.
 *
 * Compilation units are indexed one at a time, when first asked for; a second
 * question about the same unit is two binary searches. libdw reads whatever
 * the file has: this belongs into a process of its own (source.h).
 */

#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "symbol/source/source.h"

struct source_index;

/*
 * *out is NULL if there is no DWARF. `build_id`: the one that the file must
 * have, in hex; "": any.
 */
struct error *source_index_open(const char *path, const char *build_id, struct source_index **out);
void source_index_close(struct source_index *index);

/*
 * Innermost first; the strings are as the file has them and belong to the
 * index. Nothing is known of the address if `n` is 0 afterwards. Where the
 * file tells of a line, but of no function, there is one frame without.
 * Returns the directory that relative names of files are in, or NULL.
 */
const char *source_index_find(struct source_index *index, uint64_t addr,
			      struct source_answer *answer);

#endif
