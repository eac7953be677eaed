/* SPDX-License-Identifier: BSD-3-Clause */
#pragma once

/*
 * Between the readers of symbol files and the finished table; private to
 * src/symbol. A reader collects candidates, in any order and with aliases,
 * and hands them to symbols_build.
 *
 * To add a file format: write a reader like nm_read and let load.c tell it from
 * the others.
 */

#include <libelf.h>

#include "symbol/names/symbols.h"

/* BIND_DEBUG: from debugging information; tables of symbols take precedence. */
enum candidate_bind { BIND_GLOBAL, BIND_WEAK, BIND_LOCAL, BIND_DEBUG };

struct symbol_candidate {
	uint64_t start;
	uint64_t size;	  /* 0: not known */
	uint64_t limit;	  /* first address that cannot be its own (end of section); 0: not known */
	const char *name; /* NULL: no function, but the end of the symbol before */
	uint8_t bind;	  /* enum candidate_bind */
	bool untyped;	  /* a label in code, not marked as a function */
};

struct symbol_candidates {
	struct symbol_candidate *at;
	size_t n, room;
};

struct error *symbol_candidates_add(struct symbol_candidates *list,
				    const struct symbol_candidate *one);
void symbol_candidates_free(struct symbol_candidates *list);

/*
 * Has the table been thinned out: is less than half of the `code` bytes in
 * functions of known size, or does one symbol without a size stand for more
 * than UNSIZED_USUAL? Sorts the list.
 */
bool symbol_candidates_are_poor(struct symbol_candidates *list, uint64_t code);

/*
 * Sorts the candidates, chooses among aliases and builds the table, which
 * takes *strings over, the buffer that all names point into, and leaves NULL
 * there; NULL: there is none to take. The list stays the caller's.
 */
struct error *symbols_build(struct symbol_candidates *list, char **strings, struct symbols **out);

/* Keeps a copy; `hex` has at most 2 * BUILD_ID_MAX digits. */
void symbols_set_build_id(struct symbols *symbols, const char *hex);

/*
 * The readers. `path` is for messages. A file without any function is an
 * error.
 */
struct error *elf_read(const char *path, Elf *elf, struct symbols **out);

/* For ENDED_BY() (base/owned.h). */
static inline void end_elf(Elf **elf)
{
	elf_end(*elf);
}

/* Takes over `text`, `len` bytes with a NUL behind them. */
struct error *nm_read(const char *path, char *text, size_t len, struct symbols **out);

/* The start of a name that only tells the disassembler code from data: "$x", "$d.12". */
bool is_mapping_symbol(const char *name);
