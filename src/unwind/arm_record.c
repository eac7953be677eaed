/* SPDX-License-Identifier: BSD-3-Clause */
#include "unwind/arm_record.h"

/*
 * What a frame pointer points to, as compilers make it: bytes from there to
 * the caller's frame pointer and to the return address, and how far above the
 * caller's stack pointer is, at least.
 */
static const struct layout {
	int8_t next, ret, size;
	bool leaf; /* the return address is in lr */
} layouts[] = {
	{.next = 0, .ret = 4, .size = 8},     /* clang, and AAPCS32 6.2.1.4 */
	{.next = -4, .ret = 0, .size = 4},    /* gcc, A32 */
	{.next = -12, .ret = -4, .size = 4},  /* gcc -mapcs-frame */
	{.next = 0, .size = 4, .leaf = true}, /* gcc, A32, of what calls nothing */
};

enum { FP_THUMB = 7, FP = 11 };

static bool read(struct arm_walk *walk, uint64_t fp, const struct layout *layout, uint64_t *next,
		 uint64_t *ret)
{
	if (!walk_load(&walk->walk, (uint32_t)(fp + (uint32_t)layout->next), next))
		return false;
	if (!layout->leaf)
		return walk_load(&walk->walk, (uint32_t)(fp + (uint32_t)layout->ret), ret);
	*ret = walk->r[ARM_LR];
	return walk->walk.at.first && walk->known >> ARM_LR & 1;
}

/* Can the code be read where the walk stands? Then that of its caller can be. */
static bool is_blind(const struct arm_walk *walk)
{
	const struct code *code = walk->walk.in->code;
	uint16_t half;

	return !code->read || code->read(code->ctx, walk->walk.at.addr, &half, 2) != 2;
}

static bool try_layout(struct arm_walk *walk, unsigned reg, const struct layout *layout)
{
	const uint64_t fp = walk->r[reg];
	struct arm_return caller;
	uint64_t next, ret;

	if (!read(walk, fp, layout, &next, &ret) || !ret || (next && next - fp - 1 >= REACH) ||
	    !arm_believe(walk, ret, &caller) || (!caller.readable && !is_blind(walk)))
		return false;
	walk->r[reg] = (uint32_t)next;
	arm_go(walk, &caller, fp + (uint64_t)layout->size);
	walk->known &= (uint16_t)(1u << reg | 1u << ARM_SP);
	return true;
}

/* What called the outermost function had zeros in both registers. */
static bool is_last(struct arm_walk *walk, unsigned reg)
{
	uint64_t next, ret;

	for (unsigned i = 0; i < 2; i++)
		if (read(walk, walk->r[reg], &layouts[i], &next, &ret) && !next && !ret)
			return true;
	return !walk->r[reg];
}

enum found arm_by_record(struct arm_walk *walk)
{
	const unsigned reg = walk->thumb ? FP_THUMB : FP;

	if (!(walk->known >> reg & 1))
		return FOUND_NONE;
	for (unsigned i = 0; i < sizeof(layouts) / sizeof(*layouts); i++)
		if (try_layout(walk, reg, &layouts[i]))
			return FOUND_CALLER;
	if (!is_last(walk, reg))
		return FOUND_NONE;
	walk->walk.out->end = UNWIND_OUTERMOST;
	return FOUND_END;
}
