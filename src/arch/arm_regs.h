/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef UNIPROF_ARCH_ARM_REGS_H
#define UNIPROF_ARCH_ARM_REGS_H

/* An Arm processor's registers, as debuggers tell them of the code that runs, for unwinding. */

#include "arch/arch.h"

/* PSTATE's bits (DDI 0487, C5.2.20): AArch32 state, its mode or the exception level. */
#define ARM_PSTATE_WIDTH32 0x10u
#define ARM_PSTATE_MODE	   0x0fu
#define ARM_PSTATE_EL	   0x0cu
#define ARM_PSTATE_T	   0x20u /* T32 code runs */

struct arm_regs {
	uint64_t r[31]; /* x0 to x30; r0 to r12 and, as r[14], lr */
	uint64_t sp, pc;
	uint32_t pstate;
	uint64_t sctlr, ttbr0, ttbr1;
	uint64_t control; /* TCR_EL1, TTBCR */
	bool wide;	  /* EL1 is in AArch64 state */
};

void arm_regs_take(const struct arm_regs *from, struct regs *to);

#endif
