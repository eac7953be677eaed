/* SPDX-License-Identifier: BSD-3-Clause */
#include "unwind/unwind.h"

#include <string.h>

#include "unwind/site.h"

/*
 * For each frame, the first of these rules that finds a caller:
 * - by state: following the function's code to where it stands says where its
 *   return address is, and that is one;
 * - by target: a word on the stack is a return address behind a call of a
 *   function, and following that function leads here, with the return address
 *   in that very word (or, where the function's code cannot be followed,
 *   symbols say that it is the function that stands here);
 * - by record: what the frame pointer points to looks like a frame record.
 */

/* A frame farther above the window than this is no part of the stack. */
#define REACH (1u << 20)
/* Words above the stack pointer that may be the return address; more for one that symbols prove. */
#define SCAN_WORDS 512
/* Without symbols, a function is not expected to be larger. */
#define FUNCTION_MAX (1u << 16)
/* What is asked for beyond the frame that was out of the window, bytes. */
#define MARGIN 512

/* Where the walk stands. */
struct place {
	uint64_t addr;
	uint64_t sp; /* the frame's, after the return; or a lower bound of it */
	uint64_t fp;
	uint8_t kind;  /* enum frame_kind */
	bool exact;    /* sp is no mere lower bound */
	bool fp_known; /* fp is what the code saw there */
	bool chained;  /* fp was stored by a function that works with frame records */
};

struct walk {
	const struct unwind_input *in;
	struct unwind_result *out;
	const struct window *stack; /* the one that the walk is on */
	uint64_t word;
	struct place at;
	struct standing site; /* a copy: looking up others may displace it */
	bool beyond;	      /* a frame lies above the window: out->want is set */
};

enum found {
	FOUND_CALLER, /* walk->at is there, *trust is set */
	FOUND_NONE,   /* nothing has changed */
	FOUND_END     /* out->end says which */
};

static void read_word(const struct walk *walk, const struct window *from, uint64_t offset,
		      uint64_t *value)
{
	uint32_t narrow;

	if (walk->word == 8) {
		memcpy(value, from->bytes + offset, 8);
	} else {
		memcpy(&narrow, from->bytes + offset, 4);
		*value = narrow;
	}
}

static bool in_window(const struct window *window, uint64_t va, uint64_t word)
{
	uint64_t offset = va - window->va;

	return offset < window->len && window->len - offset >= word;
}

/* A word that is not in the window: it may be on the other stack, from which nothing leads back. */
static bool load_outside(struct walk *walk, uint64_t va, uint64_t *value)
{
	const struct window *stack = walk->stack, *other = walk->in->other;
	uint64_t offset = va - stack->va;

	if (va >= walk->at.sp && offset < REACH) {
		if (stack->cut) {
			walk->beyond = true;
			walk->out->want = offset + 2 * walk->word + MARGIN;
		}
		return false;
	}
	if (!other || stack == other || !in_window(other, va, walk->word))
		return false;
	read_word(walk, other, va - other->va, value);
	return true;
}

/* Reads a word of the stack at or above the current sp; notes what lies above the window. */
static inline bool load(struct walk *walk, uint64_t va, uint64_t *value)
{
	if (va & (walk->word - 1))
		return false;
	if (va < walk->at.sp || !in_window(walk->stack, va, walk->word))
		return load_outside(walk, va, value);
	read_word(walk, walk->stack, va - walk->stack->va, value);
	return true;
}

/* The value of a register by its number in instructions, where the walk begins. */
static bool first_register(const struct walk *walk, uint8_t reg, uint64_t *value)
{
	static const uint8_t dwarf_64[8] = {0, 2, 1, 3, 7, 6, 4, 5};
	const struct regs *regs = walk->in->regs;
	unsigned n = walk->word == 8 && reg < 8 ? dwarf_64[reg] : reg;

	if (walk->at.kind != FRAME_PC || reg > 15 || !(regs->gp_valid >> n & 1))
		return false;
	*value = regs->gp[n];
	return true;
}

/* Where a stack was before it was realigned: the address behind the true return address. */
static bool find_origin(struct walk *walk, const struct x86_state *state, uint64_t slot,
			uint64_t *origin)
{
	if (state->origin_at)
		return load(walk, slot - (uint64_t)(int64_t)state->origin_at, origin);
	return first_register(walk, state->origin_reg, origin);
}

/* Goes to the caller: the return address `ret` stands at `slot`, the code is in this state. */
static void go_by_state(struct walk *walk, const struct x86_state *state, uint64_t slot,
			uint64_t ret)
{
	struct place *at = &walk->at;
	uint64_t origin, sp = slot + walk->word;

	at->exact = !state->copied;
	if (state->copied && find_origin(walk, state, slot, &origin) && origin > slot &&
	    !(origin & (walk->word - 1))) {
		sp = origin;
		at->exact = true;
	}
	if (state->saved_at) {
		at->fp_known = load(walk, slot - (uint64_t)(int64_t)state->saved_at, &at->fp);
		at->chained = state->fp_at != 0;
	} else if (state->fp_lost) {
		at->fp_known = false;
	}
	at->addr = ret;
	at->kind = FRAME_RETURN;
	at->sp = sp;
}

/* How far a return address is to be believed that was found by state; false: not at all. */
static bool believe(const struct standing *site, const struct x86_call *call, uint8_t *trust)
{
	if (call->direct && call->target == site->start)
		*trust = TRUST_SURE;
	else if (call->indirect)
		*trust = site->flow == FLOW_FOUND && !site->learned ? TRUST_SURE : TRUST_GUESS;
	else if (call->direct && !site->learned)
		*trust = TRUST_GUESS; /* a function that was called and then jumped to this one? */
	else
		return false;
	return true;
}

static enum found try_slot(struct walk *walk, uint64_t slot, uint8_t *trust)
{
	const struct standing *site = &walk->site;
	uint64_t ret;

	if (!load(walk, slot, &ret))
		return FOUND_NONE;
	if (!ret && site->flow == FLOW_FOUND) {
		walk->out->end = UNWIND_OUTERMOST;
		return FOUND_END;
	}
	if (!believe(site, &site_at(walk->in->unwinder, ret, FRAME_RETURN)->call, trust))
		return FOUND_NONE;
	go_by_state(walk, &site->state, slot, ret);
	return FOUND_CALLER;
}

static bool state_known(const struct standing *site)
{
	return site->has_flow && (site->flow == FLOW_FOUND || site->flow == FLOW_GUESSED);
}

/* Where a state says that the return address is, by sp (else by fp); false if it does not. */
static bool slot_by_sp(const struct walk *walk, const struct x86_state *state, uint64_t *slot)
{
	*slot = walk->at.sp + (uint64_t)(int64_t)state->depth;
	if (state->depth != X86_LOST)
		return walk->at.exact && state->depth >= 0;
	if (state->fp_at || !first_register(walk, state->origin_reg, slot))
		return false;
	*slot -= walk->word;
	return true;
}

static bool slot_by_fp(const struct walk *walk, const struct x86_state *state, uint64_t *slot)
{
	*slot = walk->at.fp + (uint64_t)(int64_t)state->fp_at;
	return walk->at.fp_known && state->fp_at;
}

static enum found by_state(struct walk *walk, uint8_t *trust)
{
	const struct x86_state *state = &walk->site.state;
	enum found found = FOUND_NONE;
	uint64_t by_sp, by_fp;
	bool fp_known;

	if (!state_known(&walk->site))
		return FOUND_NONE;
	/* What was allocated on the stack on some paths only, the frame pointer does not mind. */
	fp_known = slot_by_fp(walk, state, &by_fp);
	if (fp_known)
		found = try_slot(walk, by_fp, trust);
	if (found != FOUND_NONE || walk->beyond || !slot_by_sp(walk, state, &by_sp) ||
	    (fp_known && by_sp == by_fp))
		return found;
	found = try_slot(walk, by_sp, trust);
	/* They disagree: no caller here proves nothing. */
	return found == FOUND_END && fp_known ? FOUND_NONE : found;
}

/* A function that was called from a return address on the stack. */
struct candidate {
	uint64_t slot, ret, target;
	enum flow_result flow;
	struct x86_state state;
	bool proven; /* following it leads here, with the return address in that slot */
};

/* Reads the return address in candidate->slot and says whether it may be ours. */
static bool is_candidate(struct walk *walk, struct candidate *candidate, bool record)
{
	uint64_t addr = walk->at.addr;
	const struct x86_call *call;

	if (!load(walk, candidate->slot, &candidate->ret))
		return false;
	/* A direct call reaches no farther than 2 GiB. */
	if (candidate->ret - addr + (1ull << 32) > 1ull << 33)
		return false;
	call = &site_at(walk->in->unwinder, candidate->ret, FRAME_RETURN)->call;
	candidate->target = call->target;
	/* A function that jumped here, and so is not near, has nothing more on the stack. */
	return call->direct && (record || candidate->slot == walk->at.sp ||
				addr - candidate->target + FUNCTION_MAX < 2 * FUNCTION_MAX);
}

static bool prove(struct walk *walk, struct candidate *candidate)
{
	struct unwinder *unwinder = walk->in->unwinder;
	uint64_t slot;

	candidate->flow = site_try_start(unwinder, site_at(unwinder, walk->at.addr, walk->at.kind),
					 candidate->target, &candidate->state);
	if (candidate->flow != FLOW_FOUND && candidate->flow != FLOW_GUESSED)
		return false;
	if (!slot_by_fp(walk, &candidate->state, &slot) &&
	    !slot_by_sp(walk, &candidate->state, &slot))
		return false;
	return slot == candidate->slot;
}

/* Is it ours? By proof, or because symbols say that it called the function that stands here. */
static bool try_candidate(struct walk *walk, struct candidate *candidate, bool record)
{
	const struct standing *site = &walk->site;

	if (!is_candidate(walk, candidate, record))
		return false;
	candidate->proven = prove(walk, candidate);
	return candidate->proven ||
	       (site->has_start && !site->learned && candidate->target == site->start);
}

static void go_by_candidate(struct walk *walk, const struct candidate *candidate, bool record,
			    uint8_t *trust)
{
	struct unwinder *unwinder = walk->in->unwinder;
	struct place *at = &walk->at;

	if (candidate->proven) {
		site_learn(site_at(unwinder, at->addr, at->kind), candidate->target,
			   candidate->flow, &candidate->state);
		go_by_state(walk, &candidate->state, candidate->slot, candidate->ret);
		*trust = candidate->flow == FLOW_FOUND ? TRUST_SURE : TRUST_GUESS;
		return;
	}
	*trust = record ? TRUST_SURE : TRUST_GUESS;
	if (record) {
		at->chained = true;
		at->fp_known = load(walk, candidate->slot - walk->word, &at->fp);
	}
	at->addr = candidate->ret;
	at->kind = FRAME_RETURN;
	at->sp = candidate->slot + walk->word;
	at->exact = true;
}

/*
 * The record that the frame pointer leads to comes first. But a function that
 * was called later has its return address farther down: if there is one, then
 * the record is its caller's.
 */
static enum found by_target(struct walk *walk, uint8_t *trust)
{
	const struct window *stack = walk->stack;
	uint64_t slot = walk->at.sp, end = slot + SCAN_WORDS * walk->word;
	struct candidate best = {.slot = walk->at.fp + walk->word}, other;
	bool record = walk->at.fp_known && try_candidate(walk, &best, true), found = record;

	walk->beyond = false;
	if (end > stack->va + stack->len / walk->word * walk->word)
		end = stack->va + stack->len / walk->word * walk->word;
	if (record && best.slot < end)
		end = best.slot;
	for (; slot < end; slot += walk->word) {
		other = (struct candidate){.slot = slot};
		if (try_candidate(walk, &other, false) && (!found || other.target > best.target)) {
			best = other;
			record = false;
			found = true;
			break;
		}
	}
	if (!found)
		return FOUND_NONE;
	go_by_candidate(walk, &best, record, trust);
	return FOUND_CALLER;
}

/* May a record be believed whose return address follows this call? */
static bool record_fits(struct walk *walk, const struct x86_call *call)
{
	const struct standing *site = &walk->site;
	uint64_t target = call->target;
	struct x86_state state;

	if (call->indirect)
		return walk->at.kind == FRAME_RETURN || site->has_start ||
		       site_finds_frame(walk->in->unwinder,
					site_at(walk->in->unwinder, walk->at.addr, walk->at.kind));
	if (!call->direct)
		return false;
	if (site->has_start)
		return target == site->start;
	return walk->at.addr - target < FUNCTION_MAX &&
	       site_try_start(walk->in->unwinder,
			      site_at(walk->in->unwinder, walk->at.addr, walk->at.kind), target,
			      &state) == FLOW_UNKNOWN;
}

/* Only for code that cannot be followed; blind: nor even read. */
static enum found by_record(struct walk *walk, bool blind, uint8_t *trust)
{
	uint64_t fp = walk->at.fp, next, ret;

	if (!walk->at.fp_known || (!blind && state_known(&walk->site)))
		return FOUND_NONE;
	if (!load(walk, fp, &next) || !load(walk, fp + walk->word, &ret))
		return FOUND_NONE;
	if (!ret) {
		walk->out->end = walk->at.chained || blind ? UNWIND_OUTERMOST : UNWIND_BROKEN;
		return FOUND_END;
	}
	if (!blind) {
		struct x86_call call = site_at(walk->in->unwinder, ret, FRAME_RETURN)->call;

		if (!record_fits(walk, &call))
			return FOUND_NONE;
	}
	walk->at = (struct place){.addr = ret,
				  .kind = FRAME_RETURN,
				  .sp = fp + 2 * walk->word,
				  .exact = true,
				  .fp = next,
				  .fp_known = true,
				  .chained = true};
	*trust = TRUST_GUESS;
	return FOUND_CALLER;
}

/*
 * Does the frame pointer lead to another stack? Only if the code is known to
 * have set it up: in other code it can be anything.
 */
static bool leads_elsewhere(const struct walk *walk)
{
	const struct place *at = &walk->at;

	return at->fp_known && at->fp && !(at->fp & (walk->word - 1)) && state_known(&walk->site) &&
	       walk->site.state.fp_at && at->fp - walk->stack->va >= REACH;
}

/* No rule found a caller: why? */
static enum unwind_end reason(const struct walk *walk)
{
	const struct place *at = &walk->at;

	if (walk->beyond)
		return UNWIND_BYTES;
	if (leads_elsewhere(walk)) {
		walk->out->elsewhere = at->fp;
		return UNWIND_BYTES;
	}
	if (at->kind == FRAME_RETURN && walk->site.flow == FLOW_FOUND && state_known(&walk->site) &&
	    walk->site.state.entry)
		return UNWIND_OUTERMOST;
	if (at->chained && at->fp_known && !at->fp)
		return UNWIND_OUTERMOST;
	if (at->chained && at->fp_known && at->fp < at->sp && at->fp >= walk->stack->va)
		return UNWIND_LOOP;
	return UNWIND_BROKEN;
}

static enum found find_caller(struct walk *walk, uint8_t *trust)
{
	struct unwinder *unwinder = walk->in->unwinder;
	enum found found;
	bool blind = true;

	walk->beyond = false;
	if (unwinder) {
		struct site *site = site_at(unwinder, walk->at.addr, walk->at.kind);

		if (site->standing.has_start && !site->standing.has_flow)
			site_follow(unwinder, site);
		walk->site = site->standing;
		blind = !site->readable;
	}
	if (blind)
		return by_record(walk, true, trust);
	found = by_state(walk, trust);
	if (found != FOUND_NONE || walk->beyond)
		return found;
	found = by_target(walk, trust);
	return found == FOUND_NONE ? by_record(walk, false, trust) : found;
}

void unwind_frame_pointer(const struct unwind_input *in, struct frame *frames,
			  struct unwind_result *out)
{
	const struct regs *regs = in->regs;
	struct walk walk = {.in = in, .out = out, .stack = in->stack, .word = regs->word};
	enum found found;
	uint8_t trust;

	frames[0] = (struct frame){.addr = regs->pc, .kind = FRAME_PC, .trust = TRUST_SURE};
	*out = (struct unwind_result){.n = 1, .end = UNWIND_NO_STACK};
	if (!in->stack->len || !regs->sp)
		return;
	if (in->unwinder)
		site_begin(in->unwinder, in);
	walk.at = (struct place){.addr = regs->pc,
				 .sp = in->stack->va,
				 .fp = regs->fp,
				 .kind = FRAME_PC,
				 .exact = regs->sp % walk.word == 0,
				 .fp_known = true};
	while ((found = find_caller(&walk, &trust)) == FOUND_CALLER) {
		if (out->n == in->max_frames) {
			out->end = UNWIND_FRAMES;
			return;
		}
		frames[out->n++] =
			(struct frame){.addr = walk.at.addr, .kind = FRAME_RETURN, .trust = trust};
		if (in->other && !in_window(walk.stack, walk.at.sp - walk.word, walk.word))
			walk.stack = in->other;
		if (walk.stack == in->stack)
			out->used = walk.at.sp - in->stack->va;
	}
	if (found == FOUND_NONE)
		out->end = reason(&walk);
	if (out->end != UNWIND_BYTES)
		out->want = 0;
}
