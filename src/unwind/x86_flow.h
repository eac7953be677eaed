/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef UNIPROF_UNWIND_X86_FLOW_H
#define UNIPROF_UNWIND_X86_FLOW_H

/*
 * Where a function keeps its return address and its caller's frame pointer at
 * one of its instructions, found out by following its code from the first
 * instruction to that one: pushes, pops, constants added to the stack pointer,
 * frame set-up and tear-down. So entry, exit, frameless leaves and code that
 * has no frame pointer at all need no rule of their own.
 */

#include "unwind/unwind.h"
#include "unwind/x86/flow.h"

/* No function is followed farther than this, in instructions. */
#define X86_FLOW_STEPS 12000

/* Reads code through a small buffer. */
struct code_reader {
	const struct code *code;
	uint64_t va;
	size_t n;
	uint8_t bytes[256];
};

/* Up to X86_INSN_MAX bytes at `va`; *n says how many, 0 if not readable. */
const uint8_t *code_at(struct code_reader *reader, uint64_t va, size_t *n);

enum flow_result {
	FLOW_FOUND,
	FLOW_GUESSED, /* found behind a jump table or code that is only reached from elsewhere */
	FLOW_NOT,     /* no path leads there */
	FLOW_UNKNOWN, /* the search was cut short: code not readable, not understood, too much */
};

struct flow_query {
	unsigned word;
	uint64_t start, end; /* the function; end 0: not known */
	uint64_t addr;	     /* where to */
	uint8_t kind;	     /* enum frame_kind: FRAME_RETURN stands behind a call */
};

/* What a search needs to remember; belongs to the caller, who zeroes it once. */
struct flow_scratch;
struct flow_scratch *flow_scratch_new(void); /* NULL: no memory */
void flow_scratch_free(struct flow_scratch *scratch);

/* *steps is how many instructions may be looked at, and is reduced by those that were. */
enum flow_result x86_flow(const struct flow_query *query, struct code_reader *reader,
			  struct flow_scratch *scratch, unsigned *steps, struct x86_state *out);

#endif
