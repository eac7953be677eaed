/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef UNIPROF_BASE_POOL_H
#define UNIPROF_BASE_POOL_H

/* Strings, each kept once, so that equal strings are the same pointer. */

#include <stddef.h>

#include "base/error.h"

struct pool;

struct error *pool_new(struct pool **out);
void pool_free(struct pool *pool);

/* `*out` is valid until pool_free. */
struct error *pool_intern(struct pool *pool, const char *text, size_t len, const char **out);

#endif
