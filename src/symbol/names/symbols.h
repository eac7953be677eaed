/* SPDX-License-Identifier: BSD-3-Clause */
#pragma once

/*
 * A table of functions by address, from an ELF file, the output of `nm -n`,
 * /proc/kallsyms or System.map. Immutable once loaded.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "base/error.h"

/* Bytes of a build id: 20, rarely 8 or 16; longer ones are taken for damage. */
#define BUILD_ID_MAX 64

struct symbols;

/* A symbol without a size that stands for more is hardly one function, bytes. */
#define UNSIZED_USUAL (64u << 10)

struct symbol {
	uint64_t start; /* virtual address */
	uint64_t
		end; /* first address behind it; for symbols without a size the next symbol's start */
	const char *name; /* belongs to the table */
};

/*
 * Loads `path`, whatever of the four it is (told by its contents). ERR_INPUT
 * with a sentence when it is a directory, binary but no ELF, or has no
 * function symbols in it, nor in the separate debug file that belongs to it
 * (base/debug_file.h).
 *
 * Where an ELF file's table of symbols has been thinned out, functions of its
 * debugging information are taken as well (symbol/source/source.h).
 *
 * Functions only: absolute, TLS, section and data symbols would hide code
 * linked at low addresses. Labels in code that are not marked as functions
 * count too (assembly entry points), unless they lie inside a function of
 * known size. Of several symbols at one address one is chosen by a fixed rule
 * (marked as a function before labels, global before weak before local, sized
 * before unsized, fewer leading underscores, then by name). Where functions
 * overlap, an address belongs to the one that starts nearest. Text may start
 * at address 0. Names are as the file has them: any byte but NUL.
 */
struct error *symbols_load(const char *path, struct symbols **out);
void symbols_free(struct symbols *symbols);

size_t symbols_count(const struct symbols *symbols);

/* In order of address; i < symbols_count. */
void symbols_get(const struct symbols *symbols, size_t i, struct symbol *out);

/*
 * The function that holds `addr`; false when none does. An unsized last
 * symbol reaches to the end of its section (ELF) or 4 KiB (other formats,
 * which tell no sections; there no unsized symbol reaches further than 16 MiB).
 */
bool symbols_find(const struct symbols *symbols, uint64_t addr, struct symbol *out);

/* The GNU build id of the ELF file in lower-case hex, or NULL if it has none or was no ELF. */
const char *symbols_build_id(const struct symbols *symbols);

/*
 * Writes the table in the format of `nm -n`: "%016x t name", names cleaned
 * (symbol/names/display_name.h), `slide` added to the addresses.
 */
struct error *symbols_write_nm(const struct symbols *symbols, uint64_t slide, FILE *out);
