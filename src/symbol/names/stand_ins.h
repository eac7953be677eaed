/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef UNIPROF_SYMBOL_NAMES_STAND_INS_H
#define UNIPROF_SYMBOL_NAMES_STAND_INS_H

/*
 * Stand-ins for lines of functions that an interpreter runs: such a function
 * has no code of its own, yet a frame is an address. Each function has a number,
 * and each of its lines an address that no processor has, made of number and
 * line: so stacks are kept, recorded and compared as all others are, and the
 * recording tells their names and lines by its usual records.
 */

#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"

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

#endif
