/* SPDX-License-Identifier: BSD-3-Clause */
#pragma once

/* RISC-V: registers, as debuggers tell them of the code that runs, and page tables. */

#include "arch/arch.h"

/* Numbers of registers, in DWARF as in instructions (RISC-V ELF psABI, "DWARF Register Numbers"). */
enum riscv_register { RISCV_ZERO, RISCV_RA, RISCV_SP, RISCV_S0 = 8, RISCV_REGISTERS = 32 };

enum riscv_privilege { RISCV_USER, RISCV_SUPERVISOR, RISCV_MACHINE = 3 };

/* satp: how addresses are translated, and the top table's frame. */
#define RISCV_SATP_MODE	 60
#define RISCV_SATP_FRAME 0x00000fffffffffffull

/* Who was interrupted by a trap: sstatus has a bit, mstatus two (volume II, "Machine Status Registers"). */
#define RISCV_SSTATUS_SPP (1u << 8)
#define RISCV_MSTATUS_MPP (3u << 11)

/* In struct regs' flags, where sstatus has no bit: machine mode, whose elr and spsr are mepc and mstatus. */
#define RISCV_IN_MACHINE (UINT64_C(1) << 62)

struct riscv_regs {
	uint64_t x[RISCV_REGISTERS];
	uint64_t pc;
	uint64_t satp;
	uint64_t sepc, sstatus;
	uint64_t mepc, mstatus;
	bool has_sepc, has_mepc; /* ... of these pairs */
	uint8_t privilege;	 /* enum riscv_privilege */
};

/* Registers for unwinding. */
void riscv_regs_convert(const struct riscv_regs *from, struct regs *to);
