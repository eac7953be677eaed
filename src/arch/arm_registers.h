/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef UNIPROF_ARCH_ARM_REGISTERS_H
#define UNIPROF_ARCH_ARM_REGISTERS_H

#include "arch/registers.h"

/* General registers of 64 or 32 bits, by regs->word, and the state with its flags. */
void arm_registers_show(const struct regs *regs, struct registers *out);

#endif
