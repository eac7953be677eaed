/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef UNIPROF_SYMBOL_NAMER_H
#define UNIPROF_SYMBOL_NAMER_H

/*
 * What to call a frame. A namer asks, in this order: a symbol table that the
 * user gave, the names that the recording carries, and else prints the
 * address ("0x1234"). Return addresses are looked up minus one. All strings
 * that it hands out are cleaned (symbol/clean.h), so that formats need to
 * escape their own special characters only.
 */

#include "profile/profile.h"
#include "symbol/symbols.h"

struct namer;

/* Both may be NULL and must outlive the namer. */
struct error *namer_new(const struct symbols *symbols, const struct profile *profile,
			struct namer **out);
void namer_free(struct namer *namer);

struct named {
	/*
	 * Function name or "0x..."; belongs to the namer. Equal names are the
	 * same pointer.
	 */
	const char *name;
	uint64_t offset; /* of the frame's address (not minus one) from the function's start */
	bool resolved;
};

struct error *namer_name(struct namer *namer, uint64_t addr, uint8_t kind, struct named *out);

/* The same string always gives the same pointer, as in `struct named`. */
struct error *namer_intern(struct namer *namer, const char *text, const char **out);

#endif
