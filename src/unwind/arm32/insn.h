/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef UNIPROF_UNWIND_ARM32_INSN_H
#define UNIPROF_UNWIND_ARM32_INSN_H

/*
 * State of a function of A32 or T32 code at one instruction: where it keeps
 * what its caller needs, found by following its instructions from the first one
 * on. The CFA is the stack pointer at the function's entry. All registers are
 * followed alike: which one is the frame pointer, and what a frame looks like,
 * differs between compilers and between A32 and T32.
 */

#include "unwind/isa.h"

enum { ARM_IP = 12, ARM_SP, ARM_LR, ARM_PC, ARM_REGISTERS };

/* Functions with frames beyond this are not followed, bytes. */
#define ARM_FRAME_MAX (1 << 20)

/* Registers that a function gives back as it found them (AAPCS32, 6.1.1), and lr. */
#define ARM_KEPT 0x4ff0u

struct arm_state {
	uint16_t based; /* bit n: register n is the CFA + base[n] */
	uint16_t saved; /* bit n: the caller's register n is in the word at the CFA + at[n] */
	uint16_t lost;	/* bit n: register n is no longer the caller's */
	int32_t base[ARM_REGISTERS], at[ARM_REGISTERS];
};

/* Beside the address in a pointer to code: its mode; where a walk begins, N, Z, C and V of CPSR from a bit on. */
#define ARM_T32	  1u
#define ARM_FLAGS 32

/* As unwind_isa.follow. */
enum flow_result arm_follow(const struct flow_query *query, struct code_reader *reader,
			    void *scratch, unsigned *steps, struct rule *out);

#define ARM_ALWAYS 14

struct arm_insn {
	uint32_t code;	   /* T32 of 4 bytes: the first halfword is the upper one */
	uint8_t len;	   /* bytes */
	uint8_t condition; /* ARM_ALWAYS and above: none; in T32, set by IT */
	uint64_t pc;
};

struct arm_next {
	enum path path;
	uint64_t target;
	uint8_t it; /* of an IT instruction: ITSTATE for the next one (A2.5.2), else 0 */
};

/* The path behind an instruction that goes elsewhere; table: that may be in this function. */
static inline enum path arm_leaves(const struct arm_insn *insn, bool table)
{
	if (insn->condition < ARM_ALWAYS)
		return table ? PATH_BRANCH_TABLE : PATH_ON;
	return table ? PATH_TABLE : PATH_END;
}

/*
 * Applies one instruction (Arm Architecture Reference Manual, DDI 0406C,
 * chapters A5 and A6), as executed; conditional jumps may go on.
 */
void arm_apply(const struct arm_insn *insn, struct arm_state *state, struct arm_next *next);
void thumb_apply(const struct arm_insn *insn, struct arm_state *state, struct arm_next *next);

/* True if this is a call; *target is its target, without the T32 bit; 0: not known. */
bool arm_is_call(uint32_t code, uint64_t pc, uint64_t *target);
bool thumb_is_call(uint32_t code, unsigned len, uint64_t pc, uint64_t *target);

/* Is this the first halfword of a T32 instruction of 4 bytes? */
static inline bool thumb_is_wide(uint16_t half)
{
	return half >= 0xe800;
}

/* Effects of instructions, applied by the decoders. */

/* Registers of `list` from register `first` on, in words from base + offset up; rn moves by `moves`. */
struct arm_access {
	uint8_t rn;
	bool load;
	uint16_t list;
	int32_t offset, moves;
};
void arm_access(struct arm_state *state, const struct arm_access *access);

/* rd = rn + offset; rd = something else; a call has returned. */
void arm_set(struct arm_state *state, unsigned rd, unsigned rn, int64_t offset);
void arm_overwrite(struct arm_state *state, unsigned rd);
void arm_called(struct arm_state *state);

#endif
