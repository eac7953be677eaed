/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef UNIPROF_ARCH_X86_REGISTERS_H
#define UNIPROF_ARCH_X86_REGISTERS_H

/* What is in the registers of x86, for `struct registers`. */

#include "arch/registers.h"

extern const struct register_bits x86_rflags, x86_cr0, x86_cr4, x86_efer;

/*
 * Instruction pointer (`ip`, as the processor has it: not yet linear), flags
 * and general registers.
 */
void x86_registers_general(const struct regs *regs, uint64_t ip, struct registers *out);

/* What `struct regs` tells, for targets that know no more: arch->show. */
void x86_registers_show(const struct regs *regs, struct registers *out);

/* "64-bit code, ring 0, accessed" or "not present". */
#define X86_SEGMENT_TEXT 64
void x86_segment_text(uint16_t attributes, char text[X86_SEGMENT_TEXT]);

#endif
