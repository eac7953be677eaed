/* SPDX-License-Identifier: BSD-3-Clause */
#include "unwind/isa.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

static const struct unwind_isa *const isas[] = {
	&unwind_x86_64, &unwind_x86_32, &unwind_arm64, &unwind_arm32, &unwind_riscv64,
};

const struct unwind_isa *unwind_isa_of(const struct regs *regs)
{
	for (size_t i = 0; i < sizeof(isas) / sizeof(*isas); i++)
		if (isas[i]->isa == regs->isa && isas[i]->word == regs->word)
			return isas[i];
	return isas[0];
}

const uint8_t *code_at(struct code_reader *reader, uint64_t va, size_t *n)
{
	uint64_t offset = va - reader->va;

	if (offset >= reader->n || (reader->n == sizeof(reader->bytes) &&
				    offset + CODE_AT_LEAST > sizeof(reader->bytes))) {
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

/* Bytes of code for each step of the budget. */
#define STEP_BYTES 16

/*
 * A search along the paths through code. Within a function's bounds, its code is read at once, and a
 * jump out of it is a last call; without, code is followed wherever it jumps, which may be the way to
 * the goal.
 */
struct seeker {
	const struct paths *paths;
	struct paths_scratch *scratch;
	struct code_reader *reader;
	uint64_t start;
	uint32_t n;    /* units of code from there on; 0: no bounds are known */
	uint64_t goal; /* an instruction, or the end of a call, */
	bool behind_call;
	bool (*leaves)(const void *state); /* or a return in such a state; NULL: no return */
	unsigned steps;
	bool cut;  /* a path was not followed to its end */
	bool away; /* a path goes to an unknown address */
	bool left; /* the same in a state in which it may leave the function: at_jump */
	void *state;
};

void *paths_scratch_new(void)
{
	return calloc(1, sizeof(struct paths_scratch));
}

static bool is_seen(const struct paths_scratch *scratch, uint32_t at)
{
	return scratch->seen[at / 8] >> at % 8 & 1;
}

static void see(struct paths_scratch *scratch, uint32_t at, uint32_t units)
{
	for (uint32_t i = at; i < at + units && i < PATHS_SIZE_MAX / 2; i++)
		scratch->seen[i / 8] |= (uint8_t)(1u << i % 8);
}

/* Unit of the function that is at this address; false: it is outside of it. */
static bool unit_at(const struct seeker *seeker, uint64_t va, uint32_t *at)
{
	const uint64_t unit = (va - seeker->start) / seeker->paths->unit;

	*at = (uint32_t)unit;
	return va >= seeker->start && unit < seeker->n;
}

/* Opens a path, unless its code is out of bounds, or was seen; in the state at a jump's target, if it `jumps`. */
static void open_path(struct seeker *seeker, uint64_t va, const void *state, bool jumps)
{
	const struct paths *paths = seeker->paths;
	struct paths_scratch *scratch = seeker->scratch;
	struct open_path *open;
	uint32_t at;

	if (seeker->n && (!unit_at(seeker, va, &at) || is_seen(scratch, at)))
		return;
	seeker->cut |= scratch->n_open == PATHS_OPEN_MAX;
	if (scratch->n_open == PATHS_OPEN_MAX)
		return;
	open = &scratch->open[scratch->n_open++];
	open->va = va;
	open->called = false;
	memcpy(open->state, state, paths->state_size);
	if (jumps && paths->taken)
		paths->taken(open->state);
}

/* False: it was seen before, or too many were, or it is out of bounds. */
static bool may_follow(struct seeker *seeker, uint64_t va)
{
	struct paths_scratch *scratch = seeker->scratch;
	size_t i = (size_t)(va * 0x9e3779b97f4a7c15ull >> 32) % PATHS_SEEN;
	uint32_t at;

	if (seeker->n)
		return unit_at(seeker, va, &at) && !is_seen(scratch, at);
	for (; scratch->at[i].generation == scratch->generation; i = (i + 1) % PATHS_SEEN)
		if (scratch->at[i].va == va)
			return false;
	seeker->cut |= !seeker->steps;
	if (!seeker->steps)
		return false;
	seeker->steps--;
	scratch->at[i].generation = scratch->generation;
	scratch->at[i].va = va;
	return true;
}

static void note_jump(struct seeker *seeker, enum path path, uint64_t target)
{
	const bool by_table = path == PATH_TABLE || path == PATH_BRANCH_TABLE;
	struct paths_scratch *scratch = seeker->scratch;

	if (path == PATH_BRANCH || path == PATH_JUMP)
		open_path(seeker, target, seeker->state, true);
	seeker->away |= by_table || path == PATH_AWAY;
	/*
	 * Keeps the first such state: with known bounds that at a jump table,
	 * without that at a last call.
	 */
	if (seeker->left ||
	    (seeker->n ? !by_table
		       : path != PATH_AWAY || !seeker->leaves || !seeker->leaves(seeker->state)))
		return;
	seeker->left = true;
	memcpy(scratch->at_jump, seeker->state, seeker->paths->state_size);
}

static const uint8_t *code_of(struct seeker *seeker, uint64_t pc, size_t *n)
{
	uint32_t at;

	if (!unit_at(seeker, pc, &at))
		return code_at(seeker->reader, pc, n);
	*n = (size_t)(seeker->n - at) * seeker->paths->unit;
	return seeker->scratch->code + (size_t)at * seeker->paths->unit;
}

/* Applies the instruction and returns its length; 0: the path ends. *found: it is the goal. */
static unsigned seek_step(struct seeker *seeker, uint64_t pc, bool *called, bool *found)
{
	const struct paths *paths = seeker->paths;
	enum path path = PATH_ON;
	uint64_t target = 0;
	uint32_t at;
	unsigned len;
	size_t n;
	const uint8_t *bytes = code_of(seeker, pc, &n);

	if (*called && !seeker->n && paths->begins &&
	    paths->begins(seeker->state, bytes, n, called))
		return 0;
	len = n < paths->unit ? 0 : paths->apply(bytes, n, pc, seeker->state, &path, &target);
	seeker->cut |= !len;
	if (!len)
		return 0;
	if (unit_at(seeker, pc, &at))
		see(seeker->scratch, at, len / paths->unit);
	if (seeker->leaves)
		*found = path == PATH_RETURN && seeker->leaves(seeker->state);
	else
		*found = seeker->behind_call && path == PATH_CALL && pc + len == seeker->goal;
	if (!*found)
		note_jump(seeker, path, target);
	*called = *called || path == PATH_CALL;
	return path >= PATH_JUMP ? 0 : len;
}

/* Follows one open path until it ends, comes to known code, or finds the goal. */
static bool seek_path(struct seeker *seeker)
{
	struct paths_scratch *scratch = seeker->scratch;
	const struct open_path *from = &scratch->open[--scratch->n_open];
	const bool to_goal = !seeker->leaves && !seeker->behind_call;
	bool called = from->called, found = false;
	uint64_t pc = from->va;
	uint32_t at;
	unsigned len;

	memcpy(seeker->state, from->state, seeker->paths->state_size);
	for (;;) {
		if (to_goal && pc == seeker->goal && (!seeker->n || unit_at(seeker, pc, &at)))
			return true;
		if (!may_follow(seeker, pc))
			return false;
		len = seek_step(seeker, pc, &called, &found);
		if (found || !len)
			return found;
		pc += len;
	}
}

static bool seek_open(struct seeker *seeker)
{
	while (seeker->scratch->n_open)
		if (seek_path(seeker))
			return true;
	return false;
}

/*
 * Takes unreached code before the goal for cases of the jump table: each gets
 * the state at the jump, beginning with the first instruction of the last
 * unreached stretch.
 */
static bool seek_scattered(struct seeker *seeker)
{
	struct paths_scratch *scratch = seeker->scratch;
	const unsigned unit = seeker->paths->unit;
	const uint64_t goal = (seeker->goal - seeker->start) / unit - (seeker->behind_call ? 1 : 0);
	uint32_t at = (uint32_t)goal;

	if (!seeker->left || goal >= seeker->n)
		return false;
	while (at && !is_seen(scratch, at - 1))
		at--;
	for (; at <= goal; at++) {
		open_path(seeker, seeker->start + (uint64_t)at * unit, scratch->at_jump, true);
		if (seek_open(seeker))
			return true;
	}
	return false;
}

static enum flow_result seek_within(struct seeker *seeker, const struct flow_query *query,
				    unsigned *steps)
{
	const struct code *code = seeker->reader->code;
	struct paths_scratch *scratch = seeker->scratch;
	const unsigned unit = seeker->paths->unit;
	const uint64_t size = query->end - query->start, offset = query->addr - query->start;

	if (query->start % unit || offset > size || (offset == size && !seeker->behind_call) ||
	    size > PATHS_SIZE_MAX)
		return FLOW_UNKNOWN;
	*steps -= size / STEP_BYTES < *steps ? (unsigned)(size / STEP_BYTES) : *steps;
	seeker->n = (uint32_t)(code->read(code->ctx, query->start, scratch->code, size) / unit);
	if (!seeker->n)
		return FLOW_UNKNOWN;
	memset(scratch->seen, 0, sizeof(scratch->seen));
	scratch->n_open = 0;
	open_path(seeker, query->entry ? query->entry : query->start, seeker->state, true);
	if (seek_open(seeker))
		return FLOW_FOUND;
	return seek_scattered(seeker) ? FLOW_GUESSED : FLOW_UNKNOWN;
}

static bool seek(struct seeker *seeker, uint64_t start, bool called, unsigned *steps)
{
	const unsigned allowed = *steps < PATHS_STEPS ? *steps : PATHS_STEPS;
	struct paths_scratch *scratch = seeker->scratch;
	bool found;

	seeker->steps = allowed;
	scratch->generation++;
	scratch->n_open = 0;
	open_path(seeker, start, seeker->state, false);
	scratch->open[0].called = called;
	found = seek_open(seeker);
	*steps -= allowed - seeker->steps;
	return found;
}

enum flow_result paths_follow(const struct paths *paths, const struct flow_query *query,
			      struct code_reader *reader, void *scratch, unsigned *steps,
			      void *state)
{
	struct seeker seeker = {.paths = paths,
				.scratch = scratch,
				.reader = reader,
				.start = query->start,
				.goal = query->addr,
				.behind_call = query->kind == FRAME_RETURN,
				.state = state};

	assert(paths->unit >= 2 && paths->state_size <= PATHS_STATE_MAX);
	if (query->end)
		return seek_within(&seeker, query, steps);
	if (query->start % paths->unit || !paths->begins)
		return FLOW_UNKNOWN;
	if (seek(&seeker, query->start, false, steps))
		return FLOW_FOUND;
	return seeker.cut ? FLOW_UNKNOWN : seeker.away ? FLOW_AWAY : FLOW_NOT;
}

bool paths_return(const struct paths *paths, const struct paths_start *from,
		  struct code_reader *reader, void *scratch, unsigned *steps, void *state)
{
	struct seeker seeker = {.paths = paths,
				.scratch = scratch,
				.reader = reader,
				.leaves = from->leaves,
				.state = state};

	if (seek(&seeker, from->va, from->kind == FRAME_RETURN, steps))
		return true;
	/* No path returns: the last call leaves the function instead. */
	if (seeker.left && !seeker.cut)
		memcpy(state, seeker.scratch->at_jump, paths->state_size);
	return seeker.left && !seeker.cut;
}

const char *unwind_end_text(enum unwind_end end)
{
	static const char *const text[UNWIND_ENDS] = {
		[UNWIND_OUTERMOST] = "whole",	   [UNWIND_FRAMES] = "too many frames",
		[UNWIND_BYTES] = "stack too long", [UNWIND_BROKEN] = "broken chain",
		[UNWIND_LOOP] = "looping chain",   [UNWIND_NO_STACK] = "no stack",
		[UNWIND_NO_ROOM] = "no room",
	};

	return end < UNWIND_ENDS ? text[end] : "unknown";
}

const char *unwind_method_text(enum unwind_method method)
{
	static const char *const text[UNWIND_METHODS] = {
		[UNWIND_AUTO] = "auto",
		[UNWIND_FP] = "fp",
		[UNWIND_CFI] = "cfi",
		[UNWIND_SCAN] = "scan",
	};

	return method < UNWIND_METHODS ? text[method] : "unknown";
}
