/* SPDX-License-Identifier: BSD-3-Clause */
#pragma once

/*
 * Separate debug files, with the sections that `strip` took out, as
 * distributions and builds place them.
 */

#include <gelf.h>

#include "base/error.h"

/* Before a build id in hex: the name of a preopened one that came from a server. */
#define DEBUG_FILE_FETCHED "debuginfod:"

/*
 * Preopens the user's own directory of debug files (base/preopen.h): it is
 * looked into first, by build id below DIR/.build-id, by the .gnu_debuglink
 * below DIR with the whole path of the file, and by the bare link in DIR. Of
 * several the last counts.
 */
struct error *debug_file_preopen(const char *dir);

/*
 * Opens the separate debug file of `elf`, which was read from `path`: in the
 * user's directory; by build id below /usr/lib/debug/.build-id; by its
 * .gnu_debuglink beside the file, in .debug/ there, or below /usr/lib/debug;
 * by the names that builds give it beside the file (X.dbg, X.debug, .debug/X,
 * vmlinux for vmlinuz); by build id below /usr/lib/debug of the guest's own root
 * (base/preopen.h); or the one that was fetched (symbol/images/file.h). It
 * must have the same build id; without one, the checksum that the link says,
 * or the same code. -1 if there is none.
 */
int debug_file_open(const char *path, Elf *elf);

/* The section of this name with contents, or NULL. */
Elf_Scn *elf_find_section(Elf *elf, const char *wanted, GElf_Shdr *shdr);

/* Preopens the debug files beside a file: its directory may be readable for us alone. */
struct error *debug_file_preopen_beside(const char *path);
