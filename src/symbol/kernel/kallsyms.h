/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef UNIPROF_SYMBOL_KERNEL_KALLSYMS_H
#define UNIPROF_SYMBOL_KERNEL_KALLSYMS_H

/*
 * Linux's own table of its symbols (CONFIG_KALLSYMS), as it is in the read-only
 * data of every kernel, in a file or in a guest's memory. Nothing says where
 * it is: it is known by its contents. Laid out by scripts/kallsyms.c of Linux
 * 4.20 and later, for 64-bit little-endian machines.
 */

#include <stdbool.h>

#include "symbol/kernel/guest_memory.h"
#include "symbol/names/symbols.h"

struct kallsyms;

/*
 * Searches the memory from `start` to `end` for the table; parts of the memory
 * may be missing. *out is NULL if there is none. The functions below spend from
 * the budget of `memory`, too.
 */
struct error *kallsyms_find(const struct guest_memory *memory, uint64_t start, uint64_t end,
			    struct kallsyms **out);
void kallsyms_free(struct kallsyms *kallsyms);

/* The address of a symbol of any type; false if there is none of this name. */
bool kallsyms_address(const struct kallsyms *kallsyms, const char *name, uint64_t *address);

/* ... and where the next symbol begins; what the budget does not allow to be found is not there. */
bool kallsyms_range(const struct kallsyms *kallsyms, const char *name, uint64_t *start,
		    uint64_t *end);

/* The functions, by the addresses that the table has. `path` is for messages. */
struct error *kallsyms_symbols(const struct kallsyms *kallsyms, const char *path,
			       struct symbols **out);

#endif
