/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef UNIPROF_SYMBOL_SOURCES_H
#define UNIPROF_SYMBOL_SOURCES_H

/* Whom to ask for places in the source, for each image file; private to src/symbol. */

#include "symbol/images/images.h"
#include "symbol/source/source.h"

struct sources;

struct error *sources_new(struct sources **out);
void sources_free(struct sources *sources);

/*
 * As source_ask, for any number of addresses of a file. Where nothing is known
 * `take` is not called.
 */
struct error *sources_ask(struct sources *sources, const struct image_file *file,
			  const uint64_t *addr, size_t n, source_taker *take, void *ctx);

/* A sentence on the files whose reader died, or NULL. */
const char *sources_trouble(const struct sources *sources);

#endif
