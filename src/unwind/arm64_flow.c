/* SPDX-License-Identifier: BSD-3-Clause */
#include "unwind/arm64_flow.h"

#include <stdlib.h>
#include <string.h>

/* Places that are still to be followed; a function with more branches open than this is not. */
#define OPEN_MAX 256

struct open {
	uint32_t at; /* instruction, from the start */
	struct arm64_state state;
};

struct arm64_scratch {
	uint32_t code[ARM64_FUNCTION_MAX];
	uint8_t seen[ARM64_FUNCTION_MAX / 8];
	struct open open[OPEN_MAX];
	unsigned n;
	bool scattered;		    /* a jump goes where it cannot be told */
	struct arm64_state at_jump; /* there */
};

struct arm64_scratch *arm64_scratch_new(void)
{
	return malloc(sizeof(struct arm64_scratch));
}

void arm64_scratch_free(struct arm64_scratch *scratch)
{
	free(scratch);
}

static bool is_seen(const struct arm64_scratch *scratch, uint32_t at)
{
	return scratch->seen[at / 8] >> at % 8 & 1;
}

static bool see(struct arm64_scratch *scratch, uint32_t at)
{
	const bool seen = is_seen(scratch, at);

	scratch->seen[at / 8] |= (uint8_t)(1u << at % 8);
	return !seen;
}

static void push(struct arm64_scratch *scratch, uint64_t start, uint64_t target, uint32_t n,
		 const struct arm64_state *state)
{
	const uint64_t at = (target - start) / 4;

	/* Jumps out of the function are tail calls. */
	if (target < start || at >= n || scratch->n == OPEN_MAX)
		return;
	scratch->open[scratch->n++] = (struct open){.at = (uint32_t)at, .state = *state};
}

/* br, braa and its like; a tail call has given back its frame. */
static bool is_by_table(uint32_t insn, const struct arm64_state *state)
{
	return ((insn & 0xfffffc1f) == 0xd61f0000 || (insn & 0xfefff800) == 0xd61f0800) &&
	       (state->depth || state->lr_saved);
}

/* From one open place on, until the path ends, is known, or stands at `goal`. */
static bool run(struct arm64_scratch *scratch, uint64_t start, uint32_t n, uint32_t goal,
		struct arm64_state *state)
{
	const struct open from = scratch->open[--scratch->n];
	enum arm64_flow flow;
	uint64_t target;

	*state = from.state;
	for (uint32_t at = from.at; at < n; at++) {
		if (at == goal)
			return true;
		if (!see(scratch, at) ||
		    !arm64_apply(scratch->code[at], start + at * 4ull, state, &flow, &target))
			return false;
		if (flow == ARM64_BRANCH || flow == ARM64_JUMP)
			push(scratch, start, target, n, state);
		if (flow == ARM64_END && !scratch->scattered &&
		    is_by_table(scratch->code[at], state)) {
			scratch->scattered = true;
			scratch->at_jump = *state;
		}
		if (flow == ARM64_JUMP || flow == ARM64_END)
			return false;
	}
	return false;
}

static bool run_open(struct arm64_scratch *scratch, uint64_t start, uint32_t n, uint32_t goal,
		     struct arm64_state *state)
{
	while (scratch->n)
		if (run(scratch, start, n, goal, state))
			return true;
	return false;
}

/*
 * From the first place before the goal on that nothing leads to, all that
 * nothing leads to has the state of the jump.
 */
static bool run_scattered(struct arm64_scratch *scratch, uint64_t start, uint32_t n, uint32_t goal,
			  struct arm64_state *state)
{
	uint32_t at = goal;

	if (!scratch->scattered || goal >= n)
		return false;
	while (at && !is_seen(scratch, at - 1))
		at--;
	for (; at <= goal; at++) {
		if (is_seen(scratch, at))
			continue;
		push(scratch, start, start + 4ull * at, n, &scratch->at_jump);
		if (run_open(scratch, start, n, goal, state))
			return true;
	}
	return false;
}

enum arm64_known arm64_follow(struct arm64_scratch *scratch, const struct code *code,
			      uint64_t start, uint64_t end, uint64_t pc, struct arm64_state *state)
{
	const uint64_t size = end - start;
	uint32_t n, goal;
	size_t got;

	if (start & 3 || pc < start || pc >= end || size / 4 > ARM64_FUNCTION_MAX)
		return ARM64_UNKNOWN;
	got = code->read(code->ctx, start, scratch->code, size & ~3ull);
	n = (uint32_t)(got / 4);
	goal = (uint32_t)((pc - start) / 4);
	memset(scratch->seen, 0, sizeof(scratch->seen));
	scratch->open[0] = (struct open){0};
	scratch->n = 1;
	scratch->scattered = false;
	if (run_open(scratch, start, n, goal, state))
		return ARM64_FOLLOWED;
	return run_scattered(scratch, start, n, goal, state) ? ARM64_GUESSED : ARM64_UNKNOWN;
}
