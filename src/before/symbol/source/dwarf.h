/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef UNIPROF_SYMBOL_DWARF_FILE_H
#define UNIPROF_SYMBOL_DWARF_FILE_H

#include <elfutils/libdw.h>
#include <stdbool.h>

/* The debugging information of a file: its own, or that of its separate debug file. */
struct dwarf_file {
	int fd;
	Elf *elf;
	Dwarf *dwarf; /* NULL: none */
};

/* False if there is none. `build_id`: what the file must have, in hex; "": anything. */
bool dwarf_file_open(const char *path, const char *build_id, struct dwarf_file *file);

/*
 * Is it an ELF file with a build id and without debugging information, and has
 * it no separate debug file here? `hex` is its build id, "" if it has none, and holds 2 * CODE_BUILD_ID_MAX + 1.
 */
bool dwarf_file_lacks(const char *path, char *hex);

/* Also after it could not be opened, and for one that is all zeros. */
void dwarf_file_close(struct dwarf_file *file);

#endif
