/* SPDX-License-Identifier: BSD-3-Clause */
#include "unwind/x86/x86.h"

#include <stdlib.h>
#include <string.h>

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

/* A call of the next instruction, by which 32-bit code reads its own address. */
static void x86_state_push(struct x86_state *state, unsigned word)
{
	move_sp(state, word);
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

#define SEEN_SLOTS (2 * 16384) /* more than X86_FLOW_STEPS, so that a free one is found soon */
#define NEAR	   256
#define FAR	   32
#define GAPS	   256

/* State of a path, with data that only the search needs. */
struct x86_path {
	uint64_t va;
	struct x86_state state;
	bool called; /* nothing but padding since a call, which perhaps never returns */
};

struct flow_scratch {
	uint32_t generation;
	struct {
		uint64_t va;
		uint32_t generation;
		int32_t depth;
	} seen[SEEN_SLOTS];
	struct x86_path near[NEAR];
	struct x86_path far[FAR]; /* out of the function, or reached only if a call returns */
	uint64_t gap[GAPS];	  /* where control stopped: a jump table may lead behind it */
	size_t n_near, n_far, n_gap;
	struct paths_scratch paths; /* for the search of a return */
};

struct search {
	const struct flow_query *query;
	struct code_reader *reader;
	struct flow_scratch *scratch;
	unsigned steps;
	bool cut;  /* some path could not be followed to its end */
	bool away; /* some path leaves for another function, by a register or a word of memory */
	bool found;
	bool table;	      /* an indirect jump that is no tail call: `body` is where it was */
	bool guessing;	      /* `body` does not change any more */
	struct x86_path body; /* the deepest state that was seen at a jump or a stop */
	struct x86_state out;
};

void *flow_scratch_new(void)
{
	return calloc(1, sizeof(struct flow_scratch));
}

struct paths_scratch *x86_paths(void *scratch)
{
	return &((struct flow_scratch *)scratch)->paths;
}

/* Index of `va` in the table of seen addresses, or of a free slot for it; true: it was seen. */
static bool find_seen(const struct flow_scratch *scratch, uint64_t va, size_t *i)
{
	*i = (size_t)(va * 0x9e3779b97f4a7c15ull >> 49);
	for (; scratch->seen[*i].generation == scratch->generation; *i = (*i + 1) % SEEN_SLOTS)
		if (scratch->seen[*i].va == va)
			return true;
	return false;
}

/* False: it was seen before. */
static bool see(struct flow_scratch *scratch, uint64_t va, int32_t depth)
{
	size_t i;

	if (find_seen(scratch, va, &i))
		return false;
	scratch->seen[i].generation = scratch->generation;
	scratch->seen[i].va = va;
	scratch->seen[i].depth = depth;
	return true;
}

/*
 * Control does not go on behind `path`: notes the place, as a jump table may
 * lead there, and the state. That of a jump table is the one of its cases;
 * else the deepest is that of the body.
 */
static void note_stop(struct search *search, const struct x86_path *path, bool indirect)
{
	const struct x86_state *state = &path->state, *body = &search->body.state;
	struct flow_scratch *scratch = search->scratch;
	bool table = indirect && (state->depth || state->fp_at);

	search->away = search->away || indirect;
	if (scratch->n_gap < GAPS)
		scratch->gap[scratch->n_gap++] = path->va;
	if (search->guessing || (search->table && !table))
		return;
	if ((table && !search->table) ||
	    (state->depth == X86_LOST ? state->fp_at > body->fp_at : state->depth > body->depth))
		search->body = *path;
	search->table = search->table || table;
}

/* Remembers to go to `target` when there is nothing else left. */
static void defer(struct search *search, const struct x86_path *path, uint64_t target)
{
	struct flow_scratch *scratch = search->scratch;

	if (scratch->n_far == FAR) {
		search->cut = true;
		return;
	}
	scratch->far[scratch->n_far] = *path;
	scratch->far[scratch->n_far++].va = target;
}

/* Queues `target`, or goes there at once if that leads towards the goal. */
static bool jump(struct search *search, struct x86_path *path, uint64_t target, uint64_t next)
{
	const struct flow_query *query = search->query;
	struct flow_scratch *scratch = search->scratch;
	uint64_t end = query->end ? query->end : query->start + (1u << 16);
	struct x86_path other = *path;
	size_t i;

	other.va = target;
	if (target < query->start || target >= end) {
		defer(search, path, target);
		return false;
	}
	if (find_seen(scratch, target, &i)) {
		/* A loop that moves the stack pointer at each turn probes the stack. */
		if (scratch->seen[i].depth != path->state.depth && target < next)
			path->state.depth = path->state.probe_depth > path->state.depth
						    ? path->state.probe_depth
						    : X86_LOST;
		return false;
	}
	if (scratch->n_near == NEAR) {
		search->cut = true;
		return false;
	}
	if (target > next && target <= query->addr) {
		path->va = next;
		scratch->near[scratch->n_near++] = *path;
		*path = other;
		return true;
	}
	scratch->near[scratch->n_near++] = other;
	return false;
}

/* Bytes that a call skips to the code that turns it into a jump, at most. */
#define RETPOLINE 64

/*
 * True for a call of the next few bytes, which store a register in place of its return address:
 * a jump by that register, as in Linux's thunks for indirect calls (a retpoline).
 */
static bool is_retpoline(const struct search *search, uint64_t target, uint64_t next)
{
	const uint8_t *bytes;
	size_t n;

	if (search->query->word != 8 || target - next >= RETPOLINE)
		return false;
	bytes = code_at(search->reader, target, &n);
	/* mov [rsp], r64 */
	return n >= 4 && (bytes[0] & 0xfb) == 0x48 && bytes[1] == 0x89 &&
	       (bytes[2] & 0xc7) == 0x04 && bytes[3] == 0x24;
}

/* Goes past one instruction; false where the path ends. */
static bool step(struct search *search, struct x86_path *path, const struct x86_effect *effect,
		 size_t len)
{
	const struct flow_query *query = search->query;
	uint64_t at = path->va, next = at + len;

	path->va = next;
	switch (effect->op) {
	case X86_CALL:
		if (is_retpoline(search, (uint64_t)effect->value, next)) {
			note_stop(search, path, true);
			return false;
		}
		if (query->word == 4 && (uint64_t)effect->value == next)
			x86_state_push(&path->state, query->word);
		break;
	case X86_BRANCH:
		if (jump(search, path, (uint64_t)effect->value, next))
			return true;
		break;
	case X86_JUMP:
		note_stop(search, path, false);
		if (!jump(search, path, (uint64_t)effect->value, next))
			return false;
		search->scratch->n_near--; /* code behind a jump is not reached from it */
		return true;
	case X86_JUMP_INDIRECT:
	case X86_STOP:
		note_stop(search, path, effect->op == X86_JUMP_INDIRECT);
		return false;
	default:
		if (!x86_state_apply(&path->state, effect, query->word))
			return false;
	}
	/* Code behind the end belongs to other functions: the last call never returned. */
	return !(query->end && next >= query->end && at < query->end && at >= query->start);
}

static void follow(struct search *search, struct x86_path path)
{
	const struct flow_query *query = search->query;

	for (;;) {
		struct x86_effect effect;
		struct x86_insn insn;
		const uint8_t *bytes;
		size_t n;

		if (query->kind == FRAME_PC && path.va == query->addr) {
			search->out = path.state;
			search->found = true;
			return;
		}
		if (!search->steps) {
			search->cut = true;
			return;
		}
		search->steps--;
		if (!see(search->scratch, path.va, path.state.depth))
			return;
		bytes = code_at(search->reader, path.va, &n);
		if (!x86_decode(bytes, n, query->word, &insn)) {
			search->cut = true;
			return;
		}
		effect = x86_effect(&insn, path.va, query->word);
		if (query->kind == FRAME_RETURN && path.va + insn.len == query->addr &&
		    x86_is_call(&effect)) {
			search->out = path.state;
			search->found = true;
			return;
		}
		if (path.called && !query->end &&
		    x86_begins_function(&insn, &effect, path.state.fp_at, query->word))
			return;
		if (path.called && x86_is_padding(&insn)) {
			/* The code behind it is jumped to from elsewhere. */
			defer(search, &path, path.va + insn.len);
			return;
		}
		path.called = x86_is_call(&effect);
		if (!step(search, &path, &effect, insn.len))
			return;
	}
}

static void follow_all(struct search *search)
{
	struct flow_scratch *scratch = search->scratch;

	while (!search->found && search->steps && (scratch->n_near || scratch->n_far)) {
		if (scratch->n_near)
			follow(search, scratch->near[--scratch->n_near]);
		else
			follow(search, scratch->far[--scratch->n_far]);
	}
}

/*
 * Jump tables and landing pads are not followed: code behind a jump or a return
 * that was not reached otherwise is taken for a part of the body.
 */
static void follow_gaps(struct search *search)
{
	struct flow_scratch *scratch = search->scratch;
	uint64_t end = search->query->end ? search->query->end : search->query->addr + 1;
	size_t at;

	for (size_t i = 0; i < scratch->n_gap && !search->found && search->steps; i++) {
		uint64_t va = scratch->gap[i];

		if (va < search->query->start || va >= end || find_seen(scratch, va, &at))
			continue;
		search->body.va = va;
		follow(search, search->body);
		follow_all(search);
	}
}

enum flow_result x86_flow(const struct flow_query *query, struct code_reader *reader,
			  struct flow_scratch *scratch, unsigned *steps, struct x86_state *out)
{
	struct x86_path entry = {.va = query->start, .state = x86_state_at_entry};
	struct search search = {.query = query, .reader = reader, .scratch = scratch};
	unsigned allowed = *steps < X86_FLOW_STEPS ? *steps : X86_FLOW_STEPS;
	bool guessed = false;

	search.steps = allowed;
	search.body = entry;
	scratch->generation++;
	scratch->n_near = scratch->n_far = scratch->n_gap = 0;
	follow(&search, entry);
	follow_all(&search);
	if (!search.found && (query->end || search.table)) {
		guessed = search.guessing = true;
		follow_gaps(&search);
	}
	*steps -= allowed - search.steps;
	if (!search.found)
		return search.cut || !search.steps ? FLOW_UNKNOWN
		       : search.away		   ? FLOW_AWAY
						   : FLOW_NOT;
	*out = search.out;
	return guessed ? FLOW_GUESSED : FLOW_FOUND;
}
