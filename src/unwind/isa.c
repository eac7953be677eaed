/* SPDX-License-Identifier: BSD-3-Clause */
#include "unwind/isa.h"

#include <assert.h>
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

/* In place of an address, of which 0 is one. */
#define NOWHERE UINT64_MAX

/* Bytes behind the start of a function without known bounds that are taken for its own. */
#define NEAR (1u << 16)

/* A search along the paths through code: to an instruction, to behind a call, or to a return. */
struct seeker {
	const struct paths *paths;
	struct paths_scratch *scratch;
	struct code_reader *reader;
	const struct flow_query *query;
	bool behind_call;
	bool (*leaves)(const void *state); /* to a return in such a state; NULL: to query->addr */
	unsigned steps;
	bool cut;  /* a path was not followed to its end */
	bool away; /* a path goes to an unknown address */
	bool out;  /* ... or returns, or may leave the function otherwise */
	bool left; /* scratch->left is the state at a jump by table, or one that leaves the function, */
	bool guessing; /* and does not change any more */
	void *state;
};

/* Addresses whose slots are neighbours: a function's take few pages. Both are powers of two. */
#define SEEN_BLOCK 64u

/* Index of the address in the table of those that were seen, or of a free slot for it; true: it was seen. */
static bool find_seen(const struct paths_scratch *scratch, uint64_t va, size_t *i)
{
	const uint64_t block = va / SEEN_BLOCK * 0x9e3779b97f4a7c15ull >> 32;

	*i = (size_t)(block * SEEN_BLOCK + va % SEEN_BLOCK) % PATHS_SEEN;
	/* The step leads to a neighbouring block, and has no divisor in common with the table's size. */
	for (; scratch->seen[*i].generation == scratch->generation;
	     *i = (*i + SEEN_BLOCK + 1) % PATHS_SEEN)
		if (scratch->seen[*i].va == va)
			return true;
	return false;
}

/* False: it was seen before. */
static bool see(struct seeker *seeker, uint64_t va)
{
	struct paths_scratch *scratch = seeker->scratch;
	size_t i;

	if (find_seen(scratch, va, &i))
		return false;
	scratch->seen[i].generation = scratch->generation;
	scratch->seen[i].va = va;
	memcpy(&scratch->seen[i].mark, seeker->state, sizeof(scratch->seen[i].mark));
	return true;
}

static bool is_within(const struct seeker *seeker, uint64_t va)
{
	const uint64_t end = seeker->query->end ? seeker->query->end : seeker->query->start + NEAR;

	return va >= seeker->query->start && va < end;
}

/* Opens a path in this state, to be followed soon, or when there is no other left. NULL: too many are. */
static struct open_path *open_path(struct seeker *seeker, uint64_t va, const void *state, bool last)
{
	struct paths_scratch *scratch = seeker->scratch;
	struct open_path *open;

	if (scratch->n_open + scratch->n_last == PATHS_OPEN_MAX) {
		seeker->cut = true;
		return NULL;
	}
	open = &scratch->open[last ? PATHS_OPEN_MAX - ++scratch->n_last : scratch->n_open++];
	open->va = va;
	open->called = false;
	memcpy(open->state, state, seeker->paths->state_size);
	return open;
}

/* Opens the path at a jump's target. */
static void open_target(struct seeker *seeker, uint64_t va, bool last)
{
	struct open_path *open = open_path(seeker, va, seeker->state, last);

	if (open && seeker->paths->taken)
		seeker->paths->taken(open->state);
}

/*
 * Jumps, or goes on to `next`, which may be NOWHERE. Where functions are large and in parts, the way
 * towards the goal is followed first. Returns where the path goes on.
 */
static uint64_t branch(struct seeker *seeker, uint64_t next, uint64_t behind, uint64_t target)
{
	const struct paths *paths = seeker->paths;
	struct paths_scratch *scratch = seeker->scratch;
	size_t i;

	if ((paths->parts || seeker->query->end) && !is_within(seeker, target)) {
		seeker->out = true;
		if (paths->parts)
			open_target(seeker, target, true);
		return next;
	}
	if (find_seen(scratch, target, &i)) {
		if (paths->turns && target < behind &&
		    memcmp(&scratch->seen[i].mark, seeker->state, sizeof(scratch->seen[i].mark)))
			paths->turns(seeker->state);
		return next;
	}
	if (next == NOWHERE || (paths->parts && target > next && target <= seeker->query->addr)) {
		if (next != NOWHERE)
			open_path(seeker, next, seeker->state, false);
		if (paths->taken)
			paths->taken(seeker->state);
		return target;
	}
	open_target(seeker, target, false);
	return next;
}

/* Notes a state that may be that of code which no path leads to, or from which the function is left. */
static void note_left(struct seeker *seeker, enum path path)
{
	const bool by_table = path == PATH_TABLE || path == PATH_BRANCH_TABLE;
	const struct paths *paths = seeker->paths;
	void *left = seeker->scratch->left;

	seeker->away |= by_table || path == PATH_AWAY;
	if (seeker->left || seeker->guessing)
		return;
	if (seeker->leaves)
		seeker->left = path == PATH_AWAY && seeker->leaves(seeker->state);
	else
		seeker->left = by_table;
	if (seeker->left ||
	    (path >= PATH_JUMP && paths->deeper && paths->deeper(seeker->state, left)))
		memcpy(left, seeker->state, paths->state_size);
}

/* Returns where the path goes on behind an instruction. */
static uint64_t go_on(struct seeker *seeker, enum path path, uint64_t next, uint64_t target)
{
	struct paths_scratch *scratch = seeker->scratch;

	if (path >= PATH_JUMP && path <= PATH_END && scratch->n_gaps < PATHS_GAPS)
		scratch->gap[scratch->n_gaps++] = next;
	if (path != PATH_BRANCH && path <= PATH_END)
		note_left(seeker, path);
	switch (path) {
	case PATH_ON:
	case PATH_CALL:
	case PATH_BRANCH_TABLE:
		return next;
	case PATH_BRANCH:
		return branch(seeker, next, next, target);
	case PATH_JUMP:
		return branch(seeker, NOWHERE, next, target);
	case PATH_LAST:
		open_path(seeker, next, seeker->state, true);
		return NOWHERE;
	default:
		return NOWHERE;
	}
}

/* Follows one open path until it ends, comes to known code, or finds the goal. */
static bool seek_path(struct seeker *seeker, const struct open_path *from)
{
	const struct paths *paths = seeker->paths;
	const struct flow_query *query = seeker->query;
	bool called = from->called;
	uint64_t pc = from->va, target = 0, next, to;

	memcpy(seeker->state, from->state, paths->state_size);
	for (; pc != NOWHERE; pc = to) {
		enum path path = PATH_ON;
		const uint8_t *bytes;
		unsigned len;
		size_t n;

		bytes = code_at(seeker->reader, pc, &n);
		if (!seeker->leaves && !seeker->behind_call && pc == query->addr)
			return n >= paths->unit;
		seeker->cut |= !seeker->steps;
		if (!seeker->steps || !see(seeker, pc))
			return false;
		seeker->steps--;
		if (called && !query->end && paths->begins &&
		    paths->begins(seeker->state, bytes, n, &called))
			return false;
		len = n < paths->unit ? 0
				      : paths->apply(bytes, n, pc, seeker->state, &path, &target);
		seeker->cut |= !len;
		seeker->out |= path == PATH_RETURN || path == PATH_END || path == PATH_NOT;
		if (!len)
			return false;
		next = pc + len;
		if (seeker->leaves
			    ? path == PATH_RETURN && seeker->leaves(seeker->state)
			    : seeker->behind_call && path == PATH_CALL && next == query->addr)
			return true;
		to = go_on(seeker, path, next, target);
		called = to == next && (called || path == PATH_CALL);
		/* Code behind the end belongs to other functions: the last call never returned. */
		if (to == next && query->end && next >= query->end && is_within(seeker, pc))
			return false;
	}
	return false;
}

static bool seek_open(struct seeker *seeker)
{
	struct paths_scratch *scratch = seeker->scratch;

	while (scratch->n_open || scratch->n_last)
		if (seek_path(seeker,
			      &scratch->open[scratch->n_open ? --scratch->n_open
							     : PATHS_OPEN_MAX - scratch->n_last--]))
			return true;
	return false;
}

/* Goes there in the state that was noted. */
static bool seek_from(struct seeker *seeker, uint64_t va)
{
	size_t i;

	if (find_seen(seeker->scratch, va, &i))
		return false;
	memcpy(seeker->state, seeker->scratch->left, seeker->paths->state_size);
	open_target(seeker, va, false);
	return seek_open(seeker);
}

/*
 * Takes unreached code before the goal for cases of the jump table: each gets
 * the state at the jump, beginning with the first instruction of the last
 * unreached stretch.
 */
static bool seek_scattered(struct seeker *seeker)
{
	const struct paths_scratch *scratch = seeker->scratch;
	const unsigned unit = seeker->paths->unit;
	const uint64_t last = seeker->query->addr - (seeker->behind_call ? unit : 0);
	uint64_t va = last, nearest = seeker->query->start;
	size_t seen;

	if (!seeker->left || !is_within(seeker, last))
		return false;
	for (unsigned i = 0; i < scratch->n_gaps; i++)
		if (scratch->gap[i] <= last && scratch->gap[i] >= nearest &&
		    !find_seen(scratch, scratch->gap[i], &seen))
			va = nearest = scratch->gap[i];
	for (; va <= last && seeker->steps; va += unit)
		if (seek_from(seeker, va))
			return true;
	return false;
}

/*
 * Where instructions have no unit: code behind a jump or a return that was not reached otherwise is
 * taken for a part of the function, in the state at the jump table, or else the deepest.
 */
static bool seek_gaps(struct seeker *seeker)
{
	const struct paths_scratch *scratch = seeker->scratch;
	const uint64_t end = seeker->query->end ? seeker->query->end : seeker->query->addr + 1;

	for (unsigned i = 0; i < scratch->n_gaps && seeker->steps; i++)
		if (scratch->gap[i] >= seeker->query->start && scratch->gap[i] < end &&
		    seek_from(seeker, scratch->gap[i]))
			return true;
	return false;
}

/* Code that no path leads to; its function's bounds, or a jump by table, say that it is the function's. */
static bool guess(struct seeker *seeker)
{
	seeker->guessing = true;
	if (seeker->paths->parts)
		return (seeker->query->end || seeker->left) && seek_gaps(seeker);
	return seeker->query->end && seek_scattered(seeker);
}

/* Follows the code from `start` on, with so many steps at most. */
static bool seek(struct seeker *seeker, uint64_t start, unsigned most)
{
	struct paths_scratch *scratch = seeker->scratch;
	unsigned *steps = seeker->reader->steps;

	seeker->steps = *steps < most ? *steps : most;
	*steps -= seeker->steps;
	scratch->generation++;
	scratch->n_open = scratch->n_last = scratch->n_gaps = 0;
	memcpy(scratch->left, seeker->state, seeker->paths->state_size);
	open_path(seeker, start, seeker->state, false);
	scratch->open[0].called = seeker->leaves && seeker->behind_call;
	return seek_open(seeker);
}

static struct seeker seeker_of(const struct paths *paths, const struct flow_query *query,
			       struct code_reader *reader, void *state)
{
	return (struct seeker){.paths = paths,
			       .scratch = reader->scratch,
			       .reader = reader,
			       .query = query,
			       .behind_call = query->kind == FRAME_RETURN,
			       .state = state};
}

enum flow_result paths_follow(const struct paths *paths, const struct flow_query *query,
			      struct code_reader *reader, void *state)
{
	struct seeker seeker = seeker_of(paths, query, reader, state);
	enum flow_result result = FLOW_FOUND;

	assert(paths->unit && paths->state_size <= PATHS_STATE_MAX);
	if (query->start % paths->unit || (!query->end && !paths->parts && !paths->begins))
		return FLOW_UNKNOWN;
	if (!seek(&seeker, query->start,
		  query->end || paths->parts ? PATHS_STEPS_WITHIN : PATHS_STEPS))
		result = guess(&seeker) ? FLOW_GUESSED : seeker.away ? FLOW_AWAY : FLOW_NOT;
	*reader->steps += seeker.steps;
	if (result != FLOW_FOUND && result != FLOW_GUESSED &&
	    (seeker.cut || !seeker.steps || (query->end && !paths->parts)))
		return FLOW_UNKNOWN;
	return result;
}

enum paths_end paths_return(const struct paths *paths, const struct flow_query *query,
			    struct code_reader *reader, void *state)
{
	struct seeker seeker = seeker_of(paths, query, reader, state);
	bool found;

	seeker.leaves = paths->leaves;
	found = seek(&seeker, query->addr, paths->ahead);
	*reader->steps += seeker.steps;
	/* If no path returns, the last call leaves the function instead. */
	if (!found && seeker.left && !seeker.cut) {
		memcpy(state, seeker.scratch->left, paths->state_size);
		found = true;
	}
	if (found)
		return PATHS_RETURN;
	return query->end && !seeker.cut && !seeker.away && !seeker.out ? PATHS_NEVER
									: PATHS_UNKNOWN;
}

const char *unwind_end_text(enum unwind_end end)
{
	static const char *const text[UNWIND_ENDS] = {
		[UNWIND_OUTERMOST] = "whole",	   [UNWIND_FRAMES] = "too many frames",
		[UNWIND_BYTES] = "stack too long", [UNWIND_BROKEN] = "broken chain",
		[UNWIND_LOOP] = "looping chain",   [UNWIND_NO_STACK] = "no stack",
		[UNWIND_NO_ROOM] = "no room",	   [UNWIND_SEGMENTED] = "segmented code",
	};

	return end < UNWIND_ENDS ? text[end] : "unknown";
}

const char *unwind_method_text(enum unwind_method method)
{
	static const char *const text[UNWIND_METHODS] = {"auto", "fp", "cfi", "scan"};

	return method < UNWIND_METHODS ? text[method] : "unknown";
}
