/* SPDX-License-Identifier: BSD-3-Clause */
#include "arch/arm/arm.h"
#include "unwind/arm32/insn.h"
#include "unwind/walk.h"

#include <string.h>

/* Is this a call? Then says where it goes. */
static bool is_call(const struct arm_insn *insn, struct call *out)
{
	struct link_op op[ARM_OPS];

	arm_decode(insn, op);
	out->direct = op->op == LINK_JUMP && op->rd == ARM_LR;
	out->indirect = op->op == LINK_JALR && op->rd == ARM_LR;
	out->target = out->direct ? arm_target(insn, op) : 0;
	return out->direct || out->indirect;
}

static bool call_before(const struct unwind_isa *isa, const uint8_t *bytes, size_t n, uint64_t ret,
			struct call *out)
{
	const bool thumb = ret & ARM_T32;
	const uint64_t end = ret & isa->address;
	struct arm_insn wide = {.pc = end - 4}, narrow = {.pc = end - 2};

	*out = (struct call){0};
	if (n < 4 || (!thumb && end & 2))
		return false;
	bytes += n - 4;
	return (arm_fetch(bytes, 4, thumb, &wide) && wide.len == 4 && is_call(&wide, out)) ||
	       (thumb && arm_fetch(bytes + 2, 2, thumb, &narrow) && is_call(&narrow, out));
}

/* Frames are alike only if all registers are that are known. */
static uint64_t hash(const struct arm_registers *arm)
{
	uint64_t hash = arm->known;

	for (unsigned reg = 0; reg < ARM_REGISTERS; reg++)
		if (arm->known >> reg & 1)
			hash = (hash ^ arm->r[reg]) * 0x9e3779b97f4a7c15ull;
	return hash;
}

static void arrive(struct walk *walk)
{
	walk->arm.known &= (uint16_t)(ARM_KEPT & ~(1u << ARM_LR));
	walk->arm.r[ARM_SP] = (uint32_t)walk->at.sp;
	if (walk->at.exact)
		walk->arm.known |= 1u << ARM_SP;
	walk->at.fp = hash(&walk->arm);
	walk->at.fp_known = false;
}

static void begin(struct walk *walk)
{
	const struct regs *regs = walk->in->regs;

	/* No register is the frame pointer of all code. */
	walk->at.fp_known = false;
	walk->at.addr |= (uint64_t)(uint32_t)regs->flags >> 28 << ARM_FLAGS;
	if (regs->flags & ARM_PSTATE_T)
		walk->at.addr |= ARM_T32;
	walk->arm.known = (uint16_t)regs->gp_valid;
	for (unsigned reg = 0; reg < ARM_REGISTERS; reg++)
		walk->arm.r[reg] = (uint32_t)regs->gp[reg];
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
	*ret = walk->at.ra;
	return walk->at.first && walk->at.ra_known;
}

/* Does a call end there? Unreadable code is believed, where that here is, too. */
static bool believe(const struct walk *walk, uint64_t ret)
{
	const struct pc_info *info;

	if (!walk->in->unwinder)
		return ret & ARM_T32 || !(ret & 2);
	info = pc_info_at(walk->in->unwinder, ret, FRAME_RETURN);
	return info->readable ? info->call.direct || info->call.indirect : !walk->readable;
}

static bool try_layout(struct walk *walk, unsigned reg, const struct layout *layout)
{
	const uint64_t fp = walk->arm.r[reg];
	uint64_t next, ret;

	if (!read(walk, fp, layout, &next, &ret) || !ret || (next && next - fp - 1 >= REACH) ||
	    !believe(walk, ret))
		return false;
	walk->arm.r[reg] = (uint32_t)next;
	walk->arm.known &= (uint16_t)(1u << reg);
	walk->at = (struct cursor){.addr = ret,
				   .kind = FRAME_RETURN,
				   .sp = fp + (uint64_t)layout->size,
				   .exact = true};
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

static enum found find_record(struct walk *walk)
{
	const unsigned reg = walk->at.addr & ARM_T32 ? FP_THUMB : FP;
	const struct row *row = walk->table.row;

	/* Code that a table knows has no frame record that the table does not know. */
	if (!(walk->arm.known >> reg & 1) || (row && row->kind != ROW_END))
		return FOUND_NONE;
	for (unsigned i = 0; i < sizeof(layouts) / sizeof(*layouts); i++)
		if (try_layout(walk, reg, &layouts[i]))
			return FOUND_CALLER;
	return is_last(walk, reg) ? walk_end(walk, UNWIND_OUTERMOST) : FOUND_NONE;
}

/*
 * Any register may be the frame pointer, and frame records have one of the
 * layouts that compilers make: they are left to code that no table knows.
 */
const struct unwind_isa unwind_arm32 = {
	.isa = ISA_ARM,
	.word = 4,
	.sp = ARM_SP,
	.fp = RULE_NO_REGISTER,
	.ra = ARM_LR,
	.address = 0xfffffffe,
	.kept = true,
	.ends_untold = true,
	.link = true,
	.call_max = 4,
	.call_before = call_before,
	.follow = arm_follow,
	.begin = begin,
	.arrive = arrive,
	.find_record = find_record,
};
