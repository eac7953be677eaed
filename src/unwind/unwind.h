/* SPDX-License-Identifier: BSD-3-Clause */
#pragma once

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
#include "base/sample_types.h"
#include "unwind/tables/unwind_table.h"

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
	const struct unwind_table *(*table)(void *ctx, uint64_t va, uint64_t *slide);
	/*
	 * Is this in a kernel's code that goes from one program to another, or
	 * gives one up? As long as it runs, the stack may be one program's and
	 * the address space another's. `calls`: it is code that has called, at `va`.
	 */
	bool (*switches)(void *ctx, uint64_t va, bool calls);
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
 * Facts about the guest's code and its stacks, kept from stack to
 * stack: create it once for each guest. Where return addresses are looked up
 * for the first time a stack costs some ten microseconds, later ones less than
 * one; of a stack that was seen before, only what has changed is walked.
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

/* Numbers of frames (unwind_result.ids) have not been set: none is known any more. */
void unwinder_forget_stacks(struct unwinder *unwinder);

struct unwind_input {
	const struct regs *regs;
	const struct window *stack;  /* from the stack pointer */
	const struct window *others; /* other stacks, that this one leads to */
	unsigned n_others;	     /* at most UNWIND_OTHERS */
	const struct code *code;
	struct unwinder *unwinder; /* NULL: do without the code, all callers are guesses */
	/* The stack is a kernel's, of a thread whose program's memory is not seen: the walk ends before that. */
	bool kernel_only;
	bool anew;		   /* walk all of the stack, whatever was remembered */
	size_t max_frames;	   /* at least 1 */
	enum unwind_method method; /* the same for all stacks of an unwinder */
};

struct unwind_result {
	size_t n; /* frames written, leaf first; at least 1 */
	enum unwind_end end;
	/* UNWIND_BYTES: window length in bytes that would have reached the next frame, and some more, */
	uint64_t want;
	const struct window *short_of; /* and of which window; NULL: of in->stack */
	/* ... and where what was missed lies, or somewhat below */
	uint64_t beyond;
	/* UNWIND_BYTES: if not 0, the chain goes on at this address, on none of these stacks */
	uint64_t elsewhere;
	/* A word of a red zone was needed; UNWIND_BYTES: perhaps one that was not copied. */
	bool red_zone;
	/* Address at which the program goes on that the walk has ended before, in a kernel; 0: it has not. */
	uint64_t program;
	/* Bytes of the window, from its beginning, up to the outermost frame in it. */
	uint64_t used;
	/* Bit n: something was read from in->others[n]: others_from and others_used are set. */
	uint32_t others;
	/* A search for a return address has ended with in->stack, of which there is more. */
	bool searched;
	/*
	 * Room for a number of the caller's for each frame, up to the next walk;
	 * NULL if the stack is not remembered. Of so many of the outermost frames
	 * (`common`) those are there that were set when they were seen last.
	 */
	uint32_t *ids;
	size_t common;
	uint32_t others_from
		[UNWIND_OTHERS]; /* the lowest that was read, bytes from its beginning, */
	uint32_t others_used[UNWIND_OTHERS]; /* and how much, as `used` */
};

/*
 * Finds, for each frame, its caller: by the table of the image that it is in;
 * where there is none, or what it says proves false, by following the code
 * from the start of the function (entry, exit, frameless leaves, the hypercall
 * page, code built without frame pointers); then by frame record; at last by
 * searching the stack. What was interrupted is found through the frame that
 * the processor or Xen pushed. Every return address is checked for a call
 * before it. `frames` holds max_frames. What differs from processor to
 * processor: isa.h.
 */
void unwind_stack(const struct unwind_input *in, struct frame *frames, struct unwind_result *out);

/* Bytes of a stack that the walk has not read: from a frame's stack pointer to its caller's. */
struct stack_gap {
	uint64_t from, to;
};

/*
 * The largest gap of the last stack, if that is remembered (out->ids), with at most so many frames above.
 * False: there is none.
 */
bool unwinder_gap(const struct unwind_result *out, size_t frames, struct stack_gap *gap);
