/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef UNIPROF_SYMBOL_SYMBOLS_H
#define UNIPROF_SYMBOL_SYMBOLS_H

/*
 * A table of functions by address, from an ELF file, the output of `nm -n`,
 * /proc/kallsyms or System.map. Immutable once loaded.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "base/error.h"

struct symbols;

struct symbol {
	uint64_t start; /* virtual address */
	uint64_t
		end; /* first address behind it; for symbols without a size the next symbol's start */
	const char *name; /* belongs to the table */
};

/*
 * Loads `path`, whatever of the four it is (told by its contents). ERR_INPUT
 * with a sentence when it is a directory, binary but no ELF, or has no
 * function symbols in it.
 *
 * Functions only: absolute, TLS, section and data symbols would hide code
 * linked at low addresses. Of several symbols at one address one is chosen by
 * a fixed rule (global before weak before local, sized before unsized, then
 * by name). Text may start at address 0.
 */
struct error *symbols_load(const char *path, struct symbols **out);
void symbols_free(struct symbols *symbols);

size_t symbols_count(const struct symbols *symbols);

/* In order of address; i < symbols_count. */
void symbols_get(const struct symbols *symbols, size_t i, struct symbol *out);

/*
 * The function that holds `addr`; false when none does. An unsized last
 * symbol reaches to the end of its section (ELF) or 4 KiB (other formats).
 */
bool symbols_find(const struct symbols *symbols, uint64_t addr, struct symbol *out);

/* The GNU build id of the ELF file in lower-case hex, or NULL if it has none or was no ELF. */
const char *symbols_build_id(const struct symbols *symbols);

/* Writes the table in the format of `nm -n`: "%016x t name". */
struct error *symbols_write_nm(const struct symbols *symbols, FILE *out);

#endif
