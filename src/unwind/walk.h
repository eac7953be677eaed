/* SPDX-License-Identifier: BSD-3-Clause */
#pragma once

/* State of a walk up the stack, and the rules that find the next caller, a file each. */

#include <stddef.h>
#include <string.h>

#include "unwind/pc_info.h"

/* Bytes above the window beyond which a frame is no part of the stack. */
#define REACH (1u << 20)
/* Longest function without symbols, bytes. */
#define FUNCTION_MAX (1u << 16)

/* A frame, as far as its registers are known. */
struct cursor {
	uint64_t addr; /* a pointer to code */
	uint64_t sp;   /* the frame's, after the return; or a lower bound of it */
	uint64_t fp;   /* 32-bit Arm: a hash of the registers */
	uint64_t ra;   /* the link register's value, if ra_known */
	uint8_t kind;  /* enum frame_kind */
	bool first;    /* all registers are known */
	bool exact;    /* sp is no mere lower bound */
	bool fp_known; /* fp is the code's value there */
	bool chained;  /* fp was stored by a function that works with frame records */
	bool ra_known;
	/*
	 * The step that led here read the words at sp + these, counted in words:
	 * the return address and, if not 0, fp. ret_at 0: it may have read others.
	 */
	int8_t ret_at, fp_at;
};

/* All registers of 32-bit Arm: any of them may be a frame pointer. */
struct arm_registers {
	uint32_t r[16];
	uint16_t known; /* bit n: r[n] */
};

struct walk {
	const struct unwind_input *in;
	struct unwind_result *out;
	const struct window *stack; /* the one that the walk is on */
	uint64_t word;
	const struct unwind_isa *isa;
	struct arm_registers arm; /* of 32-bit Arm only */
	struct cursor at;
	struct frame_state state; /* a copy: looking up others may displace it */
	struct row trap;	  /* the same */
	uint64_t extent;	  /* slot where a search ended with the window; else UINT64_MAX */
	unsigned entry_pos;	  /* position of `entry` in the cache */
	size_t entry_at;	  /* frames of `entry` before this one are passed */
	uint64_t ask_from;	  /* frames below this address are not worth a question */
	uint64_t same_from;	  /* the stack has the bytes of `entry` from this address on */
	/* All from here on is 0 where a walk begins. */
	struct table_entry table; /* a copy as `state` */
	uint64_t elsewhere; /* a word that was needed is on a stack that is not at hand; 0: none */
	struct stack_cache *cache; /* NULL: none to be used */
	struct stack_entry *entry; /* of this stack; NULL: none */
	size_t common;		   /* frames at the end that are the same as the entry's */
	uint64_t top;		   /* nothing from this address on was read */
	uint32_t visited;	   /* bit n: the walk is or was on in->others[n] */
	bool same_known;	   /* same_from is known */
	bool handler;		   /* a copy as `state` */
	bool readable;		   /* the code here */
	bool beyond;		   /* a frame lies above the window: out->want is set */
	bool hurried;		   /* a search that might find a caller was not made */
	bool missed;		   /* a word was looked for on other stacks, in vain */
};

static inline uint64_t read_word(const uint8_t *bytes, uint64_t word)
{
	uint64_t wide;
	uint32_t narrow;

	if (word == 8) {
		memcpy(&wide, bytes, 8);
		return wide;
	}
	memcpy(&narrow, bytes, 4);
	return narrow;
}

static inline bool in_window(const struct window *window, uint64_t va, uint64_t word)
{
	uint64_t offset = va - window->va;

	return offset < window->len && window->len - offset >= word;
}

/* Is this address on another stack? Two stacks may be close, with unmapped pages between them. */
static inline bool walk_is_elsewhere(const struct window *stack, uint64_t va)
{
	uint64_t offset = va - stack->va;

	return offset >= REACH || (offset >= stack->len && !stack->cut);
}

/* Takes the stack that the walk is on now, if it is another. */
bool walk_change_stack(struct walk *walk);

/* A word that the window of this stack lacks. */
bool walk_load_outside(struct walk *walk, uint64_t va, uint64_t *value);

/* Reads a word of the stack at or above the current sp; notes addresses above the window. */
static inline bool walk_load(struct walk *walk, uint64_t va, uint64_t *value)
{
	if (va & (walk->word - 1))
		return false;
	if (va < walk->at.sp || !in_window(walk->stack, va, walk->word))
		return walk_load_outside(walk, va, value);
	if (va + walk->word > walk->top)
		walk->top = va + walk->word;
	*value = read_word(walk->stack->bytes + (va - walk->stack->va), walk->word);
	return true;
}

/* Call it before each word that a search for a return address reads. */
static inline bool walk_spend(struct walk *walk)
{
	unsigned *steps = &walk->in->unwinder->steps;

	*steps -= *steps > 0;
	return *steps;
}

/* The facts about the walk's frame. */
static inline struct pc_info *walk_info(const struct walk *walk)
{
	return pc_info_at(walk->in->unwinder, walk->at.addr, walk->at.kind);
}

/* The call that ends at a return address. */
static inline struct call walk_call(const struct walk *walk, uint64_t ret)
{
	return pc_info_at(walk->in->unwinder, ret, FRAME_RETURN)->call;
}

/* Does the code from `start` on lead to the walk's frame, and by which rule? */
static inline enum flow_result walk_try_start(const struct walk *walk, uint64_t start,
					      struct rule *rule)
{
	return pc_info_try_start(walk->in->unwinder, walk_info(walk), start, rule);
}

/* Where the function begins that symbols name at `va`; false: they name none. */
static inline bool walk_function(const struct walk *walk, uint64_t va, uint64_t *start)
{
	const struct code *code = walk->in->code;
	uint64_t end;

	return code && code->function && code->function(code->ctx, va, start, &end);
}

/* Was the code followed to where the walk stands? */
static inline bool rule_known(const struct frame_state *state)
{
	return state->has_flow && (state->flow == FLOW_FOUND || state->flow == FLOW_GUESSED);
}

/* Return addresses of no caller: 0, and all ones, as xv6 gives its programs and a Cortex-M's link register begins. */
static inline bool walk_is_none(const struct walk *walk, uint64_t ret)
{
	return !ret || ret == (walk->word == 8 ? UINT64_MAX : UINT32_MAX);
}

/* The address that a pointer means. */
static inline uint64_t walk_strip(const struct walk *walk, uint64_t va)
{
	return walk->isa->strip ? walk->isa->strip(&walk->in->regs->mmu, va) : va;
}

/* Stacks are left upwards, or for another one. */
static inline bool walk_goes_up(const struct walk *walk, uint64_t sp)
{
	return sp > walk->at.sp || walk_is_elsewhere(walk->stack, sp);
}

/* Is a word missing that would tell more? */
static inline bool walk_is_stuck(const struct walk *walk)
{
	return walk->beyond || walk->elsewhere;
}

/* Notes that the word at `va` was missed, should it be on another stack. */
void walk_note_elsewhere(struct walk *walk, uint64_t va);

static inline enum found walk_end(struct walk *walk, enum unwind_end why)
{
	walk->out->end = why;
	return FOUND_END;
}

/* The CFA by sp or by fp, as a rule has it; false if it does not tell. */
bool walk_cfa_by_sp(const struct walk *walk, const struct rule *rule, uint64_t *cfa);
bool walk_cfa_by_fp(const struct walk *walk, const struct rule *rule, uint64_t *cfa);

/* Goes behind the call that ends at `ret`. */
static inline void walk_return_to(struct walk *walk, uint64_t ret, uint64_t sp)
{
	walk->at.addr = ret;
	walk->at.kind = FRAME_RETURN;
	walk->at.first = walk->at.ra_known = false;
	walk->at.sp = sp;
}

/* Goes to the caller: `ret` is the return address, by this rule and CFA. */
void walk_go_by_rule(struct walk *walk, const struct rule *rule, uint64_t cfa, uint64_t ret);

/* Rule: following the function's code to the pc. */
enum found rule_code(struct walk *walk, uint8_t *trust);

/* Goes to the caller, if that has called this very function by its address. */
bool rule_go_to_who_called(struct walk *walk);

/* Rule, where no symbol tells the function's start: the code ahead tells it, where it returns. */
enum found rule_return(struct walk *walk, uint8_t *trust);

/* Rule, in the same case: by the link register, or else by rule_return. */
enum found rule_end(struct walk *walk, uint8_t *trust);

/*
 * Rule, in the same case: an instruction before, which makes a frame, leads
 * here, as in a function that never returns. Code that has jumped to that
 * function, and has kept no way back, is an end.
 */
enum found rule_frame(struct walk *walk, uint8_t *trust);

/* Rule: the row of the image's table. */
enum found rule_table(struct walk *walk, uint8_t *trust);

/*
 * Goes to the code that a row says was interrupted: by a handler's own rule
 * (isa.h), or a table's.
 */
bool rule_apply(struct walk *walk, const struct unwind_table *table, const struct row *row,
		struct row_caller *caller);
enum found rule_go_to_interrupted(struct walk *walk, const struct row_caller *caller);

/*
 * Rule: a frame record, if the frame pointer points to what looks like one;
 * blind: without the code.
 */
enum found rule_record(struct walk *walk, bool blind, uint8_t *trust);

/*
 * Rule: search for the first word that looks like a return address and from
 * which the walk goes on well. Always a guess.
 */
enum found rule_scan(struct walk *walk, uint8_t *trust);

/* All of them but the last, in the order of in->method. */
enum found walk_find_caller(struct walk *walk, uint8_t *trust);

/*
 * Searches the stack for a return address that proves itself: it follows a call
 * of a function, and following that function leads here, with the return
 * address in that very word. If the function's code cannot be followed, symbols
 * that name it as the function of this pc suffice.
 */
enum found rule_search(struct walk *walk, uint8_t *trust);

/* In place of a slot: the return address is in the link register. */
#define IN_LINK UINT64_MAX

enum proof {
	PROOF_LEADS,  /* the function that was called leads here, with the return address there */
	PROOF_DENIES, /* it does not */
	PROOF_AWAY,   /* it ends in a jump by a register, as Linux's thunks for indirect calls do */
	PROOF_MISSING, /* it may: its code cannot be followed, or jumps where it cannot be told */
};

/* Does the function that was called, `target`, lead here, when the return address is in `slot`? */
enum proof walk_prove(struct walk *walk, uint64_t slot, uint64_t target);
