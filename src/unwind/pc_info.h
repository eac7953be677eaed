/* SPDX-License-Identifier: BSD-3-Clause */
#pragma once

/*
 * Facts about an address in the code, found out once and then cached in `struct
 * unwinder`: does a call end there, which function is it in, and by which rule
 * is its caller found?
 */

#include "unwind/isa.h"

/* The function that an address is in, and the rule there. */
struct frame_state {
	bool has_start; /* the function is known: by symbols, as a stub, or learned */
	bool learned;	/* learned: another function's code leads here */
	bool has_flow;	/* its code was followed: `flow` and `rule` are set */
	enum flow_result flow;
	uint64_t start, end; /* end 0: not known */
	struct rule rule;
};

/* Unwind table entry of an address. */
struct table_entry {
	const struct row *row;		  /* NULL: nothing */
	const struct unwind_table *whole; /* the table that it is in */
	uint64_t base;			  /* where its offset 0 is in the guest */
};

/* Ways to a caller without knowing the function, sought once. */
enum pc_info_sought {
	/* An instruction a little before makes a frame and leads here, as in a function that never returns. */
	SOUGHT_FRAME,
	SOUGHT_RETURN, /* the code ahead returns */
	/* A frame record set up a little before leads here: the function works with such; no rule is kept. */
	SOUGHT_RECORD,
	/* The code ahead never returns, nor leaves its function, whose bounds are known; no rule is kept. */
	SOUGHT_NEVER,
	PC_INFO_SOUGHT
};

struct pc_info {
	uint64_t addr, root; /* a pointer to code (unwind_isa.address), in this address space */
	uint8_t kind;	     /* enum frame_kind */
	uint8_t word;	     /* 0: nothing in here */
	uint32_t age;	     /* of the unwinder, when this was found out */
	uint32_t until;	     /* number of the stack up to which unreadable code is believed */
	bool readable;	     /* its code can be read; if not, nothing below is set but table */
	struct call call;    /* FRAME_RETURN only */
	struct frame_state state;
	struct table_entry table;
	bool explored;	 /* trap and handler are set; so is state.flow, if the function is known */
	bool handler;	 /* code that ends in a return from an interrupt */
	struct row trap; /* way to the interrupted code */
	uint64_t jumped_from;  /* another function that leads here; UINT64_MAX: none known */
	uint64_t not_start[4]; /* functions that do not lead here, the last that were tried, */
	uint8_t not_flow[4];   /* FLOW_NOT or FLOW_AWAY */
	uint8_t n_not;
	/* Results of pc_info_seek. */
	bool sought[PC_INFO_SOUGHT], is_found[PC_INFO_SOUGHT];
	struct rule found[SOUGHT_RECORD];
	uint64_t began; /* SOUGHT_FRAME: address of that instruction */
	uint8_t vain;	/* searches of the stack for its caller that found none */
};

/* Instructions that may be followed for one stack, so that a hostile guest costs little. */
#define UNWIND_STEPS 60000

/*
 * Instructions that may be followed for all stacks together: on average, and
 * saved up. Each takes some 10 ns.
 */
#define UNWIND_STEPS_PER_S 10000000u
#define UNWIND_STEPS_SAVED 3000000u

/* Stacks after which cached facts expire: code may change, as while a guest boots. */
#define PC_INFO_STACKS 2048
/* Stacks after which facts expire that say that an address cannot be read. */
#define UNREADABLE_STACKS 64

#define PC_INFO_BITS 12 /* log 2 of the number of addresses that are kept, each in one slot */

#define ENTRANCES 256 /* a power of two */

/* Entry of a program into a kernel: its frame, and its address space. */
struct entrance {
	uint64_t stack, root;
};

struct unwinder {
	const struct unwind_isa *isa; /* of this stack */
	struct code_reader reader;
	unsigned steps; /* left for this stack, */
	unsigned lent;	/* of so many at its beginning, */
	unsigned saved; /* and so many for it and later ones; not used if not rationed */
	bool rationed;
	uint64_t rationed_ns; /* up to this time */
	uint32_t stack;	      /* number of this stack */
	uint32_t young;	      /* stacks since it grew old last */
	unsigned version;     /* of the code */
	uint32_t age;	      /* grows every PC_INFO_STACKS stacks */
	uint64_t root;
	uint8_t word;
	enum unwind_method method;
	struct pc_info *info;
	struct step_cache *known_steps;
	struct stack_cache *known_stacks;
	struct entrance entrances[ENTRANCES]; /* each in one slot */
};

/* Must be called before the others, once for each stack. */
void unwinder_begin(struct unwinder *unwinder, const struct unwind_input *in);

/* Fills the slot with the facts about the address. */
struct pc_info *pc_info_fill(struct unwinder *unwinder, struct pc_info *info, uint64_t addr,
			     uint8_t kind);

/* Never NULL; valid until the next call. */
static inline struct pc_info *pc_info_at(struct unwinder *unwinder, uint64_t addr, uint8_t kind)
{
	uint64_t hash = (addr ^ unwinder->root) * 0x9e3779b97f4a7c15ull + kind;
	struct pc_info *info = &unwinder->info[hash >> (64 - PC_INFO_BITS)];

	if (info->addr == addr && info->root == unwinder->root && info->kind == kind &&
	    info->word == unwinder->word && info->age == unwinder->age &&
	    (info->readable || info->until - unwinder->stack <= UNREADABLE_STACKS))
		return info;
	return pc_info_fill(unwinder, info, addr, kind);
}

/*
 * Follows the code before and behind the address, if that helps and was not
 * done before: sets state.flow, if the function is known, and trap.
 */
void pc_info_explore(struct unwinder *unwinder, struct pc_info *info);

/*
 * Follows the code from `start`, which may be a function's; returns the rule if
 * that leads here. Caches only starts that do not lead here.
 */
enum flow_result pc_info_try_start(struct unwinder *unwinder, struct pc_info *info, uint64_t start,
				   struct rule *rule);

/* Fills in the rule, unless it is of SOUGHT_RECORD; false if there is none. */
bool pc_info_seek(struct unwinder *unwinder, struct pc_info *info, enum pc_info_sought what,
		  struct rule *rule);
