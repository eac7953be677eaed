/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef UNIPROF_ARCH_X86_MMU_H
#define UNIPROF_ARCH_X86_MMU_H

#include "arch/arch.h"

/* The `translate` of both x86 architectures: every paging mode, chosen by mmu->mode. */
enum xlate_status x86_translate(const struct mmu *mmu, uint64_t va, const struct physmem *mem,
				struct xlate *out);

#endif
