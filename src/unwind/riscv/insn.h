/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef UNIPROF_UNWIND_RISCV_INSN_H
#define UNIPROF_UNWIND_RISCV_INSN_H

#include "arch/riscv/riscv.h"
#include "unwind/link.h"

/*
 * RV64GC instructions, compressed ones expanded (RISC-V Instruction Set Manual,
 * volume I): those that move the stack pointer, keep registers, or jump. As link_code.decode;
 * each is one operation.
 */
unsigned riscv_decode(const uint8_t *bytes, size_t n, struct link_op *out);

#endif
