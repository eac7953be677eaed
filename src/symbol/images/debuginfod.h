/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef UNIPROF_SYMBOL_IMAGES_DEBUGINFOD_H
#define UNIPROF_SYMBOL_IMAGES_DEBUGINFOD_H

/*
 * Debugging information from servers that the user has set up
 * (DEBUGINFOD_URLS), for a file that has none and no separate debug file here.
 */

#include "base/error.h"

/* For -V: "asks debuginfod" or why not. */
extern const char debuginfod_feature[];

/*
 * To be called while all rights are there, as it goes to the network: finds
 * out the build id of `path`, in a process without rights, and opens what the
 * servers have for it ahead (base/preopen.h) under the name that
 * base/debug_file.h looks for. Nothing is an error but the lack of memory: a
 * server that does not answer, or does not know the file, is as none. Does
 * nothing if DEBUGINFOD_URLS is not set.
 */
struct error *debuginfod_preopen(const char *path);

#endif
