/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef UNIPROF_SYMBOL_NAMER_RESOLVE_H
#define UNIPROF_SYMBOL_NAMER_RESOLVE_H

/*
 * From addresses to locations, without any memory of what was asked before;
 * private to namer.c.
 */

#include "symbol/namer.h"
#include "symbol/shown.h"
#include "symbol/sources.h"

/* What was handed out stays where it is. */
struct chunk;

struct resolver {
	const struct images *images;   /* NULL: none */
	const struct profile *profile; /* NULL: none */
	struct namer_options options;
	struct shown *shown;
	struct sources *sources;
	struct chunk *chunks; /* the one that is being filled first */
};

struct error *resolver_init(struct resolver *resolver);
void resolver_free(struct resolver *resolver);

struct resolved {
	uint64_t addr;
	uint8_t kind;
	const struct location *at; /* set by resolve_all; belong to the resolver */
	uint32_t n;
	/* Private: where it was found. */
	const struct image_file *file; /* NULL: in none */
	uint64_t file_addr;
	struct symbol symbol;
};

/* All of them, in any order, which is changed. */
struct error *resolve_all(struct resolver *resolver, struct resolved *list, size_t n);

#endif
