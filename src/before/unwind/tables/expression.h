/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef UNIPROF_UNWIND_LEB_H
#define UNIPROF_UNWIND_LEB_H

/* Numbers as DWARF stores them (DWARF 5, 7.6), read from bytes that may be damaged. */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

struct dwarf_bytes {
	const uint8_t *at, *end;
};

/* All of these: false if the bytes end too early. Bits beyond the 64th are dropped. */

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
	uint64_t sum = 0;
	unsigned shift = 0;

	while (in->at < in->end) {
		uint8_t byte = *in->at++;

		if (shift < 64)
			sum |= (uint64_t)(byte & 0x7f) << shift;
		shift += 7;
		if (byte & 0x80)
			continue;
		if (byte & 0x40 && shift < 64)
			sum |= ~UINT64_C(0) << shift;
		*value = (int64_t)sum;
		return true;
	}
	return false;
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

#endif
