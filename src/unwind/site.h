/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef UNIPROF_UNWIND_SITE_H
#define UNIPROF_UNWIND_SITE_H

/*
 * What is known of a place in the code: is it a return address, in which
 * function does it stand, and where has that function put its own return
 * address there? Found out once and then kept, in `struct unwinder`.
 */

#include "unwind/unwind.h"
#include "unwind/x86_call.h"
#include "unwind/x86_flow.h"

/* The function that a place is in, and what it has done when it gets there. */
struct standing {
	bool has_start; /* the function is known: by symbols, as a stub, or learned */
	bool learned;	/* ... the last of these */
	bool has_flow;	/* its code was followed: `flow` and `state` are set */
	enum flow_result flow;
	uint64_t start, end; /* end 0: not known */
	struct x86_state state;
};

struct site {
	uint64_t addr, root;  /* the place, in this address space */
	uint8_t kind;	      /* enum frame_kind */
	uint8_t word;	      /* 0: nothing in here */
	uint32_t age;	      /* of the unwinder, when this was found out */
	bool readable;	      /* its code can be read; if not, nothing below is set */
	struct x86_call call; /* FRAME_RETURN only */
	struct standing standing;
	uint64_t jumped_from;  /* another function that leads here; 0: none known */
	uint64_t not_start[4]; /* functions that do not lead here, the last that were tried */
	uint8_t n_not;
	bool has_looked, has_frame; /* what site_finds_frame found */
};

/* The instructions that may be looked at for one stack, so that a hostile guest costs little. */
#define UNWIND_STEPS 60000

/* Code may change after all (while a guest boots): what is known is good for so many stacks. */
#define SITE_STACKS 2048

#define SITE_BITS 12 /* log 2 of the number of sites that are kept, each in one place */

struct unwinder {
	struct flow_scratch *scratch;
	struct code_reader reader;
	unsigned steps;	 /* left for this stack */
	uint32_t stacks; /* since the beginning */
	uint32_t age;	 /* grows every SITE_STACKS stacks */
	uint64_t root;
	uint8_t word;
	struct site *sites;
};

/* Must be called before the others, once for each stack. */
void site_begin(struct unwinder *unwinder, const struct unwind_input *in);

/* Replaces what is in the site's place by what can be found out about it. */
struct site *site_fill(struct unwinder *unwinder, struct site *site, uint64_t addr, uint8_t kind);

/* Never NULL; valid until the next call. */
static inline struct site *site_at(struct unwinder *unwinder, uint64_t addr, uint8_t kind)
{
	uint64_t hash = (addr ^ unwinder->root) * 0x9e3779b97f4a7c15ull + kind;
	struct site *site = &unwinder->sites[hash >> (64 - SITE_BITS)];

	if (site->addr == addr && site->root == unwinder->root && site->kind == kind &&
	    site->word == unwinder->word && site->age == unwinder->age)
		return site;
	return site_fill(unwinder, site, addr, kind);
}

/* Follows the site's function, which must be known. */
void site_follow(struct unwinder *unwinder, struct site *site);

/*
 * If a function that starts at `start` leads to the site, says so and returns
 * the state there. Only remembers what does not.
 */
enum flow_result site_try_start(struct unwinder *unwinder, struct site *site, uint64_t start,
				struct x86_state *state);

/*
 * Without knowing the function: does a frame set up a little before lead here?
 * If so, the site is in a function that works with frame records.
 */
bool site_finds_frame(struct unwinder *unwinder, struct site *site);

/* Makes `start`, found by site_try_start with this outcome, the site's function. */
void site_learn(struct site *site, uint64_t start, enum flow_result flow,
		const struct x86_state *state);

#endif
