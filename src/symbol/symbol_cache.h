/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef UNIPROF_SYMBOL_SYMBOL_CACHE_H
#define UNIPROF_SYMBOL_SYMBOL_CACHE_H

/*
 * Tables of symbols by build id, kept from one run to the next, below
 * XDG_CACHE_HOME (or ~/.cache): a file that was given once names later
 * recordings of the same code, when it is not at hand or nobody says where it
 * is. What is read is checked as if anybody could have written it. Nothing
 * here is an error but the lack of memory: a cache that cannot be used is as
 * an empty one.
 */

#include "symbol/images/images.h"

/*
 * Keeps the symbols of an ELF file with a build id, if they are not kept yet;
 * it is parsed apart (image_apart.h). Before rights are given up.
 */
void symbol_cache_keep(const char *path);

/* Opens the cache ahead (base/ahead.h), for symbol_cache_load. */
struct error *symbol_cache_ahead(void);

/*
 * Fills in an empty `file`, of which code and note have their addresses but no
 * bytes; what is in it otherwise is freed all the same. False if there is none
 * that is good.
 */
bool symbol_cache_load(const char *build_id, struct image_file *file);

#endif
