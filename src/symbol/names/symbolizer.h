/* SPDX-License-Identifier: BSD-3-Clause */
#pragma once

/*
 * Names frames, and finds their source lines. A symbolizer asks, in this order: the
 * images that the user gave, what the recording carries, and else tells the
 * image, or prints the address ("0x1234"). Return addresses are looked up minus one. All strings
 * that it hands out are cleaned (symbol/names/display_name.h), so that formats need to
 * escape their own special characters only; they belong to the symbolizer, and equal
 * strings are the same pointer.
 */

#include "profile/profile.h"
#include "recording/stacks.h"
#include "symbol/images/images.h"

/*
 * Stand-ins for lines of functions that an interpreter runs: such a function
 * has no code of its own, yet a frame is an address. Each function has a number,
 * and each of its lines an address that no processor has, made of number and
 * line: so stacks are kept, recorded and compared as all others are, and the
 * recording tells their names and lines by its usual records.
 */

/* Addresses from here on; those of imports (import/import.h) are others. */
#define STAND_IN_ADDR UINT64_C(0x5000000000000000)

/* Lines beyond are told as the last one; functions beyond have no number. */
#define STAND_IN_LINES	     (1u << 24)
#define STAND_IN_FUNCTIONS   (1u << 20)
#define STAND_IN_NO_FUNCTION UINT32_MAX

struct stand_ins;

struct error *stand_ins_new(struct stand_ins **out);
void stand_ins_free(struct stand_ins *all);

/* The number of a function of a file, the same for the same texts; STAND_IN_NO_FUNCTION: there are too many. */
struct error *stand_ins_function(struct stand_ins *all, const char *name, const char *file,
				 uint32_t *number);

/* Line 0: not known. */
static inline uint64_t stand_in_address(uint32_t number, uint32_t line)
{
	return STAND_IN_ADDR | (uint64_t)number * STAND_IN_LINES |
	       (line < STAND_IN_LINES ? line : STAND_IN_LINES - 1);
}

static inline bool is_stand_in(uint64_t addr)
{
	return addr >> 56 == STAND_IN_ADDR >> 56;
}

/* The texts are valid until stand_ins_free. */
struct stand_in {
	const char *name, *file;
	uint32_t line;	/* 0: not known */
	uint64_t start; /* the function's own address */
};

/* False: no function has this address. NULL for `all`: none has any. */
bool stand_ins_find(const struct stand_ins *all, uint64_t addr, struct stand_in *out);

struct symbolizer;

/* Both may be NULL and must outlive the symbolizer. */
struct error *symbolizer_new(const struct images *images, const struct profile *profile,
			     struct symbolizer **out);
void symbolizer_free(struct symbolizer *symbolizer);

/* Names of code that lies in no function that is known. */
enum unnamed_code {
	UNNAMED_ADDRESS, /* "0x7f855c49ec58" */
	UNNAMED_OFFSET, /* "libcrypto.so.3+0x29e56f", by the file's addresses: the same in each run */
	UNNAMED_IMAGE, /* "[libcrypto.so.3]", one for all of the file */
};

/* Options of a symbolizer, set before it is first asked. The default is all false. */
struct symbolizer_options {
	bool no_inline;	  /* functions that were inlined are part of the one around them */
	bool no_demangle; /* names as they are in the file */
	bool no_source;	  /* only names are asked for: no inlined functions, files and lines */
	/* Name of code without a symbol: its image, its offset there, or its address. */
	enum unnamed_code unnamed;
	/* Functions of an interpreter that runs now, whose names no recording carries yet; NULL: none. */
	const struct stand_ins *stand_ins;
};
void symbolizer_set(struct symbolizer *symbolizer, const struct symbolizer_options *options);

/*
 * One function of those that are at an address: compilers put the body of one
 * into another (inline it), so that a frame of the stack can stand for several.
 */
struct location {
	const char *function; /* or as enum unnamed_code has it */
	const char *symbol;   /* its name in the file */
	const char *file;     /* of its source, as the compiler was told; NULL: not known */
	uint32_t line;	/* where in it: of the call, if there is one before it; 0: not known */
	bool inlined;	/* into the next one; false for the last */
	bool resolved;	/* `function` is a name */
	bool in_image;	/* if not: it is code of an image that is known */
	uint64_t start; /* of the last, in the guest; only if `resolved` */
};

/* Of a frame's address (not minus one) from the start of the last function there. */
static inline uint64_t location_offset(const struct location *last, uint64_t addr)
{
	return last->resolved ? addr - last->start : 0;
}

/*
 * Locates an address: all functions there, innermost first, at least one; the
 * last is the one that was really called. Belongs to the symbolizer, for as long as
 * it lives.
 */
struct error *symbolizer_locate(struct symbolizer *symbolizer, uint64_t addr, uint8_t kind,
				const struct location **out, size_t *n);

/*
 * Finds out about many frames at once, to be asked for later: cheaper by far
 * than one after the other, where places in the source are known. A frame that
 * is in the list twice is work twice.
 */
struct error *symbolizer_prepare(struct symbolizer *symbolizer, const struct frame *frames,
				 size_t n);

/*
 * The same for all frames of a store, which must outlive the symbolizer; no work if that was
 * done. symbolizer_locate_node then takes no search.
 */
struct error *symbolizer_prepare_stacks(struct symbolizer *symbolizer, const struct stacks *stacks);

/* The frames of the store that was prepared; valid until another is. */
const struct frame_numbers *symbolizer_frames(const struct symbolizer *symbolizer);

/* Of one of these frames: those with the same functions, lines and starts have the same number, from 1 on. */
uint32_t symbolizer_answer(const struct symbolizer *symbolizer, uint32_t frame);

/* Asks for the memory that symbolizer_answer reads. */
void symbolizer_answer_ahead(const struct symbolizer *symbolizer, uint32_t frame);

/* As symbolizer_locate, for the frame of a node of any store. */
struct error *symbolizer_locate_node(struct symbolizer *symbolizer, const struct stacks *stacks,
				     uint32_t id, const struct location **out, size_t *n);

/* A sentence if something could not be found out (a damaged file); NULL: all is well. */
const char *symbolizer_trouble(const struct symbolizer *symbolizer);

/* The last function at an address: the one that was really called. */
struct named {
	const char *name;   /* function name, or as enum unnamed_code has it */
	const char *symbol; /* its name in the file */
	uint64_t offset;    /* of the frame's address (not minus one) from the function's start */
	bool resolved, in_image; /* as in struct location */
};

struct error *symbolizer_name(struct symbolizer *symbolizer, uint64_t addr, uint8_t kind,
			      struct named *out);

/* ... for the frame of a node of any store. */
struct error *symbolizer_name_node(struct symbolizer *symbolizer, const struct stacks *stacks,
				   uint32_t id, struct named *out);

/* Equal strings give the same pointer, as in `struct location`. */
struct error *symbolizer_intern(struct symbolizer *symbolizer, const char *text, const char **out);
