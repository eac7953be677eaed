/* SPDX-License-Identifier: BSD-3-Clause */
#include "unwind/arm_walk.h"

#include <stdlib.h>

#include "arch/arm_regs.h"
#include "unwind/arm_flow.h"
#include "unwind/arm_record.h"

#define SITE_BITS 12 /* log 2 of the places that are remembered */

/* What following the code said of a place. */
struct arm_site {
	uint64_t addr, root;
	uint32_t age;
	uint8_t kind;  /* enum frame_kind */
	uint8_t flags; /* of FRAME_PC: those that conditions are made of */
	bool thumb, filled;
	uint8_t known; /* enum arm_known */
	uint64_t start;
	struct arm_state state;
};

struct arm_unwinder {
	struct arm_scratch *scratch;
	struct arm_site site[1u << SITE_BITS];
};

struct arm_unwinder *arm_unwinder_new(void)
{
	struct arm_unwinder *unwinder = calloc(1, sizeof(*unwinder));

	if (unwinder)
		unwinder->scratch = arm_scratch_new();
	if (unwinder && !unwinder->scratch) {
		free(unwinder);
		unwinder = NULL;
	}
	return unwinder;
}

void arm_unwinder_free(struct arm_unwinder *unwinder)
{
	if (unwinder)
		arm_scratch_free(unwinder->scratch);
	free(unwinder);
}

/* Does a call end at this address? Then *len is its length, *target as arm_is_call says. */
static bool call_before(const struct code *code, uint64_t ret, bool thumb, unsigned *len,
			uint64_t *target, bool *readable)
{
	uint8_t bytes[4];
	uint32_t insn;

	*len = 4;
	*target = 0;
	*readable = code->read && code->read(code->ctx, ret - 4, bytes, 4) == 4;
	if (!*readable)
		return true;
	insn = (uint32_t)(bytes[0] | bytes[1] << 8) | (uint32_t)(bytes[2] | bytes[3] << 8) << 16;
	if (!thumb)
		return arm_is_call(insn, ret - 4, target);
	if (thumb_is_call(insn << 16 | insn >> 16, 4, ret - 4, target))
		return true;
	*len = 2;
	return thumb_is_call(insn >> 16, 2, ret - 2, target);
}

static uint8_t condition_flags(const struct arm_walk *walk)
{
	return walk->walk.at.kind == FRAME_PC ? (uint32_t)walk->walk.in->regs->flags >> 28 : 0;
}

static void fill(const struct arm_walk *walk, struct arm_site *site)
{
	struct unwinder *unwinder = walk->walk.in->unwinder;
	const struct code *code = walk->walk.in->code;
	const struct place *at = &walk->walk.at;
	struct arm_query query = {.thumb = walk->thumb,
				  .pc = at->addr,
				  .by_flags = at->kind == FRAME_PC,
				  .flags = (uint32_t)walk->walk.in->regs->flags};
	uint64_t target;
	unsigned len;
	bool readable;

	*site = (struct arm_site){.addr = at->addr,
				  .root = unwinder->root,
				  .age = unwinder->age,
				  .kind = at->kind,
				  .flags = condition_flags(walk),
				  .thumb = walk->thumb,
				  .known = ARM_UNKNOWN,
				  .filled = true};
	/* A call is entered in the state of the code before it. */
	if (at->kind == FRAME_RETURN &&
	    call_before(code, at->addr, walk->thumb, &len, &target, &readable))
		query.pc -= len;
	if (!code->read || !code->function ||
	    !code->function(code->ctx, query.pc, &query.start, &query.end) ||
	    query.end - query.start > ARM_FUNCTION_MAX || unwinder->steps < ARM_FUNCTION_MAX)
		return;
	unwinder->steps -= (unsigned)(query.end - query.start);
	site->start = query.start;
	site->known = (uint8_t)arm_follow(unwinder->arm->scratch, code, &query, &site->state);
}

static const struct arm_site *site_of(const struct arm_walk *walk)
{
	const struct unwinder *unwinder = walk->walk.in->unwinder;
	const struct place *at = &walk->walk.at;
	const uint8_t flags = condition_flags(walk);
	const uint64_t hash = ((at->addr ^ unwinder->root) + at->kind + ((uint64_t)flags << 32)) *
			      0x9e3779b97f4a7c15ull;
	struct arm_site *site = &unwinder->arm->site[hash >> (64 - SITE_BITS)];

	if (!site->filled || site->addr != at->addr || site->root != unwinder->root ||
	    site->kind != at->kind || site->flags != flags || site->thumb != walk->thumb ||
	    site->age != unwinder->age)
		fill(walk, site);
	return site;
}

bool arm_believe(const struct arm_walk *walk, uint64_t ret, struct arm_return *out)
{
	const struct code *code = walk->walk.in->code;
	unsigned len;

	out->thumb = ret & 1;
	out->addr = ret & ~1ull;
	if (!out->thumb && ret & 2)
		return false;
	return call_before(code, out->addr, out->thumb, &len, &out->target, &out->readable);
}

void arm_go(struct arm_walk *walk, const struct arm_return *ret, uint64_t sp)
{
	walk->thumb = ret->thumb;
	walk->r[ARM_SP] = (uint32_t)sp;
	walk->known = (uint16_t)((walk->known & ARM_KEPT & ~(1u << ARM_LR)) | 1u << ARM_SP);
	walk->walk.at = (struct place){.addr = ret->addr, .kind = FRAME_RETURN, .sp = sp};
}

static enum found end(struct arm_walk *walk, enum unwind_end why)
{
	walk->walk.out->end = why;
	return FOUND_END;
}

/* By the stack pointer, or by whatever register keeps a distance to it. */
static bool cfa_of(const struct arm_walk *walk, const struct arm_state *state, uint64_t *cfa)
{
	const unsigned usable = state->based & walk->known;
	unsigned reg;

	if (!usable)
		return false;
	reg = usable >> ARM_SP & 1 ? ARM_SP : (unsigned)__builtin_ctz(usable);
	*cfa = walk->r[reg] - (uint32_t)state->base[reg];
	return *cfa >= walk->walk.at.sp && *cfa - walk->walk.at.sp <= REACH && !(*cfa & 3);
}

static uint64_t slot(const struct arm_state *state, uint64_t cfa, unsigned reg)
{
	return (uint32_t)(cfa + (uint32_t)state->at[reg]);
}

static void restore(struct arm_walk *walk, const struct arm_state *state, uint64_t cfa)
{
	for (unsigned reg = 4; reg < ARM_IP; reg++) {
		const uint16_t bit = (uint16_t)(1u << reg);
		uint64_t value;

		if (state->saved & bit && walk_load(&walk->walk, slot(state, cfa, reg), &value)) {
			walk->r[reg] = (uint32_t)value;
			walk->known |= bit;
		} else if ((state->saved | state->lost) & bit) {
			walk->known &= (uint16_t)~bit;
		}
	}
}

static enum found by_code(struct arm_walk *walk, uint8_t *trust)
{
	const struct arm_site *site = site_of(walk);
	const struct arm_state *state = &site->state;
	const bool lr_saved = state->saved >> ARM_LR & 1, lr_lost = state->lost >> ARM_LR & 1;
	struct arm_return ret;
	uint64_t cfa, word;

	if (site->known == ARM_UNKNOWN || !cfa_of(walk, state, &cfa))
		return FOUND_NONE;
	/* It has called something and has kept no way back: it never returns. */
	if (!lr_saved && (lr_lost || walk->walk.at.kind == FRAME_RETURN))
		return site->known == ARM_FOLLOWED ? end(walk, UNWIND_OUTERMOST) : FOUND_NONE;
	word = walk->r[ARM_LR];
	if (lr_saved ? !walk_load(&walk->walk, slot(state, cfa, ARM_LR), &word)
		     : !(walk->known >> ARM_LR & 1))
		return FOUND_NONE;
	if (!word)
		return end(walk, UNWIND_OUTERMOST);
	if (!arm_believe(walk, word, &ret))
		return FOUND_NONE;
	*trust = site->known == ARM_FOLLOWED && ret.readable &&
				 (!ret.target || ret.target == site->start)
			 ? TRUST_SURE
			 : TRUST_GUESS;
	restore(walk, state, cfa);
	arm_go(walk, &ret, cfa);
	return FOUND_CALLER;
}

static bool climb(struct arm_walk *walk, struct frame *frames)
{
	struct unwind_result *out = walk->walk.out;
	const struct window *stack = walk->walk.stack;
	uint8_t trust = TRUST_GUESS;
	enum found found;

	walk->walk.beyond = false;
	found = walk->walk.in->unwinder ? by_code(walk, &trust) : FOUND_NONE;
	if (found == FOUND_NONE && !walk->walk.beyond)
		found = arm_by_record(walk);
	if (found == FOUND_NONE)
		out->end = walk->walk.beyond ? UNWIND_BYTES : UNWIND_BROKEN;
	if (found != FOUND_CALLER)
		return false;
	if (out->n == walk->walk.in->max_frames) {
		out->end = UNWIND_FRAMES;
		return false;
	}
	out->used = walk->walk.at.sp - stack->va;
	if (out->used > stack->len)
		out->used = stack->len;
	frames[out->n++] = (struct frame){walk->walk.at.addr, FRAME_RETURN, trust};
	return true;
}

void arm_unwind(const struct unwind_input *in, struct frame *frames, struct unwind_result *out)
{
	const struct regs *regs = in->regs;
	struct arm_walk walk = {
		.walk = {.in = in, .out = out, .stack = in->stack, .word = 4},
		.known = (uint16_t)regs->gp_valid,
		.thumb = regs->flags & ARM_PSTATE_T,
	};

	if (in->unwinder)
		site_begin(in->unwinder, in);
	walk.walk.at = (struct place){.addr = regs->pc,
				      .sp = in->stack->va,
				      .kind = FRAME_PC,
				      .first = true};
	for (unsigned reg = 0; reg < ARM_REGISTERS; reg++)
		walk.r[reg] = (uint32_t)regs->gp[reg];
	while (climb(&walk, frames))
		;
	if (out->end != UNWIND_BYTES)
		out->want = 0;
}
