/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef UNIPROF_UNWIND_BITS_H
#define UNIPROF_UNWIND_BITS_H

/* Fields of instructions. */

#include <stdint.h>

static inline unsigned field(uint32_t insn, unsigned low, unsigned bits)
{
	return insn >> low & ((1u << bits) - 1);
}

static inline int64_t sign_extend(uint64_t value, unsigned bits)
{
	return (int64_t)(value << (64 - bits)) >> (64 - bits);
}

#endif
