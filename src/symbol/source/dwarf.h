/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef UNIPROF_SYMBOL_SOURCE_DWARF_H
#define UNIPROF_SYMBOL_SOURCE_DWARF_H

#include <elfutils/libdw.h>
#include <stdbool.h>

#include "symbol/names/table.h"

/* The debugging information of a file: its own, or that of its separate debug file. */
struct dwarf_file {
	int fd;
	Elf *elf;
	Dwarf *dwarf; /* NULL: none */
};

/* False if there is no DWARF. `build_id`: the one that the file must have, in hex; "": any. */
bool dwarf_file_open(const char *path, const char *build_id, struct dwarf_file *file);

/*
 * Is it an ELF file with a build id and without debugging information, and has
 * it no separate debug file here? `hex` is its build id, "" if it has none, and holds 2 * BUILD_ID_MAX + 1.
 */
bool dwarf_file_lacks(const char *path, char *hex);

/*
 * Would libdw find nothing but regular files where it looks for the file that a split unit names? It opens
 * whatever is there, and waits for the writer of a FIFO. `directory` is the unit's; NULL: it has none.
 */
bool dwarf_split_is_regular(const struct dwarf_file *file, const char *directory, const char *name);

/* Also after it could not be opened, and for one that is all zeros. */
void dwarf_file_close(struct dwarf_file *file);

/*
 * Adds functions from debugging information to the list, for files whose table of symbols has been thinned out:
 * names and bounds of subprograms, and the bounds of units, where labels of assembly code end at the latest. Reads
 * the file at `path` or its separate debug file. Names point into *strings, `len` bytes, to which they are appended;
 * the list's names are moved along. Adds nothing if there is no debugging information; damaged parts are left out.
 * Takes a bounded time.
 */
struct error *dwarf_functions(const char *path, struct symbol_candidates *list, char **strings,
			      size_t len);

#endif
