/* SPDX-License-Identifier: BSD-3-Clause */
#pragma once

/*
 * Real stacks, recorded once, for unwinders to be timed on. They are those of
 * a child of this process: its code is at the same addresses, so that code and
 * tables can be read from our own memory.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define FRAMES_MAX  128
#define STACK_BYTES 16384
#define MODULES_MAX 16
#define RED_ZONE    128 /* bytes below the stack pointer (System V ABI x86-64, 3.2.2) */

struct recorded {
	uint64_t gp[17]; /* by DWARF number; 16: the program counter */
	uint64_t va;	 /* of bytes[0]: RED_ZONE below the stack pointer */
	size_t len;
	uint8_t bytes[STACK_BYTES];
};

/* A file that code of ours comes from. */
struct module {
	char path[512];
	uint64_t bias;	     /* address here less that in the file */
	uint64_t start, end; /* of all its segments, here */
	uint64_t text, text_end;
	uint64_t eh_frame_hdr; /* here; 0: none */
	size_t eh_frame_hdr_len;
};

struct recording {
	struct recorded *stack;
	size_t n;
	struct module module[MODULES_MAX];
	size_t n_modules;
};

/* Fills in `n` stacks. Ends the process with a sentence if that cannot be. */
void record_stacks(struct recording *recording, size_t n);

const struct module *module_at(const struct recording *recording, uint64_t va);

/* Reads from the stack, or from our mapped modules; false if the address is in neither. */
bool recorded_read(const struct recording *recording, const struct recorded *stack, uint64_t va,
		   void *buf, size_t len);

/* Work of the child, without end. */
void subject(void);

/* The call chains of one stack, leaf first. */
struct chain {
	size_t n;
	uint64_t addr[FRAMES_MAX];
};

/* One unwinder: prepares itself, and walks recorded stacks. */
struct contender {
	const char *name;
	void *(*begin)(const struct recording *recording);
	void (*walk)(void *self, const struct recorded *stack, struct chain *chain);
	void (*end)(void *self);
};

extern const struct contender contender_table, contender_rows, contender_fp, contender_libdwfl,
	contender_libunwind;
