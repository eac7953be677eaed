/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef UNIPROF_SYMBOL_KERNEL_TABLES_H
#define UNIPROF_SYMBOL_KERNEL_TABLES_H

/* Tables that a Linux kernel carries of itself: of its symbols, and of its types. */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "symbol/kernel/guest_memory.h"
#include "symbol/names/symbols.h"

/*
 * Symbols (CONFIG_KALLSYMS): the table is in the read-only data of every kernel,
 * in a file or in a guest's memory. Nothing says where: it is known by its
 * contents. Laid out by scripts/kallsyms.c of Linux 4.20 and later, for 64-bit
 * little-endian machines.
 */

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

/*
 * Offsets of members in a kernel's structures, from the BTF that it carries in
 * its own memory (Documentation/bpf/btf.rst). The bytes are a guest's: nonsense
 * in them is not found.
 */

struct btf;

/* Borrows the bytes; *out is NULL if they are no BTF. */
struct error *btf_open(const uint8_t *bytes, size_t len, struct btf **out);

/* Reads the BTF of a kernel in a guest's memory; *out is NULL if it has none. */
struct error *btf_read(const struct guest_memory *memory, const struct kallsyms *names,
		       struct btf **out);

void btf_free(struct btf *btf);

/*
 * The bytes from the beginning of a structure to a member of it, of one of its
 * members ("arch.num_orcs"), or of the first of several ("mem.base"); false
 * if there is no such structure or member.
 */
bool btf_offset(const struct btf *btf, const char *structure, const char *member, uint32_t *offset);

#endif
