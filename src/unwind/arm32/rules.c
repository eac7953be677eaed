/* SPDX-License-Identifier: BSD-3-Clause */
#include "unwind/arm32/arm32.h"

#include <string.h>

bool arm_call_before(const uint8_t *bytes, size_t n, uint64_t ret, unsigned word, struct call *out)
{
	const bool thumb = ret & ARM_MODE_T32;
	const uint64_t end = ret & ~(uint64_t)ARM_MODE_T32;
	uint16_t half[2] = {0};
	bool found = false;

	*out = (struct call){0};
	if (n < sizeof(half))
		return false;
	memcpy(half, bytes + n - sizeof(half), sizeof(half));
	if (!thumb)
		found = arm_is_call((uint32_t)half[1] << 16 | half[0], end - 4, &out->target);
	else
		found = thumb_is_call((uint32_t)half[0] << 16 | half[1], 4, end - 4,
				      &out->target) ||
			thumb_is_call(half[1], 2, end - 2, &out->target);
	out->direct = found && out->target;
	out->indirect = found && !out->target;
	return found;
}

/* A word that may be a return address. */
struct arm_return {
	uint64_t addr;	 /* without the T32 bit */
	uint64_t target; /* target of the call before it; 0: not known */
	bool thumb;
	bool readable;
};

/* Does a call stand before this return address? Unreadable code is believed, as a guess. */
static bool believe(const struct walk *walk, uint64_t ret, struct arm_return *out)
{
	const struct pc_info *info;

	*out = (struct arm_return){.addr = ret & ~1ull, .thumb = ret & 1};
	if (!out->thumb && ret & 2)
		return false;
	if (!walk->in->unwinder)
		return true;
	info = pc_info_in_mode(walk->in->unwinder, out->addr, FRAME_RETURN, out->thumb);
	out->readable = info->readable;
	out->target = info->call.target;
	return !info->readable || info->call.direct || info->call.indirect;
}

/* Frames are alike only if all registers are that are known. */
static uint64_t hash(const struct arm_registers *arm)
{
	uint64_t hash = (uint64_t)arm->known << 1 | arm->thumb;

	for (unsigned reg = 0; reg < ARM_REGISTERS; reg++)
		if (arm->known >> reg & 1)
			hash = (hash ^ arm->r[reg]) * 0x9e3779b97f4a7c15ull;
	return hash;
}

/* Goes to the caller, whose stack pointer is `sp`. */
static void arm_go(struct walk *walk, const struct arm_return *ret, uint64_t sp)
{
	walk->arm.thumb = ret->thumb;
	walk->arm.r[ARM_SP] = (uint32_t)sp;
	walk->arm.known = (uint16_t)((walk->arm.known & ARM_KEPT & ~(1u << ARM_LR)) | 1u << ARM_SP);
	walk->at = (struct cursor){.addr = ret->addr,
				   .kind = FRAME_RETURN,
				   .sp = sp,
				   .ra = hash(&walk->arm),
				   .ra_known = true};
}

/* Words above the stack pointer that may be the return address. */
#define SEARCH_WORDS 64
/* Longest distance of a called function that is this one, or has jumped to it, bytes. */
#define NEAR 8192ull
/* Code is followed this far behind the end of the known function, bytes. */
#define REACH_OF_JUMP 2048u

static bool cfa_of(const struct walk *walk, const struct rule *rule, uint64_t *cfa)
{
	const bool by_sp = rule->cfa_sp != RULE_NOT;
	const unsigned reg = by_sp ? ARM_SP : rule->fp;

	if ((!by_sp && rule->cfa_fp == RULE_NOT) || !(walk->arm.known >> reg & 1))
		return false;
	*cfa = walk->arm.r[reg] + (uint32_t)(by_sp ? rule->cfa_sp : rule->cfa_fp);
	*cfa = (uint32_t)*cfa;
	return *cfa >= walk->at.sp && *cfa - walk->at.sp <= REACH && !(*cfa & 3);
}

/* Goes to the caller, which has its registers where `kept` says. */
static void go_to_caller(struct walk *walk, const struct row_kept *kept, uint64_t cfa,
			 const struct arm_return *ret)
{
	for (unsigned i = 0; i < ROW_KEPT; i++) {
		const unsigned reg = ROW_KEPT_FIRST + i;
		const int16_t at = kept->at[i];
		uint64_t value;

		if (at == ROW_SAME)
			continue;
		walk->arm.known &= (uint16_t) ~(1u << reg);
		if (at == ROW_LOST || !walk_load(walk, (uint32_t)(cfa + (uint64_t)at), &value))
			continue;
		walk->arm.r[reg] = (uint32_t)value;
		walk->arm.known |= (uint16_t)(1u << reg);
	}
	arm_go(walk, ret, cfa);
}

/* Reads the return address as the rule says; false: it is unknown, or not at hand. */
static bool return_word(struct walk *walk, const struct rule *rule, uint64_t cfa, uint64_t *word)
{
	*word = walk->arm.r[ARM_LR];
	if (rule->ra_at != RULE_SAME)
		return walk_load(walk, (uint32_t)(cfa + (uint32_t)rule->ra_at), word);
	return walk->arm.known >> ARM_LR & 1;
}

/* Has the code kept no way back? */
static bool is_lost(const struct walk *walk, const struct rule *rule)
{
	return rule->ra_at == RULE_NOT ||
	       (rule->ra_at == RULE_SAME && walk->at.kind == FRAME_RETURN);
}

/* May this have been called by its address, just now? */
static bool may_be_fresh(const struct walk *walk)
{
	struct arm_return ret;

	return walk->arm.known >> ARM_LR & 1 && believe(walk, walk->arm.r[ARM_LR], &ret) &&
	       ret.readable && !ret.target;
}

/*
 * Without a known start, the code here may be another function than the
 * followed one, which was entered by falling through a call that never returns,
 * or by a jump to an unknown target.
 */
static bool may_be(const struct walk *walk, const struct arm_return *ret)
{
	const struct frame_state *state = &walk->state;

	if (state->has_start)
		return true;
	if (!ret->readable || (ret->target && ret->target != state->start))
		return false;
	return state->flow == FLOW_FOUND || (ret->target && !may_be_fresh(walk));
}

enum found arm_rule_code(struct walk *walk, uint8_t *trust)
{
	const struct frame_state *state = &walk->state;
	const struct rule *rule = &state->rule;
	const bool sure = state->flow == FLOW_FOUND && state->has_start;
	struct arm_return ret;
	uint64_t cfa, word;

	if (!rule_known(state) || !cfa_of(walk, rule, &cfa))
		return FOUND_NONE;
	/* It has called something all the same: it never returns. */
	if (is_lost(walk, rule))
		return sure ? walk_end(walk, UNWIND_OUTERMOST) : FOUND_NONE;
	if (!return_word(walk, rule, cfa, &word))
		return FOUND_NONE;
	if (!word)
		return state->has_start ? walk_end(walk, UNWIND_OUTERMOST) : FOUND_NONE;
	if (!believe(walk, word, &ret) || !may_be(walk, &ret))
		return FOUND_NONE;
	*trust = sure && ret.readable && (!ret.target || ret.target == state->start) ? TRUST_SURE
										     : TRUST_GUESS;
	go_to_caller(walk, &rule->kept, cfa, &ret);
	return FOUND_CALLER;
}

/*
 * Following the code from `start`: is the return address one of a call of it?
 * It may have jumped to the function that stands here, from above or below.
 */
static bool prove(struct walk *walk, uint64_t start)
{
	const uint64_t at = walk->at.addr, least = walk->state.start ? walk->state.start : at;
	const struct arm_range range = {.entry = start,
					.start = start < least ? start : least,
					.end = (start < at ? at : start) + REACH_OF_JUMP};
	struct rule rule;
	struct arm_return ret;
	uint64_t cfa, word;

	if (arm_follow_to_pc(walk, &range, &rule) != FLOW_FOUND || !cfa_of(walk, &rule, &cfa) ||
	    is_lost(walk, &rule) || !return_word(walk, &rule, cfa, &word) ||
	    !believe(walk, word, &ret) || !ret.readable || ret.target != start)
		return false;
	go_to_caller(walk, &rule.kept, cfa, &ret);
	return true;
}

/* Is this a return address of a call of something near? Then tries to prove that. */
static bool try_word(struct walk *walk, uint64_t word)
{
	struct arm_return ret;

	return word && believe(walk, word, &ret) && ret.readable && ret.target &&
	       ret.target - walk->at.addr + NEAR < 2 * NEAR && prove(walk, ret.target);
}

enum found arm_rule_target(struct walk *walk, uint8_t *trust)
{
	const uint64_t sp = walk->at.sp;
	uint64_t word;

	*trust = TRUST_SURE;
	if (walk->arm.known >> ARM_LR & 1 && try_word(walk, walk->arm.r[ARM_LR]))
		return FOUND_CALLER;
	for (unsigned i = 0; i < SEARCH_WORDS && walk_spend(walk); i++)
		if (in_window(walk->stack, sp + 4 * i, 4) && walk_load(walk, sp + 4 * i, &word) &&
		    try_word(walk, word))
			return FOUND_CALLER;
	walk->beyond = false;
	return FOUND_NONE;
}

/* True for calls of this function, and for indirect calls. */
static bool calls_here(const struct walk *walk, const struct arm_return *ret)
{
	const struct table_entry *table = &walk->table;
	const struct frame_state *state = &walk->state;

	if (!ret->target || (state->has_start && ret->target == state->start))
		return true;
	return !state->has_start && ret->target >= table->base + table->row->start;
}

static bool is_frame(const struct walk *walk, const struct row_caller *caller)
{
	const uint64_t size = caller->sp - walk->at.sp;

	/* Only a function that has called nothing yet may have no frame. */
	return size <= REACH && !(size & 3) && (size || walk->at.kind == FRAME_PC);
}

enum found arm_rule_table(struct walk *walk, uint8_t *trust)
{
	const struct table_entry *table = &walk->table;
	struct row_caller caller;
	struct arm_return ret;

	if (!table->row || !table->whole->n_kept)
		return FOUND_NONE;
	if (table->row->kind == ROW_END || rule_keeps_no_way_back(walk, table->row))
		return walk_end(walk, UNWIND_OUTERMOST);
	if (!rule_apply(walk, table->whole, table->row, &caller) || !is_frame(walk, &caller)) {
		walk->elsewhere = 0;
		return FOUND_NONE;
	}
	if (!caller.pc)
		return walk_end(walk, UNWIND_OUTERMOST);
	if (!believe(walk, caller.pc, &ret))
		return FOUND_NONE;
	*trust = ret.readable && calls_here(walk, &ret) ? TRUST_SURE : TRUST_GUESS;
	go_to_caller(walk, &table->whole->kept[table->row->kept], caller.sp, &ret);
	return FOUND_CALLER;
}

bool arm_try_return(struct walk *walk, uint64_t slot, uint64_t word)
{
	struct arm_return ret;

	if (!believe(walk, word, &ret) || !ret.readable)
		return false;
	arm_go(walk, &ret, slot + 4);
	return true;
}

/*
 * Frame layouts of compilers: bytes from the frame pointer to the caller's
 * frame pointer and to the return address, and to the caller's stack pointer,
 * at least.
 */
static const struct layout {
	int8_t next, ret, size;
	bool leaf; /* the return address is in lr */
} layouts[] = {
	{.next = 0, .ret = 4, .size = 8},     /* clang, and AAPCS32 6.2.1.4 */
	{.next = -4, .ret = 0, .size = 4},    /* gcc, A32 */
	{.next = -12, .ret = -4, .size = 4},  /* gcc -mapcs-frame */
	{.next = 0, .size = 4, .leaf = true}, /* gcc, A32, leaf functions */
};

enum { FP_THUMB = 7, FP = 11 };

static bool read(struct walk *walk, uint64_t fp, const struct layout *layout, uint64_t *next,
		 uint64_t *ret)
{
	if (!walk_load(walk, (uint32_t)(fp + (uint32_t)layout->next), next))
		return false;
	if (!layout->leaf)
		return walk_load(walk, (uint32_t)(fp + (uint32_t)layout->ret), ret);
	*ret = walk->arm.r[ARM_LR];
	return walk->at.first && walk->arm.known >> ARM_LR & 1;
}

static bool try_layout(struct walk *walk, unsigned reg, const struct layout *layout)
{
	const uint64_t fp = walk->arm.r[reg];
	struct arm_return caller;
	uint64_t next, ret;

	if (!read(walk, fp, layout, &next, &ret) || !ret || (next && next - fp - 1 >= REACH) ||
	    !believe(walk, ret, &caller) || (!caller.readable && walk->readable))
		return false;
	walk->arm.r[reg] = (uint32_t)next;
	walk->arm.known &= (uint16_t)(1u << reg);
	arm_go(walk, &caller, fp + (uint64_t)layout->size);
	return true;
}

/* The outermost function is called with zeros in both registers. */
static bool is_last(struct walk *walk, unsigned reg)
{
	uint64_t next, ret;

	for (unsigned i = 0; i < 2; i++)
		if (read(walk, walk->arm.r[reg], &layouts[i], &next, &ret) && !next && !ret)
			return true;
	return !walk->arm.r[reg];
}

enum found arm_rule_record(struct walk *walk)
{
	const unsigned reg = walk->arm.thumb ? FP_THUMB : FP;

	if (!(walk->arm.known >> reg & 1))
		return FOUND_NONE;
	for (unsigned i = 0; i < sizeof(layouts) / sizeof(*layouts); i++)
		if (try_layout(walk, reg, &layouts[i]))
			return FOUND_CALLER;
	if (!is_last(walk, reg))
		return FOUND_NONE;
	return walk_end(walk, UNWIND_OUTERMOST);
}
