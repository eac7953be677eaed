/* SPDX-License-Identifier: BSD-3-Clause */
#include "arch/x86_regs.h"

#include <string.h>

/* Control bits: Intel SDM vol. 3, sections 2.2.1 and 2.5. */
#define CR0_PG	 (1ull << 31)
#define CR4_PSE	 (1ull << 4)
#define CR4_PAE	 (1ull << 5)
#define CR4_LA57 (1ull << 12)
#define EFER_LMA (1ull << 10)

#define PFN_MASK 0x000ffffffffff000ull

enum { AX, CX, DX, BX, SP, BP, SI, DI };

static void take_mmu(const struct x86_regs *from, struct mmu *mmu)
{
	mmu->pse = from->cr4 & CR4_PSE;
	mmu->root = from->cr3 & PFN_MASK;
	if (!(from->cr0 & CR0_PG)) {
		mmu->mode = MMU_OFF;
	} else if (from->efer & EFER_LMA) {
		mmu->mode = from->cr4 & CR4_LA57 ? MMU_X86_5 : MMU_X86_4;
	} else if (from->cr4 & CR4_PAE) {
		mmu->mode = MMU_X86_PAE;
		mmu->root = from->cr3 & 0xffffffe0; /* SDM vol. 3, table 4-7 */
	} else {
		mmu->mode = MMU_X86_32;
		mmu->root = from->cr3 & 0xfffff000;
	}
}

/* By DWARF number: System V ABI x86-64, figure 3.36. */
static void take_wide(const struct x86_regs *from, struct regs *to)
{
	const uint64_t first[] = {from->gp[AX], from->gp[DX], from->gp[CX], from->gp[BX],
				  from->gp[SI], from->gp[DI], from->gp[BP], from->gp[SP]};

	to->word = 8;
	to->pc = from->rip;
	to->sp = from->gp[SP];
	to->fp = from->gp[BP];
	memcpy(to->gp, first, sizeof(first));
	memcpy(to->gp + 8, from->gp + 8, sizeof(first));
	to->gp_valid = 0xffff;
}

/* By DWARF number: i386 psABI, table 2.14, which is the processors' own. */
static void take_narrow(const struct x86_regs *from, struct regs *to)
{
	to->word = 4;
	to->pc = (uint32_t)(from->rip + from->cs_base);
	to->sp = (uint32_t)(from->gp[SP] + from->ss_base);
	to->fp = (uint32_t)(from->gp[BP] + from->ss_base);
	for (int i = 0; i < 8; i++)
		to->gp[i] = (uint32_t)from->gp[i];
	to->gp_valid = 0xff;
}

void x86_regs_take(const struct x86_regs *from, struct regs *to)
{
	memset(to, 0, sizeof(*to));
	if ((from->efer & EFER_LMA) && from->cs_long)
		take_wide(from, to);
	else
		take_narrow(from, to);
	to->flags = from->rflags;
	to->user = from->cpl == 3;
	take_mmu(from, &to->mmu);
}
