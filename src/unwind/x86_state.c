/* SPDX-License-Identifier: BSD-3-Clause */
#include "unwind/x86/flow.h"

#define DEPTH_MAX (1 << 24)

const struct x86_state x86_state_at_entry = {.origin_reg = X86_NO_REG};

static void move_sp(struct x86_state *state, int64_t down)
{
	if (state->depth == X86_LOST)
		return;
	if (down > DEPTH_MAX || down < -DEPTH_MAX || state->depth + down > DEPTH_MAX ||
	    state->depth + down < -DEPTH_MAX)
		state->depth = X86_LOST;
	else
		state->depth += (int32_t)down;
}

static void push(struct x86_state *state, const struct x86_effect *effect, int64_t word)
{
	if (state->depth == X86_LOST) {
		/* After a realignment the return address is pushed once more, above the new frame. */
		if (state->origin_reg != X86_NO_REG && effect->base == state->origin_reg &&
		    effect->value == -word)
			*state =
				(struct x86_state){.copied = true, .origin_reg = state->origin_reg};
		return;
	}
	move_sp(state, word);
	if (state->copied && !state->origin_at && effect->reg == state->origin_reg)
		state->origin_at = state->depth;
	if (effect->reg == X86_BP && !state->saved_at && !state->fp_lost)
		state->saved_at = state->depth;
}

static void pop(struct x86_state *state, uint8_t reg, int64_t word)
{
	if (reg == X86_BP) {
		if (state->saved_at &&
		    (state->depth == state->saved_at || state->depth == X86_LOST))
			state->saved_at = 0;
		else if (!state->saved_at)
			state->fp_lost = true;
		state->fp_at = 0;
	}
	move_sp(state, -word);
	if (state->depth != X86_LOST && state->depth < 0)
		state->entry = true;
}

static void set_sp(struct x86_state *state, const struct x86_effect *effect, int64_t word)
{
	if (effect->base == X86_SP) {
		move_sp(state, -effect->value);
	} else if (effect->base == X86_BP && state->fp_at) {
		state->depth = state->fp_at;
		move_sp(state, -effect->value);
	} else if (effect->base == state->origin_reg && effect->base != X86_NO_REG) {
		state->depth = 0;
		state->copied = false;
		move_sp(state, -effect->value - word);
	} else {
		state->depth = X86_LOST;
		state->entry = !state->fp_at;
	}
}

/* False where a function begins: nobody sets up a frame within a frame. */
static bool copy_sp(struct x86_state *state, const struct x86_effect *effect, int64_t word)
{
	int64_t at = (int64_t)state->depth - effect->value;

	if (state->depth == X86_LOST)
		at = 0;
	if (effect->reg == X86_BP) {
		if (state->fp_at)
			return false;
		state->fp_at = at > 0 && at < DEPTH_MAX && state->saved_at ? (int32_t)at : 0;
		if (!state->saved_at)
			state->fp_lost = true;
	} else if (at == -word && state->origin_reg == X86_NO_REG && !state->copied) {
		state->origin_reg = effect->reg;
	} else if (effect->value < 0 && at > 0 && at < DEPTH_MAX) {
		state->probe_depth = (int32_t)at;
	}
	return true;
}

static void lose(struct x86_state *state, const struct x86_effect *effect)
{
	if (effect->reg == X86_SP) {
		state->depth = X86_LOST;
		state->entry = state->entry || (effect->value && !state->fp_at);
		return;
	}
	state->fp_at = 0;
	if (!state->saved_at)
		state->fp_lost = state->entry = true;
}

/* Undoes a frame; false if there is none to undo. */
static bool leave(struct x86_state *state, int64_t word)
{
	if (!state->fp_at)
		return false;
	state->depth = state->fp_at;
	if (state->saved_at == state->fp_at)
		state->saved_at = 0;
	state->fp_at = 0;
	move_sp(state, -word);
	return true;
}

static void enter(struct x86_state *state, int64_t size, int64_t word)
{
	static const struct x86_effect push_bp = {.op = X86_PUSH,
						  .reg = X86_BP,
						  .base = X86_NO_REG};

	push(state, &push_bp, word);
	state->fp_at = state->depth == X86_LOST ? 0 : state->depth;
	move_sp(state, size);
}

void x86_state_push(struct x86_state *state, unsigned word)
{
	move_sp(state, word);
}

bool x86_state_apply(struct x86_state *state, const struct x86_effect *effect, unsigned word)
{
	switch (effect->op) {
	case X86_PUSH:
		push(state, effect, word);
		return true;
	case X86_POP:
		pop(state, effect->reg, word);
		return true;
	case X86_SET_SP:
		set_sp(state, effect, word);
		return true;
	case X86_COPY_SP:
		return copy_sp(state, effect, word);
	case X86_LOSE:
		lose(state, effect);
		return true;
	case X86_ENTER:
		enter(state, effect->value, word);
		return true;
	case X86_LEAVE:
		return leave(state, word);
	default:
		return true;
	}
}
