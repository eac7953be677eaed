/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef UNIPROF_OUTPUT_GLANCE_H
#define UNIPROF_OUTPUT_GLANCE_H

/*
 * One look at a guest, ready to be shown: what `uniprof stack` prints, as text
 * or as JSON. Whoever fills it in owns what it points to.
 */

#include <stdio.h>

#include "arch/registers.h"
#include "view/disassemble.h"
#include "symbol/namer.h"
#include "target/target.h"

#define GLANCE_CODE_LINES 16

struct glance_vcpu {
	uint32_t id;
	bool online; /* false: nothing below is set */
	enum vcpu_state state;
	const struct regs *regs;
	struct registers registers;
	size_t n_code;
	struct code_line code[GLANCE_CODE_LINES]; /* n_code 0: cannot be read */
	const struct window *stack;
	struct frame *frames; /* leaf first */
	size_t n_frames;
	enum unwind_end end;
};

/* A stretch of memory that was asked for. */
struct glance_memory {
	uint64_t va;
	size_t len;    /* bytes that could be read, from the beginning */
	size_t asked;  /* bytes */
	bool as_stack; /* show words, and what they point to */
	uint8_t *bytes;
};

#define GLANCE_MEMORY_MAX 16

struct glance {
	const char *scheme; /* "xen" */
	const struct target_info *info;
	enum target_life life;
	uint64_t unix_ns;
	uint64_t paused_ns; /* how long the guest was stopped for this; 0: not at all */
	size_t n_vcpus;
	struct glance_vcpu *vcpus;
	size_t n_memory;
	struct glance_memory memory[GLANCE_MEMORY_MAX];
	struct namer *namer;
};

struct glance_style {
	bool all;		 /* debug and system registers, too */
	bool words;		 /* all words of the stack that point into code */
	bool ascii;		 /* dumps with characters beside */
	unsigned bytes_per_line; /* of dumps of a stack */
	uint64_t lines;		 /* of these, at most */
};

/* Errors are about memory; the caller looks at ferror(). */
struct error *glance_write_text(const struct glance *glance, const struct glance_style *style,
				FILE *out);
struct error *glance_write_json(const struct glance *glance, FILE *out);

/* "runs", "paused", "crashed", ... */
const char *glance_life_text(enum target_life life);

/* False for a thread of a process: its page tables and segments are nobody's business. */
bool glance_has_mode(const struct glance_vcpu *vcpu);

/* Part of the text: what is in memory (glance_dump.c). */
struct error *glance_dump_code(const struct glance *glance, const struct glance_vcpu *vcpu,
			       FILE *out);
struct error *glance_dump_stack(const struct glance *glance, const struct glance_vcpu *vcpu,
				const struct glance_style *style, FILE *out);
struct error *glance_dump_memory(const struct glance *glance, const struct glance_memory *memory,
				 FILE *out);

/* A word of a guest, in its byte order; `word` is 8 or 4. */
uint64_t glance_word(const uint8_t *bytes, unsigned word);

/* "  spin+0x13" if there is code by some name, else nothing. */
struct error *glance_put_place(const struct glance *glance, uint64_t addr, FILE *out);

#endif
