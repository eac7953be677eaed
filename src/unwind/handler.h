/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef UNIPROF_UNWIND_HANDLER_H
#define UNIPROF_UNWIND_HANDLER_H

/*
 * Emulates the end of an interrupt handler on processors that save the
 * interrupted pc and state in registers of their own: its restores tell where
 * the interrupted code's registers are, whatever the frame looks like. Unknown
 * values stay unknown. For unwind_isa.handler and .interrupted.
 */

#include "unwind/walk.h"

/* Words that it may have stored on its way. */
#define HANDLER_STORES 40

struct handler_value {
	uint64_t is;
	bool known;
};

struct handler_run {
	struct walk *walk;
	struct handler_value x[32]; /* by DWARF number */
	struct handler_value pc, status,
		other_sp; /* what the return restores, and another stack's */
	struct {
		uint64_t va;
		struct handler_value value;
	} store[HANDLER_STORES];
	unsigned n;
};

/* One instruction, branches not taken. */
struct handler_insn {
	uint64_t next;	     /* 0: it cannot be told */
	bool calls, returns; /* a function; from the handler */
	uint32_t code[8];    /* the instruction, for apply() */
};

struct handler_code {
	/* False: it cannot be read. */
	bool (*decode)(struct code_reader *reader, uint64_t pc, struct handler_insn *out);
	void (*apply)(struct handler_run *run, const struct handler_insn *insn);
	/* Adds what else is known at the first instruction; NULL: nothing. */
	void (*begin)(struct handler_run *run);
};

/* Does the code lead to a return from a handler? As unwind_isa.handler. */
bool handler_returns(const struct handler_code *code, struct code_reader *reader, uint64_t pc,
		     uint64_t end, unsigned *steps);

/* Emulates the code from the walk's frame to the return. False: it has none. */
bool handler_run(struct handler_run *run, const struct handler_code *code, struct walk *walk);

/* Memory, as far as the handler's own stores and the stack tell it. */
void handler_store(struct handler_run *run, uint64_t va, struct handler_value value);
struct handler_value handler_load(struct handler_run *run, uint64_t va);

/* After a call that may have changed the registers in `changes`. */
void handler_called(struct handler_run *run, uint32_t changes);

/* Ends the walk, if no missing word was the reason. */
enum found handler_end(struct walk *walk, enum unwind_end why);

/* Goes to the interrupted code, or ends the walk as broken if that cannot be. */
enum found handler_leave(const struct handler_run *run, struct handler_value sp,
			 uint64_t insn_align, uint8_t *trust);

#endif
