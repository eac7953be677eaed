/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef UNIPROF_SYMBOL_IMAGES_CACHE_H
#define UNIPROF_SYMBOL_IMAGES_CACHE_H

/*
 * Tables of symbols by build id, kept from one run to the next, below
 * XDG_CACHE_HOME (or ~/.cache): a file that was given once names later
 * recordings of the same code, when it is not at hand or not given. Its
 * contents are checked as if anybody could have written them. The only error is
 * a lack of memory: an unusable cache counts as empty.
 */

#include "symbol/images/images.h"

/*
 * Keeps the symbols of an ELF file with a build id, if they are not kept yet;
 * it is parsed in a sandbox (file.h). Before rights are given up.
 */
void symbol_cache_keep(const char *path);

/* Preopens the cache (base/preopen.h), for symbol_cache_load. */
struct error *symbol_cache_preopen(void);

/*
 * Fills in an empty `file`, whose code and note have addresses but no bytes.
 * The caller frees its contents in any case. False if the cache has no good
 * file.
 */
bool symbol_cache_load(const char *build_id, struct image_file *file);

/*
 * Debugging information from servers that the user has set up
 * (DEBUGINFOD_URLS), for a file that has none and no separate debug file here.
 */

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
