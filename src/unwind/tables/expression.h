/* SPDX-License-Identifier: BSD-3-Clause */
#pragma once

/*
 * DWARF expressions (DWARF 5, 2.5), with all operations that unwind tables can
 * have (6.4.2) but DW_OP_addr: an address of the file, which nobody slides.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "unwind/tables/unwind_table.h"

/* No expression takes more operations: loops and damaged ones end here. */
#define EXPRESSION_STEPS 256

/*
 * Evaluates `len` bytes of operations; `first`, if not NULL, is on the stack
 * at the beginning. False if an operation is not known, lacks a register or a
 * word of memory, or makes no sense.
 */
bool expression_value(const uint8_t *bytes, size_t len, const struct row_env *env,
		      const uint64_t *first, uint64_t *value);

/* Numbers as DWARF stores them (DWARF 5, 7.6), read from bytes that may be damaged. */

struct dwarf_bytes {
	const uint8_t *at, *end;
};

/* All of these return false if the bytes end too early. Bits beyond the 64th are dropped. */

static inline bool dwarf_uleb(struct dwarf_bytes *in, uint64_t *value)
{
	unsigned shift = 0;

	*value = 0;
	while (in->at < in->end) {
		uint8_t byte = *in->at++;

		if (shift < 64)
			*value |= (uint64_t)(byte & 0x7f) << shift;
		shift += 7;
		if (!(byte & 0x80))
			return true;
	}
	return false;
}

static inline bool dwarf_sleb(struct dwarf_bytes *in, int64_t *value)
{
	const uint8_t *from = in->at;
	unsigned unused;
	uint64_t bits;

	if (!dwarf_uleb(in, &bits))
		return false;
	unused = in->at - from > 9 ? 0 : 64 - 7 * (unsigned)(in->at - from);
	*value = (int64_t)(bits << unused) >> unused;
	return true;
}

/* `size` is 1, 2, 4 or 8 bytes, lowest first. */
static inline bool dwarf_unsigned(struct dwarf_bytes *in, size_t size, uint64_t *value)
{
	*value = 0;
	if ((size_t)(in->end - in->at) < size)
		return false;
	for (size_t i = 0; i < size; i++)
		*value |= (uint64_t)in->at[i] << (8 * i);
	in->at += size;
	return true;
}

static inline bool dwarf_signed(struct dwarf_bytes *in, size_t size, int64_t *value)
{
	unsigned unused = 64 - 8 * (unsigned)size;
	uint64_t bits;

	if (!dwarf_unsigned(in, size, &bits))
		return false;
	*value = (int64_t)(bits << unused) >> unused;
	return true;
}
