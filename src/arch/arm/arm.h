/* SPDX-License-Identifier: BSD-3-Clause */
#pragma once

/* Arm: registers, as debuggers tell them of the code that runs and as people read them, and page tables. */

#include "arch/arch.h"

/* PSTATE's bits (DDI 0487, C5.2.20): AArch32 state, its mode or the exception level. */
#define ARM_PSTATE_WIDTH32 0x10u
#define ARM_PSTATE_MODE	   0x0fu
#define ARM_PSTATE_EL	   0x0cu
#define ARM_PSTATE_T	   0x20u /* T32 code runs */
#define ARM_PSTATE_I	   0x80u /* interrupts are masked */

struct arm_regs {
	uint64_t r[31]; /* x0 to x30; r0 to r12 and, as r[14], lr */
	uint64_t sp, pc;
	uint32_t pstate;
	uint64_t sctlr, ttbr0, ttbr1;
	uint64_t control; /* TCR_EL1, TTBCR */
	bool wide;	  /* EL1 is in AArch64 state */
};

/* Registers for unwinding. */
void arm_regs_convert(const struct arm_regs *from, struct regs *to);

/*
 * The address that is meant by a pointer with a tag or an authentication code
 * in its high bits, for the size of addresses that the guest has chosen.
 */
uint64_t arm64_strip(const struct mmu *mmu, uint64_t va);

/* MMU_ARM64 only: physical address of the table in TTBR0_EL1, bytes; 0 if TCR_EL1 allows none. */
uint64_t arm64_table(const struct mmu *mmu);

/*
 * Root of the tables that have Linux's kernel, as in TTBR1_EL1, where those there now lack it: while a
 * program runs, or the kernel's trampoline (KPTI); else 0.
 */
uint64_t arm64_linux_kernel_root(uint64_t ttbr1);

/* TTBCR.EAE (DDI 0487, G8.2.163): the format of the tables. */
#define ARM_TTBCR_EAE (1ull << 31)
