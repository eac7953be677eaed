/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef UNIPROF_UNWIND_ARM64_INSN_H
#define UNIPROF_UNWIND_ARM64_INSN_H

/*
 * State of a function of A64 code at one instruction: where it keeps what its
 * caller needs, found by following its instructions from the first one on. The
 * CFA is the stack pointer at the function's entry.
 */

#include "unwind/bits.h"
#include "unwind/isa.h"

/* DWARF numbers (AADWARF64, 4.1). */
enum { ARM64_FP = 29, ARM64_LR, ARM64_SP };

/* Functions with frames beyond this are not followed, bytes. */
#define ARM64_FRAME_MAX (1 << 20)

/* A number in a register, such as a large frame's size. */
struct arm64_number {
	bool is;
	uint8_t reg;
	uint64_t value;
};

/* Notes what the instruction makes of it; true: it loads one. */
bool arm64_number(uint32_t insn, struct arm64_number *number);

/* to = from + by, of 64 bits */
struct arm64_sum {
	unsigned to, from;
	int64_t by;
};

/* add and sub of a number that is in the instruction, or in a register; false: it is neither. */
bool arm64_sum(uint32_t insn, const struct arm64_number *number, struct arm64_sum *sum);

/* Is the register the target of a move, or of another computation? */
bool arm64_computes(uint32_t insn, unsigned reg);

/* Does it write sp in another way: by a register, or rounded down? */
bool arm64_moves_sp(uint32_t insn);

struct arm64_state {
	int32_t depth;	  /* sp is the CFA - depth */
	int32_t fp_depth; /* x29 is the CFA - fp_depth, if fp_set */
	int32_t lr_at;	  /* the return address is at the CFA - lr_at, if lr_saved; else in x30 */
	int32_t fp_at;	  /* the caller's x29 is at the CFA - fp_at, if fp_saved */
	bool sp_lost;	  /* sp has an unknown distance to the CFA */
	bool fp_set, lr_saved, fp_saved;
	bool fp_lost; /* x29 has some other value, and was not saved */
	bool lr_lost; /* x30 was stored where sp pointed when it was lost */
	struct arm64_number number;
};

/*
 * Applies one instruction at `pc` (Arm Architecture Reference Manual, DDI 0487,
 * chapter C4); false when it cannot be followed.
 */
bool arm64_apply(uint32_t insn, uint64_t pc, struct arm64_state *state, enum path *path,
		 uint64_t *target);

/* Where it goes on; a last call through a register may be a jump by table. */
void arm64_flow(uint32_t insn, uint64_t pc, enum path *path, uint64_t *target);

/* Is this a call? Then true, and *target is where it goes, 0: to a register's value. */
bool arm64_is_call(uint32_t insn, uint64_t pc, uint64_t *target);

/* ... to a fixed address? Then that is *target, though it be 0. */
static inline bool arm64_is_direct(uint32_t call)
{
	return (call & 0xfc000000) == 0x94000000;
}

/* Loads and stores of A64 code at a register and a number (DDI 0487, C4.1.94). */

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

/* As unwind_isa.follow, to the state there; defined in arm64.c. */
enum flow_result arm64_follow(const struct flow_query *query, struct code_reader *reader,
			      void *scratch, unsigned *steps, struct arm64_state *state);

/*
 * A store that moves sp, or sub of a number; the frame of arrays whose length varies is made by sub
 * of a register.
 */
bool arm64_makes_frame(const uint8_t *bytes, size_t n);

/* Does a function begin here? As struct paths has it. */
bool arm64_begins(const uint8_t *bytes, size_t n, bool *called);

/* As unwind_isa.find_return. */
bool arm64_find_return(struct code_reader *reader, uint64_t va, enum frame_kind kind, void *scratch,
		       unsigned *steps, struct rule *out);

#endif
