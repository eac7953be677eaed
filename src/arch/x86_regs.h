/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef UNIPROF_ARCH_X86_REGS_H
#define UNIPROF_ARCH_X86_REGS_H

/* An x86 processor's registers, as hypervisors and debuggers tell them, for unwinding. */

#include "arch/arch.h"

struct x86_regs {
	/* As processors number them: rax, rcx, rdx, rbx, rsp, rbp, rsi, rdi, r8 to r15. */
	uint64_t gp[16];
	uint64_t rip, rflags;
	uint64_t cr0, cr3, cr4, efer;
	uint64_t cs_base, ss_base;
	bool cs_long; /* CS.L: 64-bit code, if EFER.LMA */
	uint8_t cpl;
};

/* Addresses become linear ones: the bases of code and stack segments are added. */
void x86_regs_take(const struct x86_regs *from, struct regs *to);

#endif
