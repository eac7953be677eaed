/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef UNIPROF_ARCH_ARM_MMU_H
#define UNIPROF_ARCH_ARM_MMU_H

#include "arch/arch.h"

/* TTBCR.EAE (DDI 0487, G8.2.163): the format of the tables. */
#define ARM_TTBCR_EAE (1ull << 31)

/* Translates as stage 1 of PL1&0 does in AArch32 state: MMU_OFF, MMU_ARM_LPAE and MMU_ARM_SHORT. */
enum xlate_status arm_translate(const struct mmu *mmu, uint64_t va, const struct physmem *mem,
				struct xlate *out);

#endif
