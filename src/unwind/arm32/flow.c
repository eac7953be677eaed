/* SPDX-License-Identifier: BSD-3-Clause */
#include <string.h>

#include "unwind/arm32/insn.h"

/* Registers that a call may change (AAPCS32, 6.1.1), but for its results, and lr. */
#define CALL_CHANGES 0x500fu
/* Registers beside the stack pointer that tell where it was, behind a call: r4 to r11. */
#define ARM_OTHERS 0xff0u

static void overwrite(struct arm_state *state, unsigned rd)
{
	if (rd == ARM_REGISTERS)
		return;
	state->based &= ~(1u << rd);
	state->lost |= 1u << rd;
}

/* rd = rn + offset */
static void set(struct arm_state *state, unsigned rd, unsigned rn, int64_t offset)
{
	const int64_t base = state->base[rn] + offset;
	const bool known = state->based >> rn & 1;

	if (rd == rn && !offset)
		return;
	overwrite(state, rd);
	if (!known || base < -FRAME_MAX || base > FRAME_MAX)
		return;
	state->based |= 1u << rd;
	state->base[rd] = (int32_t)base;
}

static void called(struct arm_state *state)
{
	for (unsigned reg = 0; reg < ARM_REGISTERS; reg++)
		if (CALL_CHANGES >> reg & 1)
			overwrite(state, reg);
}

/* Notes only stores of the caller's value: later ones are spills of other values. */
static void store(struct arm_state *state, const struct link_op *op)
{
	const unsigned reg = op->rs2;

	if (!(state->based >> op->rs1 & 1) || !(ARM_KEPT >> reg & 1) || state->saved >> reg & 1 ||
	    state->lost >> reg & 1)
		return;
	state->saved |= 1u << reg;
	state->at[reg] = state->base[op->rs1] + (int32_t)op->imm;
}

static void load(struct arm_state *state, const struct link_op *op)
{
	const unsigned reg = op->rd;
	const bool restores = state->based >> op->rs1 & 1 && state->saved >> reg & 1 &&
			      state->at[reg] == state->base[op->rs1] + (int32_t)op->imm;

	overwrite(state, reg);
	if (!restores)
		return;
	state->saved &= ~(1u << reg);
	state->lost &= ~(1u << reg);
}

/* Goes elsewhere, or calls; a conditional jump may go on. False: it does none of these. */
static bool jump(const struct arm_insn *insn, const struct link_op *op, struct arm_state *state,
		 enum path *path)
{
	const bool conditional = insn->condition < ARM_ALWAYS;
	const bool table = op->op == LINK_JALR && op->rs1 != ARM_LR;

	if (op->op == LINK_BRANCH) {
		*path = PATH_BRANCH;
	} else if (op->op == LINK_STOP) {
		*path = PATH_TRAP;
	} else if (op->op != LINK_JUMP && op->op != LINK_JALR) {
		return false;
	} else if (op->rd == ARM_LR) {
		*path = PATH_CALL;
		called(state);
	} else if (op->op == LINK_JUMP) {
		*path = conditional ? PATH_BRANCH : PATH_JUMP;
	} else if (conditional) {
		*path = table ? PATH_BRANCH_TABLE : PATH_ON;
	} else {
		*path = table ? PATH_TABLE : PATH_END;
	}
	return true;
}

/* Applies one instruction, as executed. */
static void execute(const struct arm_insn *insn, struct arm_state *state, enum path *path,
		    uint64_t *target)
{
	struct link_op op[ARM_OPS];
	const unsigned n = arm_decode(insn, op);

	*target = arm_target(insn, op);
	if (jump(insn, op, state, path))
		return;
	for (unsigned i = 0; i < n; i++) {
		if (op[i].op == LINK_LOAD)
			load(state, &op[i]);
		else if (op[i].op == LINK_STORE)
			store(state, &op[i]);
		else if (op[i].op == LINK_ADDI)
			set(state, op[i].rd, op[i].rs1, op[i].imm);
		else
			overwrite(state, op[i].rd);
	}
}

/*
 * The state on a path. A run of instructions with the same condition has two
 * states: executed, and skipped. A run that changes the stack at all ends the
 * function early: code behind it is in the state without it.
 */
struct path_state {
	struct arm_state state, executed;
	uint8_t condition; /* of the run; ARM_ALWAYS: there is none */
	uint8_t it;	   /* ITSTATE for the next instruction (A2.5.2) */
	bool thumb;
};

/* DDI 0406C, A8.3. */
static bool holds(unsigned condition, uint32_t flags)
{
	const bool n = flags >> 31, z = flags >> 30 & 1, c = flags >> 29 & 1, v = flags >> 28 & 1;
	const bool base[] = {z, c, n, v, c && !z, n == v, n == v && !z, true};

	return base[condition >> 1 & 7] != (condition & 1);
}

/* The condition that IT gives to T32 code; *it becomes the next instruction's. */
static void take_condition(struct arm_insn *insn, uint8_t *it)
{
	if (!(*it & 15))
		return;
	insn->condition = *it >> 4;
	*it = *it & 7 ? (uint8_t)((*it & 0xe0) | (*it << 1 & 0x1f)) : 0;
}

static unsigned apply(const uint8_t *bytes, size_t n, uint64_t pc, void *ctx, enum path *path,
		      uint64_t *target)
{
	struct path_state *state = ctx;
	struct arm_state *applied = &state->state;
	struct arm_insn insn = {.pc = pc};

	if (!arm_fetch(bytes, n, state->thumb, &insn))
		return 0;
	take_condition(&insn, &state->it);
	if (insn.condition < ARM_ALWAYS) {
		if (state->condition != insn.condition)
			state->executed = state->state;
		applied = &state->executed;
	}
	state->condition = insn.condition < ARM_ALWAYS ? insn.condition : ARM_ALWAYS;
	execute(&insn, applied, path, target);
	/* If-then (DDI 0406C, A8.8.55): ITSTATE for the next instruction. */
	if (insn.len == 2 && (insn.code & 0xff00) == 0xbf00 && insn.code & 15)
		state->it = (uint8_t)insn.code;
	return insn.len;
}

/* What jumps was executed, and ends its run. */
static void taken(void *ctx)
{
	struct path_state *state = ctx;

	if (state->condition < ARM_ALWAYS)
		state->state = state->executed;
	state->condition = ARM_ALWAYS;
	state->it = 0;
}

/* push of lr; udf */
static bool begins(const void *ctx, const uint8_t *bytes, size_t n, bool *called)
{
	const struct path_state *state = ctx;
	struct arm_insn insn;

	if (n < 2 || !arm_fetch(bytes, n, state->thumb, &insn))
		return true;
	*called = insn.code == (state->thumb ? 0xbf00 : 0xe320f000); /* nop */
	if (insn.len == 2)
		return (insn.code & 0xff00) == 0xb500 || (insn.code & 0xff00) == 0xde00;
	return (insn.code & 0xffff4000) == 0xe92d4000 || insn.code == 0xe52de004;
}

/* Where the caller's register is, in bytes from the CFA. */
static int16_t kept_at(const struct arm_state *state, unsigned reg)
{
	const int32_t at = state->at[reg];

	if (state->saved >> reg & 1)
		return at > ROW_LOST && at <= INT16_MAX ? (int16_t)at : ROW_LOST;
	return state->lost >> reg & 1 ? ROW_LOST : ROW_SAME;
}

static struct rule rule_of(const struct arm_state *state, enum frame_kind kind)
{
	const unsigned others = state->based & (kind == FRAME_PC ? ~(1u << ARM_SP) : ARM_OTHERS);
	const unsigned fp = others ? (unsigned)__builtin_ctz(others) : 0;
	struct rule rule = {
		.cfa_sp = state->based >> ARM_SP & 1 ? -state->base[ARM_SP] : RULE_NOT,
		.cfa_fp = others ? -state->base[fp] : RULE_NOT,
		.fp = (uint8_t)fp,
		.ra_at = state->saved >> ARM_LR & 1  ? state->at[ARM_LR]
			 : state->lost >> ARM_LR & 1 ? RULE_NOT
						     : RULE_SAME,
		.fp_at = RULE_NOT,
		.origin = RULE_NO_REGISTER,
	};

	for (unsigned i = 0; i < ROW_KEPT; i++)
		rule.kept.at[i] = kept_at(state, ROW_KEPT_FIRST + i);
	return rule;
}

enum flow_result arm_follow(const struct flow_query *query, struct code_reader *reader,
			    struct rule *out)
{
	const bool thumb = query->pointer & ARM_T32;
	const uint32_t flags = (uint32_t)(query->pointer >> ARM_FLAGS) << 28;
	const struct paths paths = {.unit = thumb ? 2 : 4,
				    .state_size = sizeof(struct path_state),
				    .apply = apply,
				    .taken = taken,
				    .begins = begins};
	struct path_state at = {.state = {.based = 1u << ARM_SP},
				.condition = ARM_ALWAYS,
				.thumb = thumb};
	const enum flow_result result = paths_follow(&paths, query, reader, &at);
	const bool executed = at.condition < ARM_ALWAYS &&
			      (query->kind == FRAME_RETURN || holds(at.condition, flags));

	if (result == FLOW_FOUND || result == FLOW_GUESSED)
		*out = rule_of(executed ? &at.executed : &at.state, (enum frame_kind)query->kind);
	return result;
}
