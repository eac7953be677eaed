/* SPDX-License-Identifier: BSD-3-Clause */
#include "unwind/x86/x86.h"

#include <stddef.h>

#define DEPTH_MAX (1 << 24)

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

static void push_all(struct x86_state *state, int64_t word)
{
	push(state, &(struct x86_effect){X86_PUSH, .reg = X86_NO_REG, .base = X86_NO_REG},
	     5 * word);
	push(state, &(struct x86_effect){X86_PUSH, .reg = X86_BP, .base = X86_NO_REG}, word);
	push(state, &(struct x86_effect){X86_PUSH, .reg = X86_NO_REG, .base = X86_NO_REG},
	     2 * word);
}

static void pop_all(struct x86_state *state, int64_t word)
{
	pop(state, X86_NO_REG, 2 * word);
	pop(state, X86_BP, word);
	pop(state, X86_NO_REG, 5 * word);
}

/* False where a function begins: nobody takes the frame of who called it. */
static bool set_sp(struct x86_state *state, const struct x86_effect *effect, int64_t word)
{
	if (effect->base == X86_BP && !state->fp_at && !state->saved_at && !state->fp_lost)
		return false;
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
	return true;
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
	push(state, &(struct x86_effect){X86_PUSH, .reg = X86_BP, .base = X86_NO_REG}, word);
	state->fp_at = state->depth == X86_LOST ? 0 : state->depth;
	move_sp(state, size);
}

/*
 * Applies an instruction that is no jump; calls return. False where it makes
 * no sense in a function that has come this far: it belongs to another.
 */
static bool x86_state_apply(struct x86_state *state, const struct x86_effect *effect, unsigned word)
{
	switch (effect->op) {
	case X86_PUSH:
		push(state, effect, word);
		return true;
	case X86_POP:
		pop(state, effect->reg, word);
		return true;
	case X86_PUSH_ALL:
		push_all(state, word);
		return true;
	case X86_POP_ALL:
		pop_all(state, word);
		return true;
	case X86_SET_SP:
		return set_sp(state, effect, word);
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

/* The state on a path. */
struct path_state {
	struct x86_state state; /* its first word is the depth */
	bool called;		/* nothing but padding since a call, which perhaps never returns */
	const struct flow_query *query;
	struct code_reader *reader;
};

_Static_assert(offsetof(struct x86_state, depth) == 0, "the first word, which loops may change");

/* A loop that moves the stack pointer at each turn probes the stack. */
static void turns(void *ctx)
{
	struct x86_state *state = &((struct path_state *)ctx)->state;

	state->depth = state->probe_depth > state->depth ? state->probe_depth : X86_LOST;
}

static bool deeper(const void *ctx, const void *than)
{
	const struct x86_state *state = &((const struct path_state *)ctx)->state;
	const struct x86_state *other = &((const struct path_state *)than)->state;

	return state->depth == X86_LOST ? state->fp_at > other->fp_at : state->depth > other->depth;
}

/* Bytes that a call skips to the code that turns it into a jump, at most. */
#define RETPOLINE 64

/*
 * True for a call of the next few bytes, which store a register in place of its return address:
 * a jump by that register, as in Linux's thunks for indirect calls (a retpoline).
 */
static bool is_retpoline(const struct path_state *path, uint64_t target, uint64_t next)
{
	const uint8_t *bytes;
	size_t n;

	if (path->query->isa->word != 8 || target - next >= RETPOLINE ||
	    (path->query->kind == FRAME_RETURN && path->query->addr == next))
		return false;
	bytes = code_at(path->reader, target, &n);
	/* mov [rsp], r64 */
	return n >= 4 && (bytes[0] & 0xfb) == 0x48 && bytes[1] == 0x89 &&
	       (bytes[2] & 0xc7) == 0x04 && bytes[3] == 0x24;
}

/* Applies what goes on, and tells other ends of the path apart. */
static enum path pass(struct path_state *path, const struct x86_insn *insn,
		      const struct x86_effect *effect, uint64_t next)
{
	const unsigned word = path->query->isa->word;
	struct x86_state *state = &path->state;
	enum path to = x86_path(insn, effect);

	if (effect->op == X86_CALL && is_retpoline(path, (uint64_t)effect->value, next))
		to = PATH_TABLE;
	else if (x86_asks_where_it_is(effect, next, word))
		move_sp(state, word);
	else if (to == PATH_ON && !x86_state_apply(state, effect, word))
		to = PATH_NOT;
	return to == PATH_TABLE && !state->depth && !state->fp_at ? PATH_AWAY : to;
}

static unsigned apply(const uint8_t *bytes, size_t n, uint64_t pc, void *ctx, enum path *to,
		      uint64_t *target)
{
	struct path_state *path = ctx;
	const struct flow_query *query = path->query;
	struct x86_effect effect;
	struct x86_insn insn;

	if (!x86_decode(bytes, n, query->isa->word, &insn))
		return 0;
	effect = x86_effect(&insn, pc, query->isa->word);
	*target = (uint64_t)effect.value;
	if (path->called && !query->end &&
	    x86_begins_function(&insn, &effect, path->state.fp_at, query->isa->word))
		*to = PATH_NOT;
	else if (path->called && x86_is_padding(&insn))
		*to = PATH_LAST; /* the code behind it is jumped to from elsewhere */
	else
		*to = pass(path, &insn, &effect, pc + insn.len);
	path->called = *to == PATH_CALL || *to == PATH_LAST;
	return insn.len;
}

enum flow_result x86_flow(const struct flow_query *query, struct code_reader *reader,
			  struct x86_state *out)
{
	static const struct paths paths = {.unit = 1,
					   .state_size = sizeof(struct path_state),
					   .parts = true,
					   .apply = apply,
					   .turns = turns,
					   .deeper = deeper};
	struct path_state path = {.state = {.origin_reg = X86_NO_REG},
				  .query = query,
				  .reader = reader};
	const enum flow_result flow = paths_follow(&paths, query, reader, &path);

	*out = path.state;
	return flow;
}
