/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef UNIPROF_TARGET_QEMU_REGISTERS_TEXT_H
#define UNIPROF_TARGET_QEMU_REGISTERS_TEXT_H

#include "arch/x86_regs.h"

/* What the human monitor's "info registers" says of an x86 vCPU; false if some are not in it. */
bool qemu_registers_text(const char *text, struct x86_regs *out);

#endif
