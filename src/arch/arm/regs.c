/* SPDX-License-Identifier: BSD-3-Clause */
#include "arch/arm/arm.h"

#include <elf.h>
#include <string.h>

#define SCTLR_M 1u

/* DWARF register numbers of AArch64 (AADWARF64) and of AArch32 (AADWARF32). */
enum { X29 = 29, SP64 = 31 };
enum { R7 = 7, R11 = 11, R12 = 12, SP = 13, LR = 14, PC = 15 };

static void convert_mmu(const struct arm_regs *from, struct mmu *mmu)
{
	mmu->root = from->ttbr0;
	mmu->root_high = from->ttbr1;
	mmu->control = from->control;
	if (!(from->sctlr & SCTLR_M))
		mmu->mode = MMU_OFF;
	else if (from->wide)
		mmu->mode = MMU_ARM64;
	else
		mmu->mode = from->control & ARM_TTBCR_EAE ? MMU_ARM_LPAE : MMU_ARM_SHORT;
}

static void convert_64(const struct arm_regs *from, struct regs *to)
{
	to->word = 8;
	to->user = !(from->pstate & ARM_PSTATE_EL);
	memcpy(to->gp, from->r, sizeof(from->r));
	to->gp[SP64] = from->sp;
	to->gp_valid = UINT32_MAX;
	to->fp = to->gp[X29];
}

static void convert_32(const struct arm_regs *from, struct regs *to)
{
	to->word = 4;
	to->user = !(from->pstate & ARM_PSTATE_MODE);
	for (int i = 0; i <= R12; i++)
		to->gp[i] = from->r[i];
	to->gp[SP] = from->sp;
	to->gp[LR] = from->r[LR];
	to->gp[PC] = from->pc;
	to->gp_valid = 0xffff;
	to->fp = to->gp[from->pstate & ARM_PSTATE_T ? R7 : R11];
}

void arm_regs_convert(const struct arm_regs *from, struct regs *to)
{
	memset(to, 0, sizeof(*to));
	to->isa = ISA_ARM;
	to->pc = from->pc;
	to->sp = from->sp;
	to->flags = from->pstate;
	if (from->pstate & ARM_PSTATE_WIDTH32)
		convert_32(from, to);
	else
		convert_64(from, to);
	convert_mmu(from, &to->mmu);
}

#define BITS(array)                                   \
	{                                             \
		array, sizeof(array) / sizeof(*array) \
	}

/* SPSR_EL2 (DDI 0487, C5.2.20), of an exception from AArch64 and from AArch32. */
static const struct register_bit pstate_64[] = {
	{0, 1, "SP"},  {2, 2, "EL"},  {6, 1, "F"},  {7, 1, "I"},  {8, 1, "A"},	{9, 1, "D"},
	{20, 1, "IL"}, {21, 1, "SS"}, {28, 1, "V"}, {29, 1, "C"}, {30, 1, "Z"}, {31, 1, "N"},
};
static const struct register_bit pstate_32[] = {
	{0, 4, "M"},   {5, 1, "T"},  {6, 1, "F"},  {7, 1, "I"},	 {8, 1, "A"},  {9, 1, "E"},
	{20, 1, "IL"}, {27, 1, "Q"}, {28, 1, "V"}, {29, 1, "C"}, {30, 1, "Z"}, {31, 1, "N"},
};

static const struct register_bits flags_64 = BITS(pstate_64);
static const struct register_bits flags_32 = BITS(pstate_32);

/* In the order of DWARF's numbers: AADWARF64 and AADWARF32. */
static const char *const names_64[] = {"x0",  "x1",  "x2",  "x3",  "x4",  "x5",	 "x6",	"x7",
				       "x8",  "x9",  "x10", "x11", "x12", "x13", "x14", "x15",
				       "x16", "x17", "x18", "x19", "x20", "x21", "x22", "x23",
				       "x24", "x25", "x26", "x27", "x28", "x29", "x30", "sp"};
static const char *const names_32[] = {"r0", "r1", "r2",  "r3",	 "r4",	"r5", "r6", "r7",
				       "r8", "r9", "r10", "r11", "r12", "sp", "lr"};

void arm_registers_show(const struct regs *regs, struct registers *out)
{
	const bool wide = regs->word == 8;
	const unsigned n =
		wide ? sizeof(names_64) / sizeof(*names_64) : sizeof(names_32) / sizeof(*names_32);

	registers_add(out, REGISTER_GENERAL, "pc", regs->word, regs->pc, NULL);
	registers_add(out, REGISTER_GENERAL, "cpsr", 4, regs->flags, wide ? &flags_64 : &flags_32);
	for (unsigned i = 0; i < n; i++)
		if (regs->gp_valid >> i & 1)
			registers_add(out, REGISTER_GENERAL, wide ? names_64[i] : names_32[i],
				      regs->word, regs->gp[i], NULL);
}

#define MODES (1u << MMU_OFF | 1u << MMU_ARM64 | 1u << MMU_ARM_LPAE | 1u << MMU_ARM_SHORT)

/* Programs of 32 bits run on kernels of 64 and are translated as these say. */
static enum xlate_status translate(const struct mmu *mmu, uint64_t va, const struct physmem *mem,
				   struct xlate *out)
{
	if (mmu->mode == MMU_ARM_LPAE || mmu->mode == MMU_ARM_SHORT)
		return arm32_translate(mmu, va, mem, out);
	return arm64_translate(mmu, va, mem, out);
}

#define ARM_ARCH(called, bytes, number)                                                           \
	{                                                                                         \
		.name = called, .isa = ISA_ARM, .word = bytes, .machine = number, .modes = MODES, \
		.translate = translate, .show = arm_registers_show                                \
	}

const struct arch arch_arm64 = ARM_ARCH("arm64", 8, EM_AARCH64);
const struct arch arch_arm32 = ARM_ARCH("arm32", 4, EM_ARM);
