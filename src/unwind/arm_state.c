/* SPDX-License-Identifier: BSD-3-Clause */
#include "unwind/arm32/insn.h"

/* Registers that a call may change (AAPCS32, 6.1.1), but for its results, and lr. */
#define CALL_CHANGES 0x500fu

const struct arm_state arm_state_at_entry = {.based = 1u << ARM_SP};

static bool has(uint16_t mask, unsigned reg)
{
	return mask >> reg & 1;
}

static void add(uint16_t *mask, unsigned reg)
{
	*mask = (uint16_t)(*mask | 1u << reg);
}

static void take_off(uint16_t *mask, unsigned reg)
{
	*mask = (uint16_t)(*mask & ~(1u << reg));
}

void arm_overwrite(struct arm_state *state, unsigned rd)
{
	take_off(&state->based, rd);
	add(&state->lost, rd);
}

void arm_set(struct arm_state *state, unsigned rd, unsigned rn, int64_t offset)
{
	const int64_t base = state->base[rn] + offset;

	if (!has(state->based, rn) || base < -ARM_FRAME_MAX || base > ARM_FRAME_MAX) {
		arm_overwrite(state, rd);
		return;
	}
	add(&state->based, rd);
	add(&state->lost, rd);
	state->base[rd] = (int32_t)base;
}

void arm_called(struct arm_state *state)
{
	for (unsigned reg = 0; reg < ARM_REGISTERS; reg++)
		if (CALL_CHANGES >> reg & 1)
			arm_overwrite(state, reg);
}

/* Only what is still the caller's: later ones are spills of other values. */
static void stored(struct arm_state *state, unsigned reg, int32_t at)
{
	if (!(ARM_KEPT >> reg & 1) || has(state->saved, reg) || has(state->lost, reg))
		return;
	add(&state->saved, reg);
	state->at[reg] = at;
}

static void loaded(struct arm_state *state, unsigned reg, bool known, int32_t at)
{
	arm_overwrite(state, reg);
	if (!has(state->saved, reg) || !known || state->at[reg] != at)
		return;
	take_off(&state->saved, reg);
	take_off(&state->lost, reg);
}

void arm_access(struct arm_state *state, const struct arm_access *access)
{
	const bool known = has(state->based, access->rn);
	int32_t at = state->base[access->rn] + access->offset;

	if (access->moves)
		arm_set(state, access->rn, access->rn, access->moves);
	for (unsigned reg = 0; reg < ARM_REGISTERS; reg++) {
		if (!(access->list >> reg & 1))
			continue;
		if (access->load)
			loaded(state, reg, known, at);
		else if (known)
			stored(state, reg, at);
		at += 4;
	}
}
