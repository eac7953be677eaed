/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef UNIPROF_UNWIND_ARM32_ARM32_H
#define UNIPROF_UNWIND_ARM32_ARM32_H

/* A32 and T32 code, for the unwinder: following it, and the ways to a caller. */

#include "unwind/arm32/insn.h"
#include "unwind/unwind.h"
#include "unwind/walk.h"

/* Code to follow: one instruction set; functions that change it within themselves are not followed. */
struct arm_query {
	struct flow_query flow; /* from its entry, to before the instruction at its address */
	bool thumb;
	bool by_flags;	/* the condition there depends on flags; else it holds */
	uint32_t flags; /* CPSR */
};

enum flow_result arm_follow(void *scratch, const struct code *code, const struct arm_query *query,
			    struct arm_state *state);

/* A word that may be a return address. */
struct arm_return {
	uint64_t addr;	 /* without the T32 bit */
	uint64_t target; /* target of the call before it; 0: not known */
	uint8_t len;	 /* of that call, bytes */
	bool thumb;
	bool readable;
};

/* Does a call stand before this return address? Unreadable code is believed, as a guess. */
bool arm_believe(const struct walk *walk, uint64_t ret, struct arm_return *out);

/* Rule: a frame record; always a guess. */
enum found arm_rule_record(struct walk *walk);

/* Facts about an address of A32 or T32 code: found out once, then cached. */
struct arm_pc_info {
	uint64_t addr, root;
	uint32_t age;
	uint8_t kind;  /* enum frame_kind */
	uint8_t flags; /* of FRAME_PC: those that conditions are made of */
	bool thumb, filled;
	bool has_start; /* symbols know the function, that starts at */
	uint64_t start; /* this address; else it is where the row starts, or 0 */
	uint8_t known;	/* enum flow_result, of following from there; without symbols that may */
	struct arm_state state; /* be another function, before the one that stands here */
	struct table_entry table;
};

#define ARM_INFO_BITS 12 /* log 2 of the addresses that are kept */

/* What unwind_isa.scratch_new makes. */
struct arm_scratch {
	struct paths_scratch paths;
	struct arm_pc_info info[1u << ARM_INFO_BITS];
};

/* Never NULL; valid until the next call. The walk must have an unwinder. */
const struct arm_pc_info *arm_pc_info_at(const struct walk *walk);

/* Code that is followed: from `entry` on, as far as it lies in [start, end). */
struct arm_range {
	uint64_t entry, start, end;
};

/* ... to where the walk stands. */
enum flow_result arm_follow_to_pc(const struct walk *walk, const struct arm_range *range,
				  struct arm_state *state);

/* Rule: following the function's code; may be a guess. */
enum found arm_rule_code(struct walk *walk, const struct arm_pc_info *info, uint8_t *trust);

/*
 * Rule: proof by the call, where no symbols tell the function. Following the
 * code from the call's target to here finds this very call's return address.
 */
enum found arm_rule_target(struct walk *walk, const struct arm_pc_info *info, uint8_t *trust);

/* Rule: the row of the image's table, if its kind serves there. */
enum found arm_rule_table(struct walk *walk, const struct arm_pc_info *info, uint8_t *trust);

/* unwind_isa.try_return */
bool arm_try_return(struct walk *walk, uint64_t slot, uint64_t word);

#endif
