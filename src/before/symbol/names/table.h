/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef UNIPROF_SYMBOL_TABLE_H
#define UNIPROF_SYMBOL_TABLE_H

/*
 * Between the readers of symbol files and the finished table; private to
 * src/symbol. A reader collects candidates, in any order and with aliases,
 * and hands them to symbols_build.
 *
 * To add a file format: write a reader like nm.c and let load.c tell it from
 * the others.
 */

#include <libelf.h>

#include "symbol/names/symbols.h"

enum candidate_bind { BIND_GLOBAL, BIND_WEAK, BIND_LOCAL };

struct candidate {
	uint64_t start;
	uint64_t size;	  /* 0: not known */
	uint64_t limit;	  /* first address that cannot be its own (end of section); 0: not known */
	const char *name; /* NULL: no function, only the end of what comes before */
	uint8_t bind;	  /* enum candidate_bind */
	bool untyped;	  /* a label in code, not marked as a function */
};

struct candidates {
	struct candidate *at;
	size_t n, room;
};

struct error *candidates_add(struct candidates *list, const struct candidate *one);
void candidates_free(struct candidates *list);

/*
 * Sorts the candidates, chooses among aliases and builds the table, which
 * takes over `strings`, the buffer that all names point into. On failure
 * `strings` is freed as well. The list stays the caller's.
 */
struct error *symbols_build(struct candidates *list, char *strings, struct symbols **out);

/* Build ids are 20 bytes, rarely 8 or 16; longer ones are taken for damage. */
#define BUILD_ID_MAX 64

/* Keeps a copy; `hex` has at most 2 * BUILD_ID_MAX digits. */
void symbols_set_build_id(struct symbols *symbols, const char *hex);

/*
 * The readers. `path` is for messages. A file without any function is an
 * error.
 */
struct error *elf_read(const char *path, Elf *elf, struct symbols **out);

/* Takes over `text`, `len` bytes with a NUL behind them. */
struct error *nm_read(const char *path, char *text, size_t len, struct symbols **out);

/* The start of a name that only tells the disassembler code from data: "$x", "$d.12". */
bool is_mapping_symbol(const char *name);

#endif
