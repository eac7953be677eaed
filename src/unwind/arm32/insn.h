/* SPDX-License-Identifier: BSD-3-Clause */
#pragma once

/*
 * State of a function of A32 or T32 code at one instruction: where it keeps
 * what its caller needs, found by following its instructions from the first one
 * on. The CFA is the stack pointer at the function's entry. All registers are
 * followed alike: which one is the frame pointer, and what a frame looks like,
 * differs between compilers and between A32 and T32.
 */

#include "unwind/link.h"

enum { ARM_IP = 12, ARM_SP, ARM_LR, ARM_PC, ARM_REGISTERS };

/* Registers that a function gives back as it found them (AAPCS32, 6.1.1), and lr. */
#define ARM_KEPT 0x4ff0u

struct arm_state {
	uint32_t based; /* bit n: register n is the CFA + base[n] */
	uint32_t saved; /* bit n: the caller's register n is in the word at the CFA + at[n] */
	uint32_t lost;	/* bit n: register n is no longer the caller's */
	int32_t base[ARM_REGISTERS], at[ARM_REGISTERS];
};

/* Beside the address in a pointer to code: its mode; where a walk begins, N, Z, C and V of CPSR from a bit on. */
#define ARM_T32	  1u
#define ARM_FLAGS 32

/* As unwind_isa.follow. */
enum flow_result arm_follow(const struct flow_query *query, struct code_reader *reader,
			    struct rule *out);

#define ARM_ALWAYS 14

struct arm_insn {
	uint32_t code; /* T32 of 4 bytes: the first halfword is the upper one */
	bool thumb;
	uint8_t len;	   /* bytes */
	uint8_t condition; /* ARM_ALWAYS and above: none; in T32, set by IT */
	uint64_t pc;
};

/* A load of all registers, and the base moves. */
#define ARM_OPS (ARM_REGISTERS + 1)

/*
 * The operations of an instruction (Arm Architecture Reference Manual, DDI 0406C,
 * chapters A5 and A6), as executed: LINK_LOAD and LINK_STORE are of words of 4 bytes. ARM_REGISTERS
 * stands for no register. A return is a LINK_JALR by lr, also if pc is loaded off the stack.
 */
unsigned arm_decode(const struct arm_insn *insn, struct link_op op[ARM_OPS]);

/* Where its jump or call goes, without the T32 bit. */
uint64_t arm_target(const struct arm_insn *insn, const struct link_op *op);

/* Sets all but the pc; false: the code ends before. */
bool arm_fetch(const uint8_t *bytes, size_t n, bool thumb, struct arm_insn *insn);
