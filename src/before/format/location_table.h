/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef UNIPROF_OUTPUT_PLACES_H
#define UNIPROF_OUTPUT_PLACES_H

/*
 * The tables that most formats consist of: the places in the code that a
 * profile's selected stacks are made of, the functions that are there
 * (several, where some were inlined), and the images that the places are in.
 * Numbers are dense and start at 0. Memory grows with the stacks.
 */

#include "output/output.h"

#define PLACE_NONE UINT32_MAX

/* A function, with the source file that it is in. All text is cleaned and belongs to the namer. */
struct place_function {
	const char *name;
	const char *file; /* NULL: not known */
	bool resolved;	  /* the name is no address */
};

/* A function at a place. */
struct place_line {
	uint32_t function;
	uint32_t line; /* of its file; 0: not known */
	uint32_t place;
};

/* What a frame of a stack can be: an address, reached by executing it or by a return. */
struct place {
	uint64_t addr;	  /* of the frame; 0 if it has only a name (profile/import.h) */
	uint64_t code;	  /* of the instruction that was executed, or of a byte of the call */
	uint64_t offset;  /* of addr from the start of the outer function, if that is known */
	uint32_t lines;	  /* its first one, the innermost function */
	uint32_t n_lines; /* at least 1 */
	uint32_t image;	  /* or PLACE_NONE */
};

/* Where code comes from. */
struct place_image {
	const char *path;
	const char *build_id; /* in hex, and nothing else; NULL: none */
	uint64_t start, end;  /* of its code in the guest */
	uint64_t slide;	      /* addresses in the guest less those in the file */
	uint64_t offset;      /* of `start` in the file; 0 if that cannot be read */
};

struct places {
	const struct profile *profile;
	struct place *at;
	struct place_line *lines;
	struct place_function *functions;
	struct place_image *images; /* in the order of the recording */
	uint32_t n, n_lines, n_functions, n_images;
	uint32_t *
		of_node; /* [stacks_count]: place of each stack's innermost frame; PLACE_NONE: not selected */
};

struct error *places_new(const struct output_job *job, struct places **out);
void places_free(struct places *places);

/* The functions of a stack, as numbers of lines; grows as needed, starts as {0}, ends with free(at). */
struct place_chain {
	uint32_t *at;
	size_t n, room;
};

/* Leaf first, inlined functions before those that they are in. */
struct error *places_chain(const struct places *places, uint32_t stack, struct place_chain *chain);

#endif
