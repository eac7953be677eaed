/* SPDX-License-Identifier: BSD-3-Clause */
#pragma once

/* Private to the symbolizer (symbol/names/symbolizer.h), which remembers what is found here. */

#include "symbol/names/display_name.h"
#include "symbol/names/symbolizer.h"
#include "symbol/source/source.h"

/* Memory of answers, which never moves. */
struct location_chunk;

/* All functions at an address, innermost first. Those of one function and line are one answer. */
struct answer {
	const struct location *at;
	uint32_t n;
};

struct answers {
	struct answer *at; /* by number; 0: none. Locations stay as long as the resolver */
	uint32_t n;
	size_t room;
	uint32_t *slots; /* numbers by their hash; open addressing, half full at most */
	uint32_t n_slots;
};

/* Answers of functions of which no line is known; a power of two. */
#define NAMED_LATELY 1024

struct named_lately {
	const char *name; /* of a symbol; NULL: none */
	uint64_t start;
	uint32_t answer;
};

/* Resolves addresses to locations, without a cache. */
struct location_resolver {
	const struct images *images;   /* NULL: none */
	const struct profile *profile; /* NULL: none */
	struct symbolizer_options options;
	struct display_names *names;
	struct sources *sources;
	struct location_chunk *chunks; /* the one that is being filled first */
	struct answers answers;
	struct named_lately lately[NAMED_LATELY];
};

struct resolved {
	uint64_t addr;
	uint8_t kind;
	uint32_t index;	 /* the caller's */
	uint32_t answer; /* set by resolve_all; 0: none yet */
	/* Private: where it was found. */
	const struct image_file *file; /* NULL: in none */
	uint64_t file_addr;
	struct symbol symbol;
};

/* resolver_free is due, also after an error. */
struct error *resolver_init(struct location_resolver *resolver, const struct images *images,
			    const struct profile *profile);
void resolver_free(struct location_resolver *resolver);

/* Sets `answer` of all of the list, whose order is changed. */
struct error *resolve_all(struct location_resolver *r, struct resolved *list, size_t n);
