/* SPDX-License-Identifier: BSD-3-Clause */
#include "unwind/x86_flow.h"

#include <stdlib.h>
#include <string.h>

#define SEEN_SLOTS (2 * 16384) /* more than X86_FLOW_STEPS, so that a free one is found soon */
#define NEAR	   256
#define FAR	   32
#define GAPS	   256

/* A state on its way, with what only the search itself needs. */
struct path {
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
	struct path near[NEAR];
	struct path far[FAR]; /* out of the function, or reached only if a call returns */
	uint64_t gap[GAPS];   /* where control stopped: a jump table may lead behind it */
	size_t n_near, n_far, n_gap;
};

struct search {
	const struct flow_query *query;
	struct code_reader *reader;
	struct flow_scratch *scratch;
	unsigned steps;
	bool cut; /* some path could not be followed to its end */
	bool found;
	bool table;	  /* an indirect jump that is no tail call: `body` is where it was */
	bool guessing;	  /* `body` does not change any more */
	struct path body; /* the deepest state that was seen at a jump or a stop */
	struct x86_state out;
};

struct flow_scratch *flow_scratch_new(void)
{
	return calloc(1, sizeof(struct flow_scratch));
}

void flow_scratch_free(struct flow_scratch *scratch)
{
	free(scratch);
}

const uint8_t *code_at(struct code_reader *reader, uint64_t va, size_t *n)
{
	uint64_t offset = va - reader->va;

	if (offset >= reader->n ||
	    (reader->n == sizeof(reader->bytes) && offset + X86_INSN_MAX > sizeof(reader->bytes))) {
		reader->va = va;
		reader->n = reader->code->read
				    ? reader->code->read(reader->code->ctx, va, reader->bytes,
							 sizeof(reader->bytes))
				    : 0;
		offset = 0;
	}
	*n = reader->n - offset;
	return reader->bytes + offset;
}

/* The slot of `va` among those seen; *known tells whether it was seen before. */
static int32_t *seen(struct flow_scratch *scratch, uint64_t va, bool *known)
{
	size_t i = (size_t)(va * 0x9e3779b97f4a7c15ull >> 49);

	for (;; i = (i + 1) % SEEN_SLOTS) {
		if (scratch->seen[i].generation != scratch->generation) {
			scratch->seen[i].generation = scratch->generation;
			scratch->seen[i].va = va;
			*known = false;
			return &scratch->seen[i].depth;
		}
		if (scratch->seen[i].va == va) {
			*known = true;
			return &scratch->seen[i].depth;
		}
	}
}

static bool was_seen(const struct flow_scratch *scratch, uint64_t va, int32_t *depth)
{
	size_t i = (size_t)(va * 0x9e3779b97f4a7c15ull >> 49);

	for (; scratch->seen[i].generation == scratch->generation; i = (i + 1) % SEEN_SLOTS) {
		if (scratch->seen[i].va == va) {
			*depth = scratch->seen[i].depth;
			return true;
		}
	}
	return false;
}

/*
 * Control does not go on behind `path`: notes the place, as a jump table may
 * lead there, and the state. That of a jump table is the one of its cases;
 * else the deepest is that of the body.
 */
static void note_stop(struct search *search, const struct path *path, bool indirect)
{
	const struct x86_state *state = &path->state, *body = &search->body.state;
	struct flow_scratch *scratch = search->scratch;
	bool table = indirect && (state->depth || state->fp_at);

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
static void defer(struct search *search, const struct path *path, uint64_t target)
{
	struct flow_scratch *scratch = search->scratch;

	if (scratch->n_far == FAR) {
		search->cut = true;
		return;
	}
	scratch->far[scratch->n_far] = *path;
	scratch->far[scratch->n_far++].va = target;
}

/* Remembers to go to `target`, at once if that leads towards the goal. */
static bool jump(struct search *search, struct path *path, uint64_t target, uint64_t next)
{
	const struct flow_query *query = search->query;
	struct flow_scratch *scratch = search->scratch;
	uint64_t end = query->end ? query->end : query->start + (1u << 16);
	struct path other = *path;
	int32_t depth;

	other.va = target;
	if (target < query->start || target >= end) {
		defer(search, path, target);
		return false;
	}
	if (was_seen(scratch, target, &depth)) {
		/* A loop that moves the stack pointer at each turn probes the stack. */
		if (depth != path->state.depth && target < next)
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

/* Goes past one instruction; false where the path ends. */
static bool step(struct search *search, struct path *path, const struct x86_effect *effect,
		 size_t len)
{
	const struct flow_query *query = search->query;
	uint64_t at = path->va, next = at + len;

	path->va = next;
	switch (effect->op) {
	case X86_CALL:
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
		search->scratch->n_near--; /* what follows a jump is not reached from it */
		return true;
	case X86_JUMP_INDIRECT:
	case X86_STOP:
		note_stop(search, path, effect->op == X86_JUMP_INDIRECT);
		return false;
	default:
		if (!x86_state_apply(&path->state, effect, query->word))
			return false;
	}
	/* What follows the end belongs to others: the last call never returned. */
	return !(query->end && next >= query->end && at < query->end && at >= query->start);
}

static bool is_call(const struct x86_effect *effect)
{
	return effect->op == X86_CALL || effect->op == X86_CALL_INDIRECT;
}

/*
 * Behind a call, is this where another function begins? Without symbols there
 * is no other way to see that a call never returns.
 */
static bool begins_function(const struct x86_insn *insn, const struct x86_effect *effect,
			    const struct x86_state *state, unsigned word)
{
	if (insn->map == X86_MAP_0F && insn->opcode == 0x1e)
		return true; /* endbr */
	if (effect->op == X86_PUSH && effect->reg == X86_BP)
		return true;
	/* Code with frame pointers begins like that; within a frame, arguments may be pushed. */
	if (state->fp_at)
		return false;
	if (effect->op == X86_PUSH)
		return word == 8 || effect->reg == X86_BX || effect->reg == X86_SI ||
		       effect->reg == X86_DI;
	return word == 8 && effect->op == X86_SET_SP && effect->base == X86_SP && effect->value < 0;
}

static bool is_padding(const struct x86_insn *insn)
{
	return (insn->map == X86_MAP_0F && insn->opcode == 0x1f) ||
	       (insn->map == X86_MAP_ONE && insn->opcode == 0x90);
}

static void follow(struct search *search, struct path path)
{
	const struct flow_query *query = search->query;

	for (;;) {
		struct x86_effect effect;
		struct x86_insn insn;
		const uint8_t *bytes;
		int32_t *depth;
		bool known;
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
		depth = seen(search->scratch, path.va, &known);
		if (known)
			return;
		*depth = path.state.depth;
		bytes = code_at(search->reader, path.va, &n);
		if (!x86_decode(bytes, n, query->word, &insn)) {
			search->cut = true;
			return;
		}
		effect = x86_effect(&insn, path.va, query->word);
		if (query->kind == FRAME_RETURN && path.va + insn.len == query->addr &&
		    is_call(&effect)) {
			search->out = path.state;
			search->found = true;
			return;
		}
		if (path.called && !query->end &&
		    begins_function(&insn, &effect, &path.state, query->word))
			return;
		if (path.called && is_padding(&insn)) {
			/* Then what follows is jumped to from elsewhere. */
			defer(search, &path, path.va + insn.len);
			return;
		}
		path.called = is_call(&effect);
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
 * Jump tables and landing pads are not followed: what lies behind a jump or a
 * return and was not reached otherwise is taken for a part of the body.
 */
static void follow_gaps(struct search *search)
{
	struct flow_scratch *scratch = search->scratch;
	uint64_t end = search->query->end ? search->query->end : search->query->addr + 1;
	int32_t depth;

	for (size_t i = 0; i < scratch->n_gap && !search->found && search->steps; i++) {
		uint64_t va = scratch->gap[i];

		if (va < search->query->start || va >= end || was_seen(scratch, va, &depth))
			continue;
		search->body.va = va;
		follow(search, search->body);
		follow_all(search);
	}
}

enum flow_result x86_flow(const struct flow_query *query, struct code_reader *reader,
			  struct flow_scratch *scratch, unsigned *steps, struct x86_state *out)
{
	struct path entry = {.va = query->start, .state = x86_state_at_entry};
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
		return search.cut || !search.steps ? FLOW_UNKNOWN : FLOW_NOT;
	*out = search.out;
	return guessed ? FLOW_GUESSED : FLOW_FOUND;
}
