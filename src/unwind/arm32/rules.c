/* SPDX-License-Identifier: BSD-3-Clause */
#include "unwind/arm32/arm32.h"

/* Does a call end at this address? Then *len is its length, *target as arm_is_call says. */
static bool call_before(const struct code *code, uint64_t ret, bool thumb, uint8_t *len,
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

bool arm_believe(const struct walk *walk, uint64_t ret, struct arm_return *out)
{
	const struct code *code = walk->in->code;

	out->thumb = ret & 1;
	out->addr = ret & ~1ull;
	if (!out->thumb && ret & 2)
		return false;
	return call_before(code, out->addr, out->thumb, &out->len, &out->target, &out->readable);
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

/* Computes the CFA from the stack pointer, or else from any register at a known distance to it. */
static bool cfa_of(const struct walk *walk, const struct arm_state *state, uint64_t *cfa)
{
	const unsigned usable = state->based & walk->arm.known;
	unsigned reg;

	if (!usable)
		return false;
	reg = usable >> ARM_SP & 1 ? ARM_SP : (unsigned)__builtin_ctz(usable);
	*cfa = walk->arm.r[reg] - (uint32_t)state->base[reg];
	return *cfa >= walk->at.sp && *cfa - walk->at.sp <= REACH && !(*cfa & 3);
}

static uint64_t slot(const struct arm_state *state, uint64_t cfa, unsigned reg)
{
	return (uint32_t)(cfa + (uint32_t)state->at[reg]);
}

static void restore_saved(struct walk *walk, const struct arm_state *state, uint64_t cfa)
{
	for (unsigned reg = 4; reg < ARM_IP; reg++) {
		const uint16_t bit = (uint16_t)(1u << reg);
		uint64_t value;

		if (state->saved & bit && walk_load(walk, slot(state, cfa, reg), &value)) {
			walk->arm.r[reg] = (uint32_t)value;
			walk->arm.known |= bit;
		} else if ((state->saved | state->lost) & bit) {
			walk->arm.known &= (uint16_t)~bit;
		}
	}
}

/* Reads the return address as the state says; false: it is unknown, or not at hand. */
static bool return_word(struct walk *walk, const struct arm_state *state, uint64_t cfa,
			uint64_t *word)
{
	*word = walk->arm.r[ARM_LR];
	if (state->saved >> ARM_LR & 1)
		return walk_load(walk, slot(state, cfa, ARM_LR), word);
	return walk->arm.known >> ARM_LR & 1;
}

/* Has the code kept no way back? */
static bool is_lost(const struct walk *walk, const struct arm_state *state)
{
	return !(state->saved >> ARM_LR & 1) &&
	       (state->lost >> ARM_LR & 1 || walk->at.kind == FRAME_RETURN);
}

/* May this have been called by its address, just now? */
static bool may_be_fresh(const struct walk *walk)
{
	struct arm_return ret;

	return walk->arm.known >> ARM_LR & 1 && arm_believe(walk, walk->arm.r[ARM_LR], &ret) &&
	       ret.readable && !ret.target;
}

/*
 * Without a known start, the code here may be another function than the
 * followed one, which was entered by falling through a call that never returns,
 * or by a jump to an unknown target.
 */
static bool may_be(const struct walk *walk, const struct arm_pc_info *info,
		   const struct arm_return *ret)
{
	if (info->has_start)
		return true;
	if (!ret->readable || (ret->target && ret->target != info->start))
		return false;
	return info->known == FLOW_FOUND || (ret->target && !may_be_fresh(walk));
}

enum found arm_rule_code(struct walk *walk, const struct arm_pc_info *info, uint8_t *trust)
{
	const struct arm_state *state = &info->state;
	const bool sure = info->known == FLOW_FOUND && info->has_start;
	struct arm_return ret;
	uint64_t cfa, word;

	if (info->known == FLOW_UNKNOWN || !cfa_of(walk, state, &cfa))
		return FOUND_NONE;
	/* It has called something all the same: it never returns. */
	if (is_lost(walk, state))
		return sure ? walk_end(walk, UNWIND_OUTERMOST) : FOUND_NONE;
	if (!return_word(walk, state, cfa, &word))
		return FOUND_NONE;
	if (!word)
		return info->has_start ? walk_end(walk, UNWIND_OUTERMOST) : FOUND_NONE;
	if (!arm_believe(walk, word, &ret) || !may_be(walk, info, &ret))
		return FOUND_NONE;
	*trust = sure && ret.readable && (!ret.target || ret.target == info->start) ? TRUST_SURE
										    : TRUST_GUESS;
	restore_saved(walk, state, cfa);
	arm_go(walk, &ret, cfa);
	return FOUND_CALLER;
}

/*
 * Following the code from `start`: is the return address one of a call of it?
 * It may have jumped to the function that stands here, from above or below.
 */
static bool prove(struct walk *walk, const struct arm_pc_info *info, uint64_t start)
{
	const uint64_t at = walk->at.addr, least = info->start ? info->start : at;
	const struct arm_range range = {.entry = start,
					.start = start < least ? start : least,
					.end = (start < at ? at : start) + REACH_OF_JUMP};
	struct arm_state state;
	struct arm_return ret;
	uint64_t cfa, word;

	if (arm_follow_to_pc(walk, &range, &state) != FLOW_FOUND || !cfa_of(walk, &state, &cfa) ||
	    is_lost(walk, &state) || !return_word(walk, &state, cfa, &word) ||
	    !arm_believe(walk, word, &ret) || !ret.readable || ret.target != start)
		return false;
	restore_saved(walk, &state, cfa);
	arm_go(walk, &ret, cfa);
	return true;
}

/* Is this a return address of a call of something near? Then tries to prove that. */
static bool try_word(struct walk *walk, const struct arm_pc_info *info, uint64_t word)
{
	struct arm_return ret;

	return word && arm_believe(walk, word, &ret) && ret.readable && ret.target &&
	       ret.target - walk->at.addr + NEAR < 2 * NEAR && prove(walk, info, ret.target);
}

enum found arm_rule_target(struct walk *walk, const struct arm_pc_info *info, uint8_t *trust)
{
	const uint64_t sp = walk->at.sp;
	uint64_t word;

	*trust = TRUST_SURE;
	if (walk->arm.known >> ARM_LR & 1 && try_word(walk, info, walk->arm.r[ARM_LR]))
		return FOUND_CALLER;
	for (unsigned i = 0; i < SEARCH_WORDS && walk_spend(walk); i++)
		if (in_window(walk->stack, sp + 4 * i, 4) && walk_load(walk, sp + 4 * i, &word) &&
		    try_word(walk, info, word))
			return FOUND_CALLER;
	walk->beyond = false;
	return FOUND_NONE;
}

static void restore_kept(struct walk *walk, const struct row_kept *kept, uint64_t cfa)
{
	for (unsigned i = 0; i < ROW_KEPT; i++) {
		const unsigned reg = ROW_KEPT_FIRST + i;
		const int16_t at = kept->at[i];
		uint64_t value;

		if (at == ROW_SAME)
			continue;
		walk->arm.known &= (uint16_t) ~(1u << reg);
		if (at == ROW_LOST ||
		    !walk_load(walk, (uint32_t)(cfa + (uint64_t)(int64_t)at), &value))
			continue;
		walk->arm.r[reg] = (uint32_t)value;
		walk->arm.known |= (uint16_t)(1u << reg);
	}
}

/* True for calls of this function, and for indirect calls. */
static bool calls_here(const struct arm_pc_info *info, const struct arm_return *ret)
{
	const struct table_entry *table = &info->table;

	if (!ret->target || (info->has_start && ret->target == info->start))
		return true;
	return !info->has_start && ret->target >= table->base + table->row->start;
}

static bool is_frame(const struct walk *walk, const struct row_caller *caller)
{
	const uint64_t size = caller->sp - walk->at.sp;

	/* Only a function that has called nothing yet may have no frame. */
	return size <= REACH && !(size & 3) && (size || walk->at.kind == FRAME_PC);
}

enum found arm_rule_table(struct walk *walk, const struct arm_pc_info *info, uint8_t *trust)
{
	const struct table_entry *table = &info->table;
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
	if (!arm_believe(walk, caller.pc, &ret))
		return FOUND_NONE;
	*trust = ret.readable && calls_here(info, &ret) ? TRUST_SURE : TRUST_GUESS;
	restore_kept(walk, &table->whole->kept[table->row->kept], caller.sp);
	arm_go(walk, &ret, caller.sp);
	return FOUND_CALLER;
}

bool arm_try_return(struct walk *walk, uint64_t slot, uint64_t word)
{
	struct arm_return ret;

	if (!arm_believe(walk, word, &ret) || !ret.readable)
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

/* Can the code be read where the walk stands? Then that of its caller can be. */
static bool is_blind(const struct walk *walk)
{
	const struct code *code = walk->in->code;
	uint16_t half;

	return !code->read || code->read(code->ctx, walk->at.addr, &half, 2) != 2;
}

static bool try_layout(struct walk *walk, unsigned reg, const struct layout *layout)
{
	const uint64_t fp = walk->arm.r[reg];
	struct arm_return caller;
	uint64_t next, ret;

	if (!read(walk, fp, layout, &next, &ret) || !ret || (next && next - fp - 1 >= REACH) ||
	    !arm_believe(walk, ret, &caller) || (!caller.readable && !is_blind(walk)))
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
