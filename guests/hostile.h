/* SPDX-License-Identifier: BSD-3-Clause */
/* Shared by the parts of the hostile guest. */
#pragma once

#include "guest.h"

/* In the order in which hold() loads them. */
enum { RAX, RCX, RDX, RBX, RBP, RSI, RDI, R8, R9, R10, R11, R12, R13, R14, R15, RSP, REGISTERS };

/* The state in which a vCPU is held, to be sampled. */
struct scene {
	uint64_t registers[REGISTERS];
	const void *code; /* hold_loop or a copy of it, framed_loop */
};

struct hostility {
	const char *name;
	/*
	 * Sets the scene for this turn in the address space turn % SPACES, which is then loaded.
	 * In turns 0 and 1 it finds the window's tables as paging_init left them.
	 */
	void (*set)(struct scene *scene, unsigned int turn);
};

/* Memory to write anything into. */
#define ARENA_BYTES 0x200000ul
#define ARENA_WORDS (ARENA_BYTES / 8)
extern uint64_t arena[ARENA_WORDS];

struct record {
	uint64_t next, ret;
};

uint64_t random_word(void);
void be_hostile(const struct hostility *hostility, uint64_t until);

/* In assembly: see there. */
void hold(const uint64_t registers[REGISTERS], const void *code);
extern volatile uint64_t hold_rounds;
/* Places in its code. */
extern const uint8_t *const hold_loop,
	*const hold_loop_end, *const framed_loop, *const framed_return, *const linked_return,
										*const other_return;

/* hostile-code.c */
/* Copies hold_loop, and returns where it is. */
const void *put_loop(uint8_t *at);
void set_code(struct scene *scene, unsigned int turn);
void set_calls(struct scene *scene, unsigned int turn);
void set_nowhere(struct scene *scene, unsigned int turn);

/* hostile-tables.c */
void tables_reset(unsigned int space);
void set_tables(struct scene *scene, unsigned int turn);
void set_self_map(struct scene *scene, unsigned int turn);
void set_hops(struct scene *scene, unsigned int turn);
void set_brink(struct scene *scene, unsigned int turn);
void set_top(struct scene *scene, unsigned int turn);

/* hostile-names.c */
/* Where Linux's kernels are on x86-64. */
#define KERNEL 0xffffffff80000000ul
/* Lets the vCPU spin there, in the arena, which repeats through all of a gigabyte. */
void execute_there(struct scene *scene, unsigned int turn);
void set_markers(struct scene *scene, unsigned int turn);
void set_indices(struct scene *scene, unsigned int turn);
void set_notes(struct scene *scene, unsigned int turn);

/* hostile-kernel.c */
void set_types(struct scene *scene, unsigned int turn);
void set_modules(struct scene *scene, unsigned int turn);
void set_counts(struct scene *scene, unsigned int turn);
