/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef UNIPROF_UNWIND_ARM64_ACCESS_H
#define UNIPROF_UNWIND_ARM64_ACCESS_H

/* Loads and stores of A64 code at a register and a number (DDI 0487, C4.1.94). */

#include <stdbool.h>
#include <stdint.h>

static inline unsigned arm64_field(uint32_t insn, unsigned low, unsigned bits)
{
	return insn >> low & ((1u << bits) - 1);
}

static inline int64_t arm64_sign_extend(uint64_t value, unsigned bits)
{
	const unsigned shift = 64 - bits;

	return (int64_t)(value << shift) >> shift;
}

/* One or two registers, side by side at a register and `offset`, which is added to that before or after. */
struct arm64_access {
	bool load;
	bool whole; /* x registers: all 64 bits */
	bool writes_back, post;
	int64_t offset;
	unsigned n; /* general registers in reg; 0 if they are vector registers */
	unsigned base, reg[2];
};

/* False if the instruction is none of these. */
bool arm64_access(uint32_t insn, struct arm64_access *access);

#endif
