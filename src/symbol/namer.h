/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef UNIPROF_SYMBOL_NAMER_H
#define UNIPROF_SYMBOL_NAMER_H

/*
 * What to call a frame, and where in the source it is. A namer asks, in this
 * order: the images that the user gave, what the recording carries, and else
 * prints the address ("0x1234"). Return addresses are looked up minus one. All
 * strings that it hands out are cleaned (symbol/clean.h), so that formats need
 * to escape their own special characters only; they belong to the namer, and
 * equal strings are the same pointer.
 */

#include "profile/profile.h"
#include "symbol/images/images.h"

struct namer;

/* Both may be NULL and must outlive the namer. */
struct error *namer_new(const struct images *images, const struct profile *profile,
			struct namer **out);
void namer_free(struct namer *namer);

/* How it names; to be said before it is first asked. The default is all false. */
struct namer_options {
	bool no_inline;	  /* functions that were inlined are part of the one around them */
	bool no_demangle; /* names as they are in the file */
	bool no_source;	  /* only names are asked for: no inlined functions, files and lines */
};
void namer_set(struct namer *namer, const struct namer_options *options);

/*
 * One function of those that are at an address: compilers put the body of one
 * into another (inline it), so that a frame of the stack can stand for several.
 */
struct location {
	const char *function; /* or "0x..." */
	const char *symbol;   /* what it is called in the file */
	const char *file;     /* of its source, as the compiler was told; NULL: not known */
	uint32_t line;	 /* where in it: of the call, if there is one before it; 0: not known */
	bool inlined;	 /* into the next one; false for the last */
	bool resolved;	 /* `function` is a name */
	uint64_t offset; /* of the frame's address (not minus one) from the start of the last */
};

/*
 * All that are there, innermost first: at least one, of which the last is the
 * function that was really called. Belongs to the namer, for as long as it
 * lives.
 */
struct error *namer_locate(struct namer *namer, uint64_t addr, uint8_t kind,
			   const struct location **out, size_t *n);

/*
 * Finds out about many frames at once, to be asked for later: cheaper by far
 * than one after the other, where places in the source are known. A frame that
 * is in the list twice is work twice.
 */
struct error *namer_prepare(struct namer *namer, const struct frame *frames, size_t n);

/* A sentence if something could not be found out (a damaged file); NULL: all is well. */
const char *namer_trouble(const struct namer *namer);

/* Only the last one of them. */
struct named {
	const char *name;   /* function name or "0x..." */
	const char *symbol; /* what it is called in the file */
	uint64_t offset;    /* of the frame's address (not minus one) from the function's start */
	bool resolved;
};

struct error *namer_name(struct namer *namer, uint64_t addr, uint8_t kind, struct named *out);

/* The same string always gives the same pointer, as in `struct location`. */
struct error *namer_intern(struct namer *namer, const char *text, const char **out);

#endif
