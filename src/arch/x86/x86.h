/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef UNIPROF_ARCH_X86_X86_H
#define UNIPROF_ARCH_X86_X86_H

/* x86: registers, as hypervisors and debuggers tell them and as people read them, and page tables. */

#include "arch/registers.h"

struct x86_regs {
	/* As processors number them: rax, rcx, rdx, rbx, rsp, rbp, rsi, rdi, r8 to r15. */
	uint64_t gp[16];
	uint64_t rip, rflags;
	uint64_t cr0, cr3, cr4, efer;
	uint64_t cs_base, ss_base;
	uint64_t gs_base, kernel_gs_base; /* the second is what SWAPGS takes; 0: not known */
	bool cs_long;			  /* CS.L: 64-bit code, if EFER.LMA */
	uint8_t cpl;
};

/* Linux's tables for user mode are next to those with the kernel (CONFIG_PAGE_TABLE_ISOLATION). */
#define X86_LINUX_USER_TABLE 0x1000ull

/* Registers for unwinding. Addresses become linear: the bases of code and stack segments are added. */
void x86_regs_convert(const struct x86_regs *from, struct regs *to);

/* The `translate` of both x86 architectures: every paging mode, chosen by mmu->mode. */
enum xlate_status x86_translate(const struct mmu *mmu, uint64_t va, const struct physmem *mem,
				struct xlate *out);

/* Flags by name (struct registers). */
extern const struct register_bits x86_rflags, x86_cr0, x86_cr4, x86_efer;

/*
 * Instruction pointer (`ip`, as the processor has it: not yet linear), flags
 * and general registers.
 */
void x86_registers_general(const struct regs *regs, uint64_t ip, struct registers *out);

/* Shows `struct regs` for targets that know no more: arch->show. */
void x86_registers_show(const struct regs *regs, struct registers *out);

/* "64-bit code, ring 0, accessed" or "not present". */
#define X86_SEGMENT_TEXT 64
void x86_segment_text(uint16_t attributes, char text[X86_SEGMENT_TEXT]);

#endif
