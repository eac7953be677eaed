/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef UNIPROF_BASE_SYSROOT_H
#define UNIPROF_BASE_SYSROOT_H

/*
 * The root directory of a guest as it is on this machine: a mounted image, or
 * where its files were copied to. Paths are the guest's, and so are the symbolic links
 * below it: none leads out of the directory.
 */

#include <stdbool.h>

#include "base/error.h"

/* Preopens the directory (base/preopen.h). Of several the last counts. */
struct error *sysroot_preopen(const char *dir);

/* True if there is one. */
bool sysroot_is_given(void);

/*
 * Opens a regular file at a whole path of the guest; -1 with errno if there is none, EACCES where
 * we may not look. What is no regular file is not opened, nor are more links followed than Linux does.
 */
int sysroot_open(const char *path);

/*
 * As above, and adopts it (base/preopen.h): *name is what the file is opened by from then
 * on, NULL with errno if there is none; the caller frees it.
 */
struct error *sysroot_adopt(const char *path, char **name);

#endif
