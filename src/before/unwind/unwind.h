/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef UNIPROF_UNWIND_UNWIND_H
#define UNIPROF_UNWIND_UNWIND_H

/*
 * From the registers and the copied stack bytes of one vCPU to its call chain.
 *
 * Unwinding happens after the guest runs on, on bytes that were copied while
 * it stood still. An unwinder reads the stack from the window only; it may
 * read code (which does not change) through `struct code`. It trusts nothing:
 * every walk ends after `max_frames`, and a chain must go upwards.
 */

#include "arch/arch.h"
#include "base/error.h"
#include "unwind/tables/unwind_table.h"

/* A stretch of guest stack as it was at the moment of the sample. */
struct window {
	uint64_t va;  /* guest virtual address of bytes[0]: the stack pointer, word-aligned down */
	uint32_t len; /* bytes that were copied */
	const uint8_t *bytes;
	bool cut; /* more stack follows that was not asked for; else the guest has no page there */
};

/* How the address of a frame came about; recorded with it. */
enum frame_kind {
	FRAME_PC = 0,	  /* where the vCPU was stopped: look the address up as it is */
	FRAME_RETURN = 1, /* a return address: look up the address minus one */
};

/* How much a frame can be believed; recorded with it. */
enum frame_trust {
	TRUST_SURE = 0,	 /* read from a register, a checked frame record or unwind tables */
	TRUST_GUESS = 1, /* found by a rule that can be wrong */
};

struct frame {
	uint64_t addr;
	uint8_t kind;  /* enum frame_kind */
	uint8_t trust; /* enum frame_trust */
};

/* Why the walk stopped. Anything but the first is a truncated stack. */
enum unwind_end {
	UNWIND_OUTERMOST, /* the chain ended as chains do: next record or return address is 0 */
	UNWIND_FRAMES,	  /* max_frames reached */
	UNWIND_BYTES,	  /* the chain goes on outside of the windows: see `want` and `elsewhere` */
	UNWIND_BROKEN,	  /* the frame pointer or return address cannot be one */
	UNWIND_LOOP,	  /* the chain turned back */
	UNWIND_NO_STACK,  /* the guest has no memory at its stack pointer, or was never started */
	UNWIND_NO_ROOM, /* the walk is good, but its innermost frames found no room where stacks are kept */
	UNWIND_ENDS /* number of values */
};

/* One word or two for each end, for reports: "broken chain". */
const char *unwind_end_text(enum unwind_end end);

/* The guest's code. All of it is optional: a NULL function is never called. */
struct code {
	void *ctx;
	unsigned version; /* another number: functions and tables are not what they were */
	/* Copies up to `len` bytes of code at `va`; returns how many (0: not readable). */
	size_t (*read)(void *ctx, uint64_t va, void *buf, size_t len);
	/* The bounds of the function that holds `va`, from symbols; false if not known. */
	bool (*function)(void *ctx, uint64_t va, uint64_t *start, uint64_t *end);
	/*
	 * The table of the image that holds `va`, NULL if there is none, which
	 * must outlive the unwinder; *slide is the address in the guest less
	 * that in the table.
	 */
	const struct rows *(*rows)(void *ctx, uint64_t va, uint64_t *slide);
	/*
	 * Is this in a kernel's code that goes from one program to another, or
	 * gives one up? As long as it runs, the stack may be one program's and
	 * the address space another's.
	 */
	bool (*switches)(void *ctx, uint64_t va);
};

/* Which ways there are to find a caller; each frame has the first that works there. */
enum unwind_method {
	UNWIND_AUTO, /* tables, following the code, frame records, and a search of the stack */
	UNWIND_FP,   /* without tables: following the code, and frame records */
	UNWIND_CFI,  /* tables only; code that has none is bridged by frame record or search */
	UNWIND_SCAN, /* whatever on the stack looks like a return address: all are guesses */
	UNWIND_METHODS
};

/* As recorded and said on the command line: "auto", "fp", "cfi", "scan". */
const char *unwind_method_text(enum unwind_method method);

/*
 * What was learned about the guest's code, kept from stack to stack: create it
 * once for each guest. Where return addresses are looked up for the first time
 * a stack costs some ten microseconds, later ones less than one.
 */
struct unwinder;
struct error *unwinder_new(struct unwinder **out);
void unwinder_free(struct unwinder *unwinder);

/*
 * To be called now and then, with the time: from the first call on, guests
 * whose code takes long to follow get no more than a share of it, however many
 * stacks they have. What is not followed then has no caller, or a guess of it.
 */
void unwinder_ration(struct unwinder *unwinder, uint64_t now_ns);

/*
 * What is remembered of the last stack of one vCPU: create one for each. With
 * it, only what has changed of a stack is walked again.
 */
struct memo;
struct error *unwind_memo_new(struct memo **out);
void unwind_memo_free(struct memo *memo);

/*
 * Room for a number of the caller's for each of the `n` frames of the stack
 * that was walked last, leaf first; NULL if it was not remembered. Those of
 * its last unwind_result.common frames are still there from the stack before.
 */
uint32_t *unwind_memo_ids(struct memo *memo, size_t n);

/* Those numbers have not been set: begins anew with the next stack. */
void unwind_memo_forget(struct memo *memo);

/*
 * A stack leads to one of a lower level: from that for what cannot be put off
 * to that for interrupts, to a task's, to a program's.
 */
#define UNWIND_OTHERS 3

struct unwind_input {
	const struct regs *regs;
	const struct window *stack;  /* from the stack pointer */
	const struct window *others; /* other stacks, that this one leads to */
	unsigned n_others;	     /* at most UNWIND_OTHERS */
	const struct code *code;
	struct unwinder *unwinder; /* NULL: do without the code, all callers are guesses */
	struct memo *memo;	   /* of this vCPU; NULL: walk all of the stack */
	size_t max_frames;	   /* at least 1 */
	enum unwind_method method; /* the same for all stacks of an unwinder */
};

struct unwind_result {
	size_t n; /* frames written, leaf first; at least 1 */
	enum unwind_end end;
	/* UNWIND_BYTES: window length in bytes that would have reached the next frame, and some more */
	uint64_t want;
	/* UNWIND_BYTES: if not 0, the chain goes on at this address, on none of these stacks */
	uint64_t elsewhere;
	/* Bytes of the window, from its beginning, up to the outermost frame in it. */
	uint64_t used;
	/* Bit n: something was read from in->others[n]. */
	uint32_t others;
	/* With a memo: so many of the outermost frames are those of the stack before. */
	size_t common;
};

/*
 * Finds, for each frame, its caller: by the table of the image that it is in;
 * where there is none, or what it says proves false, by following the code
 * from the start of the function (entry, exit, frameless leaves, the hypercall
 * page, code built without frame pointers); then by frame record; at last by
 * searching the stack. What was interrupted is found through the frame that
 * the processor or Xen pushed. Every return address is checked for a call
 * before it. `frames` holds max_frames. Works on x86-64 and x86-32 by
 * regs->word; on Arm, arm64_walk.h and arm_walk.h say how.
 */
void unwind_stack(const struct unwind_input *in, struct frame *frames, struct unwind_result *out);

#endif
