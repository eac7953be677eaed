/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef UNIPROF_UNWIND_ARM64_INSN_H
#define UNIPROF_UNWIND_ARM64_INSN_H

/* Loads, stores and calls of A64 code (Arm Architecture Reference Manual, DDI 0487, chapter C4). */

#include "unwind/link.h"

/* One or two registers, side by side at a register and `offset`, which is added to that before or after. */
struct arm64_access {
	bool load;
	bool whole; /* x registers: all 64 bits */
	bool writes_back, post;
	int64_t offset;
	unsigned n; /* general registers in reg; 0 if they are vector registers */
	unsigned base, reg[2];
};

/* False if the instruction is none of these (C4.1.94). */
bool arm64_access(uint32_t insn, struct arm64_access *access);

/* Is this a call? Then true, and *target is where it goes, 0: to a register's value. */
bool arm64_is_call(uint32_t insn, uint64_t pc, uint64_t *target);

#endif
