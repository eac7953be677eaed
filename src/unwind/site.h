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
#include "unwind/x86_trap.h"

/* The function that a place is in, and what it has done when it gets there. */
struct standing {
	bool has_start; /* the function is known: by symbols, as a stub, or learned */
	bool learned;	/* ... the last of these */
	bool has_flow;	/* its code was followed: `flow` and `state` are set */
	enum flow_result flow;
	uint64_t start, end; /* end 0: not known */
	struct x86_state state;
};

/* What the table of an image says of a place. */
struct tabled {
	const struct row *row; /* NULL: nothing */
	const struct rows *rows;
	uint64_t base; /* where its offset 0 is in the guest */
};

struct site {
	uint64_t addr, root;  /* the place, in this address space */
	uint8_t kind;	      /* enum frame_kind */
	uint8_t word;	      /* 0: nothing in here */
	uint32_t age;	      /* of the unwinder, when this was found out */
	bool readable;	      /* its code can be read; if not, nothing below is set */
	struct x86_call call; /* FRAME_RETURN only */
	struct standing standing;
	struct tabled table;
	bool explored;	       /* trap is set, and standing.flow if the function is known */
	struct row trap;       /* code that ends in an iret: how to get to what was interrupted */
	uint64_t jumped_from;  /* another function that leads here; 0: none known */
	uint64_t not_start[4]; /* functions that do not lead here, the last that were tried */
	uint8_t n_not;
	bool has_looked, has_frame; /* what site_finds_frame found */
	uint8_t vain;		    /* searches of the stack for its caller that found none */
};

/* The instructions that may be looked at for one stack, so that a hostile guest costs little. */
#define UNWIND_STEPS 60000

/* ... and for all of them together, in the long run and at once. Each takes some 10 ns.*/
#define UNWIND_STEPS_PER_S 10000000u
#define UNWIND_STEPS_SAVED 3000000u

/* Code may change after all (while a guest boots): what is known is good for so many stacks. */
#define SITE_STACKS 2048

#define SITE_BITS 12 /* log 2 of the number of sites that are kept, each in one place */

struct arm64_unwinder;
struct arm_unwinder;

#define ENTRANCES 256 /* a power of two */

/* From where in a kernel a program was seen, and in which address space. */
struct entrance {
	uint64_t stack, root;
};

struct unwinder {
	struct flow_scratch *scratch;
	struct code_reader reader;
	unsigned steps; /* left for this stack, */
	unsigned lent;	/* of so many at its beginning, */
	unsigned saved; /* and so many for it and later ones; not used if not rationed */
	bool rationed;
	uint64_t rationed_ns; /* up to this time */
	uint32_t stacks;      /* since it grew old last */
	unsigned version;     /* of the code */
	uint32_t age;	      /* grows every SITE_STACKS stacks */
	uint64_t root;
	uint8_t word;
	enum unwind_method method;
	struct site *sites;
	struct steps *steps_known;
	struct arm64_unwinder *arm64;
	struct arm_unwinder *arm;
	struct entrance entrances[ENTRANCES]; /* each in one place */
	struct place *places; /* [MEMO_FRAMES]: where the present walk stood at each frame */
};

/* What the tables say of a place. `kind`: a return address belongs to the call before it. */
void site_find_row(const struct code *code, uint64_t addr, enum frame_kind kind,
		   struct tabled *table);

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

/*
 * Follows the code before and behind the site, as far as that is of use and
 * was not done before: sets standing.flow, if the function is known, and trap.
 */
void site_explore(struct unwinder *unwinder, struct site *site);

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
