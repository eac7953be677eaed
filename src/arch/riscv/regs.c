/* SPDX-License-Identifier: BSD-3-Clause */
#include "arch/riscv/riscv.h"

#include <elf.h>
#include <string.h>

/* satp.MODE (RISC-V Instruction Set Manual, volume II, "Supervisor Address Translation"). */
static enum mmu_mode mode_of(uint64_t satp)
{
	switch (satp >> RISCV_SATP_MODE) {
	case 8:
		return MMU_RISCV_39;
	case 9:
		return MMU_RISCV_48;
	case 10:
		return MMU_RISCV_57;
	default:
		return MMU_OFF;
	}
}

void riscv_regs_convert(const struct riscv_regs *from, struct regs *to)
{
	memset(to, 0, sizeof(*to));
	to->isa = ISA_RISCV;
	to->word = 8;
	to->pc = from->pc;
	to->sp = from->x[RISCV_SP];
	to->fp = from->x[RISCV_S0];
	memcpy(to->gp, from->x, sizeof(to->gp));
	to->gp_valid = UINT32_MAX;
	to->user = from->privilege == RISCV_USER;
	to->flags = from->sstatus;
	if (from->privilege == RISCV_SUPERVISOR && from->has_sepc) {
		to->has_elr = true;
		to->elr = from->sepc;
		to->spsr = from->sstatus;
	} else if (from->privilege == RISCV_MACHINE && from->has_mepc) {
		to->has_elr = true;
		to->elr = from->mepc;
		to->spsr = from->mstatus;
	}
	/* Firmware is not translated, whatever the supervisor has set. */
	if (from->privilege == RISCV_MACHINE) {
		to->flags |= RISCV_IN_MACHINE;
		return;
	}
	to->mmu.mode = mode_of(from->satp);
	if (to->mmu.mode != MMU_OFF)
		to->mmu.root = (from->satp & RISCV_SATP_FRAME) << FRAME_SHIFT;
}

static const struct register_bit sstatus[] = {
	{1, 1, "SIE"}, {5, 1, "SPIE"}, {8, 1, "SPP"}, {13, 2, "FS"}, {18, 1, "SUM"}, {19, 1, "MXR"},
};
static const struct register_bits status = {sstatus, sizeof(sstatus) / sizeof(*sstatus)};

/* Indexed by register number; x0 is always 0 and not shown. */
static const char *const names[RISCV_REGISTERS] = {NULL, "ra", "sp", "gp", "tp", "t0",	"t1",
						   "t2", "s0", "s1", "a0", "a1", "a2",	"a3",
						   "a4", "a5", "a6", "a7", "s2", "s3",	"s4",
						   "s5", "s6", "s7", "s8", "s9", "s10", "s11",
						   "t3", "t4", "t5", "t6"};

void riscv_registers_show(const struct regs *regs, struct registers *out)
{
	const bool machine = regs->flags & RISCV_IN_MACHINE;

	registers_add(out, REGISTER_GENERAL, "pc", regs->word, regs->pc, NULL);
	for (unsigned i = RISCV_RA; i < RISCV_REGISTERS; i++)
		if (regs->gp_valid >> i & 1)
			registers_add(out, REGISTER_GENERAL, names[i], regs->word, regs->gp[i],
				      NULL);
	if (!regs->has_elr)
		return;
	registers_add(out, REGISTER_SYSTEM, machine ? "mstatus" : "sstatus", regs->word, regs->spsr,
		      machine ? NULL : &status);
	registers_add(out, REGISTER_SYSTEM, machine ? "mepc" : "sepc", regs->word, regs->elr, NULL);
}

const struct arch arch_riscv64 = {
	.name = "riscv64",
	.isa = ISA_RISCV,
	.word = 8,
	.machine = EM_RISCV,
	.modes = 1u << MMU_OFF | 1u << MMU_RISCV_39 | 1u << MMU_RISCV_48 | 1u << MMU_RISCV_57,
	.translate = riscv_translate,
	.show = riscv_registers_show,
};
