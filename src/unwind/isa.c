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

struct follower {
	const struct paths *paths;
	struct paths_scratch *scratch;
	uint64_t start;
	uint32_t n;    /* units of code */
	uint64_t goal; /* an instruction, or the end of a call */
	bool behind_call;
	void *state; /* there */
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

/* False: too many are open. */
static bool open_path(const struct paths *paths, struct paths_scratch *scratch, uint64_t va,
		      const void *state, bool jumps)
{
	struct open_path *open;

	if (scratch->n_open == PATHS_OPEN_MAX)
		return false;
	open = &scratch->open[scratch->n_open++];
	open->va = va;
	open->called = false;
	memcpy(open->state, state, paths->state_size);
	if (jumps && paths->taken)
		paths->taken(open->state);
	return true;
}

static void push(const struct follower *follower, uint64_t target, const void *state)
{
	const uint64_t at = (target - follower->start) / follower->paths->unit;

	/* Jumps out of the function are tail calls. */
	if (target >= follower->start && at < follower->n &&
	    !is_seen(follower->scratch, (uint32_t)at))
		open_path(follower->paths, follower->scratch, target, state, true);
}

static void note_jump(const struct follower *follower, enum path path, uint64_t target)
{
	struct paths_scratch *scratch = follower->scratch;

	if (path == PATH_BRANCH || path == PATH_JUMP)
		push(follower, target, follower->state);
	if ((path == PATH_TABLE || path == PATH_BRANCH_TABLE) && !scratch->scattered) {
		scratch->scattered = true;
		memcpy(scratch->at_jump, follower->state, follower->paths->state_size);
	}
}

/* Follows one open path until it ends, is known, or is at the goal. */
static bool run(const struct follower *follower)
{
	const unsigned unit = follower->paths->unit;
	struct paths_scratch *scratch = follower->scratch;
	const struct open_path *from = &scratch->open[--scratch->n_open];
	uint32_t at = (uint32_t)((from->va - follower->start) / unit);

	memcpy(follower->state, from->state, follower->paths->state_size);
	while (at < follower->n) {
		const uint64_t pc = follower->start + (uint64_t)at * unit;
		enum path path = PATH_ON;
		uint64_t target = 0;
		unsigned len;

		if (!follower->behind_call && pc == follower->goal)
			return true;
		if (is_seen(scratch, at))
			return false;
		len = follower->paths->apply(scratch->code + (size_t)at * unit,
					     (size_t)(follower->n - at) * unit, pc, follower->state,
					     &path, &target);
		if (!len)
			return false;
		see(scratch, at, len / unit);
		if (follower->behind_call && path == PATH_CALL && pc + len == follower->goal)
			return true;
		note_jump(follower, path, target);
		if (path >= PATH_JUMP)
			return false;
		at += len / unit;
	}
	return false;
}

static bool run_open(const struct follower *follower)
{
	while (follower->scratch->n_open)
		if (run(follower))
			return true;
	return false;
}

/*
 * Unreached code before the goal inherits the state at the jump by table, from
 * the first of the last stretch of it on.
 */
static bool run_scattered(const struct follower *follower)
{
	struct paths_scratch *scratch = follower->scratch;
	const unsigned unit = follower->paths->unit;
	const uint64_t goal =
		(follower->goal - follower->start) / unit - (follower->behind_call ? 1 : 0);
	uint32_t at = (uint32_t)goal;

	if (!scratch->scattered || goal >= follower->n)
		return false;
	while (at && !is_seen(scratch, at - 1))
		at--;
	for (; at <= goal; at++) {
		if (is_seen(scratch, at))
			continue;
		push(follower, follower->start + (uint64_t)at * unit, scratch->at_jump);
		if (run_open(follower))
			return true;
	}
	return false;
}

/* Within the bounds of a function. */
static enum flow_result follow(const struct paths *paths, const struct flow_query *query,
			       const struct code *code, struct paths_scratch *scratch,
			       unsigned *steps, void *state)
{
	struct follower follower = {.paths = paths,
				    .scratch = scratch,
				    .start = query->start,
				    .goal = query->addr,
				    .behind_call = query->kind == FRAME_RETURN,
				    .state = state};
	const uint64_t size = query->end - query->start, offset = query->addr - query->start;

	if (query->start % paths->unit || offset > size ||
	    (offset == size && !follower.behind_call) || size > PATHS_SIZE_MAX)
		return FLOW_UNKNOWN;
	*steps -= size / STEP_BYTES < *steps ? (unsigned)(size / STEP_BYTES) : *steps;
	follower.n =
		(uint32_t)(code->read(code->ctx, query->start, scratch->code, size) / paths->unit);
	memset(scratch->seen, 0, sizeof(scratch->seen));
	scratch->n_open = 0;
	scratch->scattered = false;
	push(&follower, query->entry ? query->entry : query->start, state);
	if (run_open(&follower))
		return FLOW_FOUND;
	return run_scattered(&follower) ? FLOW_GUESSED : FLOW_UNKNOWN;
}

/*
 * Code whose function has no known bounds: it is followed wherever it jumps. A
 * jump to another function is a last call, which may be the way to the goal.
 */
struct seeker {
	const struct paths *paths;
	struct paths_scratch *scratch;
	struct code_reader *reader;
	uint64_t goal; /* an instruction, or the end of a call, */
	bool behind_call;
	bool (*leaves)(const void *state); /* ... or, not NULL, a return in such a state */
	unsigned steps;
	bool cut;  /* a path was not followed to its end */
	bool away; /* a path goes where it cannot be told */
	bool left; /* ... in a state in which it may leave the function: at_jump */
	void *state;
};

/* False: it was seen before, or too many were. */
static bool see_address(struct seeker *seeker, uint64_t va)
{
	struct paths_scratch *scratch = seeker->scratch;
	size_t i = (size_t)(va * 0x9e3779b97f4a7c15ull >> 32) % PATHS_SEEN;

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

static void seek_jump(struct seeker *seeker, enum path path, uint64_t target)
{
	struct paths_scratch *scratch = seeker->scratch;

	if (path == PATH_BRANCH || path == PATH_JUMP)
		seeker->cut |= !open_path(seeker->paths, scratch, target, seeker->state, true);
	seeker->away |= path == PATH_TABLE || path == PATH_BRANCH_TABLE || path == PATH_AWAY;
	if (path == PATH_AWAY && seeker->leaves && !seeker->left && seeker->leaves(seeker->state)) {
		seeker->left = true;
		memcpy(scratch->at_jump, seeker->state, seeker->paths->state_size);
	}
}

/* Applies the instruction; its length, 0 where the path ends. *found: this is what was sought. */
static unsigned seek_step(struct seeker *seeker, uint64_t pc, bool *called, bool *found)
{
	const struct paths *paths = seeker->paths;
	enum path path = PATH_ON;
	uint64_t target = 0;
	unsigned len;
	size_t n;
	const uint8_t *bytes = code_at(seeker->reader, pc, &n);

	if (*called && paths->begins && paths->begins(bytes, n, called))
		return 0;
	len = n < paths->unit ? 0 : paths->apply(bytes, n, pc, seeker->state, &path, &target);
	seeker->cut |= !len;
	if (!len)
		return 0;
	if (seeker->leaves)
		*found = path == PATH_RETURN && seeker->leaves(seeker->state);
	else
		*found = seeker->behind_call && path == PATH_CALL && pc + len == seeker->goal;
	seek_jump(seeker, path, target);
	*called = *called || path == PATH_CALL;
	return path >= PATH_JUMP ? 0 : len;
}

/* Follows one open path until it ends, is known, or is what was sought. */
static bool seek_path(struct seeker *seeker)
{
	struct paths_scratch *scratch = seeker->scratch;
	const struct open_path *from = &scratch->open[--scratch->n_open];
	bool called = from->called, found = false;
	uint64_t pc = from->va;
	unsigned len;

	memcpy(seeker->state, from->state, seeker->paths->state_size);
	for (;;) {
		if (!seeker->leaves && !seeker->behind_call && pc == seeker->goal)
			return true;
		if (!see_address(seeker, pc))
			return false;
		len = seek_step(seeker, pc, &called, &found);
		if (found || !len)
			return found;
		pc += len;
	}
}

static bool seek(struct seeker *seeker, uint64_t start, bool called, unsigned *steps)
{
	const unsigned allowed = *steps < PATHS_STEPS ? *steps : PATHS_STEPS;
	struct paths_scratch *scratch = seeker->scratch;
	bool found = false;

	seeker->steps = allowed;
	scratch->generation++;
	scratch->n_open = 0;
	open_path(seeker->paths, scratch, start, seeker->state, false);
	scratch->open[0].called = called;
	while (scratch->n_open && !found)
		found = seek_path(seeker);
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
				.goal = query->addr,
				.behind_call = query->kind == FRAME_RETURN,
				.state = state};

	assert(paths->unit >= 2 && paths->state_size <= PATHS_STATE_MAX);
	if (query->end)
		return follow(paths, query, reader->code, scratch, steps, state);
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
	/* Nothing returns itself: the last call that was seen does. */
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
