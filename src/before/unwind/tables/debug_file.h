/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef UNIPROF_UNWIND_DEBUG_FILE_H
#define UNIPROF_UNWIND_DEBUG_FILE_H

/* Where distributions put what `strip` took out of a file. */

#include <libelf.h>

#include "base/error.h"

/* Before a build id in hex: the name under which one is opened ahead that came from a server. */
#define DEBUG_FILE_FETCHED "debuginfod:"

/*
 * Opens the user's own directory of debug files ahead (base/ahead.h): it is
 * looked into first, by build id below DIR/.build-id, by the .gnu_debuglink
 * below DIR with the whole path of the file, and by the bare link in DIR. Of
 * several the last counts.
 */
struct error *debug_file_ahead(const char *dir);

/*
 * Opens the separate debug file of `elf`, which was read from `path`: in the
 * user's directory; by build id below /usr/lib/debug/.build-id; by its
 * .gnu_debuglink beside the file, in .debug/ there, or below /usr/lib/debug;
 * or the one that was fetched (symbol/debuginfod.h). It must have the same
 * build id; without one, the checksum that the link says. -1 if there is none.
 */
int debug_file_open(const char *path, Elf *elf);

#endif
