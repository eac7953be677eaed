/* SPDX-License-Identifier: BSD-3-Clause */
#include "arch/arm_regs.h"

#include <string.h>

#include "arch/arm_mmu.h"

#define SCTLR_M 1u

/* DWARF register numbers of AArch64 (AADWARF64) and of AArch32 (AADWARF32). */
enum { X29 = 29, SP64 = 31 };
enum { R7 = 7, R11 = 11, R12 = 12, SP = 13, LR = 14, PC = 15 };

static void take_mmu(const struct arm_regs *from, struct mmu *mmu)
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

static void take_64(const struct arm_regs *from, struct regs *to)
{
	to->word = 8;
	to->user = !(from->pstate & ARM_PSTATE_EL);
	memcpy(to->gp, from->r, sizeof(from->r));
	to->gp[SP64] = from->sp;
	to->gp_valid = UINT32_MAX;
	to->fp = to->gp[X29];
}

static void take_32(const struct arm_regs *from, struct regs *to)
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

void arm_regs_take(const struct arm_regs *from, struct regs *to)
{
	memset(to, 0, sizeof(*to));
	to->isa = ISA_ARM;
	to->pc = from->pc;
	to->sp = from->sp;
	to->flags = from->pstate;
	if (from->pstate & ARM_PSTATE_WIDTH32)
		take_32(from, to);
	else
		take_64(from, to);
	take_mmu(from, &to->mmu);
}
