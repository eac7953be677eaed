/* SPDX-License-Identifier: BSD-3-Clause */
#pragma once

/*
 * A dump of a guest, ready to be printed: `uniprof stack` as text or as JSON.
 * The caller that fills it in owns what it points to.
 */

#include <stdio.h>

#include "arch/arch.h"
#include "symbol/names/display_name.h"
#include "symbol/names/symbolizer.h"
#include "target/target.h"

#define GUEST_DUMP_CODE_LINES 16

struct guest_dump_trace {
	struct frame *frames; /* leaf first */
	size_t n_frames;
	enum unwind_end end;
	/* Mappings of the process when its frames were read; NULL: not known. */
	const struct guest_mapping_list *mappings;
};

struct guest_dump_vcpu {
	uint32_t id;
	bool online; /* false: nothing below is set */
	enum vcpu_state state;
	const struct recorded_thread *thread; /* that it runs; NULL: not known */
	const struct regs *regs;
	struct registers registers;
	size_t n_code;
	struct code_line code[GUEST_DUMP_CODE_LINES]; /* n_code 0: cannot be read */
	const struct window *stack;
	struct guest_dump_trace trace;
};

/* A thread of the guest's system, which need not run. */
struct guest_dump_thread {
	struct guest_thread thread;
	const char *process; /* name of its process */
	/* ... and what it has mapped, at another moment than the trace; NULL: it was not asked for, or has none. */
	const struct guest_mapping_list *mappings;
	bool read; /* false: it ran, has ended or cannot be read; nothing below is set */
	/* The trace ends in the kernel, which the thread's program called: it goes on here; else 0. */
	uint64_t program;
	struct guest_dump_trace trace;
};

/* A stretch of memory that was asked for. */
struct guest_dump_memory {
	uint64_t va;
	size_t len;    /* bytes that could be read, from the beginning */
	size_t asked;  /* bytes */
	bool as_stack; /* show words, and names of the addresses among them */
	uint8_t *bytes;
};

#define GUEST_DUMP_MEMORY_MAX 16

struct guest_dump {
	const char *scheme; /* "xen" */
	const struct target_info *info;
	enum target_life life;
	uint64_t unix_ns;
	uint64_t paused_ns; /* how long the guest was stopped for this; 0: not at all */
	size_t n_vcpus;
	struct guest_dump_vcpu *vcpus;
	/* Processes behind each other, the leader first. */
	size_t n_threads;
	struct guest_dump_thread *threads;
	const char *trouble; /* a sentence on threads that are missing; NULL: nothing */
	size_t n_memory;
	struct guest_dump_memory memory[GUEST_DUMP_MEMORY_MAX];
	struct symbolizer *symbolizer;
	struct short_names *names; /* for text: those of the traces; NULL: full ones */
};

struct guest_dump_style {
	bool all;		 /* debug and system registers, too */
	bool words;		 /* all words of the stack that point into code */
	bool ascii;		 /* dumps with characters beside */
	unsigned bytes_per_line; /* of dumps of a stack */
	uint64_t lines;		 /* of these, at most */
};

/* Errors are about memory; the caller looks at ferror(). */
struct error *guest_dump_write_text(const struct guest_dump *dump,
				    const struct guest_dump_style *style, FILE *out);
struct error *guest_dump_write_json(const struct guest_dump *dump, FILE *out);

/* "runs", "paused", "crashed", ... */
const char *guest_dump_life_text(enum target_life life);

/* Bits of the code that runs. */
static inline unsigned guest_dump_bits(const struct regs *regs)
{
	return regs->segmented ?: 8u * regs->word;
}

/* False for a thread of a process: its page tables and segments are nobody's business. */
bool guest_dump_has_mode(const struct guest_dump_vcpu *vcpu);

/* A word of a guest, in its byte order; `word` is 8 or 4. */
uint64_t guest_dump_word(const uint8_t *bytes, unsigned word);
