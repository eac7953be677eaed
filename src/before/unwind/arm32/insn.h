/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef UNIPROF_UNWIND_ARM_STATE_H
#define UNIPROF_UNWIND_ARM_STATE_H

/*
 * Where a function of A32 or T32 code has put what its caller needs: what is
 * known by following its instructions from the first one on. The CFA is the
 * stack pointer at the function's entry. All registers are followed alike:
 * which one is the frame pointer, and what a frame looks like, differs between
 * compilers and between A32 and T32.
 */

#include <stdbool.h>
#include <stdint.h>

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

/* What an instruction does to the flow. */
enum arm_flow {
	ARM_ON,	    /* goes on to the next one */
	ARM_BRANCH, /* may go to `target`, or on */
	ARM_JUMP,   /* goes to `target` */
	ARM_END,    /* does neither */
};

#define ARM_ALWAYS 14

struct arm_insn {
	uint32_t code;	   /* T32 of 4 bytes: the first halfword is the upper one */
	uint8_t len;	   /* bytes */
	uint8_t condition; /* ARM_ALWAYS and above: none; for T32, what IT has said */
	uint64_t pc;
};

struct arm_next {
	enum arm_flow flow;
	uint64_t target;
	bool anywhere; /* may go where is not known, and that may be in this function */
	uint8_t it;    /* of an IT instruction: ITSTATE for the next one (A2.5.2), else 0 */
};

extern const struct arm_state arm_state_at_entry;

/*
 * Applies one instruction (Arm Architecture Reference Manual, DDI 0406C,
 * chapters A5 and A6), as executed; what jumps by condition may go on.
 */
void arm_apply(const struct arm_insn *insn, struct arm_state *state, struct arm_next *next);
void thumb_apply(const struct arm_insn *insn, struct arm_state *state, struct arm_next *next);

/* Is this a call? Then true, and *target is where it goes, without the T32 bit; 0: not known. */
bool arm_is_call(uint32_t code, uint64_t pc, uint64_t *target);
bool thumb_is_call(uint32_t code, unsigned len, uint64_t pc, uint64_t *target);

/* Is this the first halfword of a T32 instruction of 4 bytes? */
static inline bool thumb_is_wide(uint16_t half)
{
	return half >= 0xe800;
}

/* What instructions do, for those who decode them. */

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
