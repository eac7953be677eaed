/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef UNIPROF_ARCH_ARM64_MMU_H
#define UNIPROF_ARCH_ARM64_MMU_H

#include "arch/arch.h"

/* Translates as stage 1 of EL1&0 does in AArch64 state: MMU_OFF and MMU_ARM64. */
enum xlate_status arm64_translate(const struct mmu *mmu, uint64_t va, const struct physmem *mem,
				  struct xlate *out);

/*
 * The address that is meant by a pointer with a tag or an authentication code
 * in its high bits, for the size of addresses that the guest has chosen.
 */
uint64_t arm64_strip(const struct mmu *mmu, uint64_t va);

#endif
