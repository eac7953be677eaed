/* SPDX-License-Identifier: BSD-3-Clause */
#include <string.h>

#include "arch/arm_regs.h"
#include "target/gdb/layout.h"

/* Named as in QEMU's target/arm/helper.c. */
enum { SCTLR, TTBR0, TTBR1, CONTROL, PSTATE, PC, SP, GP };

/* AArch32: r0 to r12 and lr; TTBR0 and TTBR1 of 64 bits, where there are tables with such entries. */
enum { LOW = 13, LR = 14, TTBR0_WIDE = GP + LOW + 1, TTBR1_WIDE };

static const char *const wide[] = {"SCTLR|SCTLR_EL1",
				   "TTBR0_EL1",
				   "TTBR1_EL1",
				   "TCR_EL1",
				   "cpsr",
				   "pc",
				   "sp",
				   "x0",
				   "x1",
				   "x2",
				   "x3",
				   "x4",
				   "x5",
				   "x6",
				   "x7",
				   "x8",
				   "x9",
				   "x10",
				   "x11",
				   "x12",
				   "x13",
				   "x14",
				   "x15",
				   "x16",
				   "x17",
				   "x18",
				   "x19",
				   "x20",
				   "x21",
				   "x22",
				   "x23",
				   "x24",
				   "x25",
				   "x26",
				   "x27",
				   "x28",
				   "x29",
				   "x30",
				   NULL};
static const char *const narrow[] = {"SCTLR", "TTBR0_EL1", "TTBR1_EL1", "TTBCR", "cpsr",  "pc",
				     "sp",    "r0",	   "r1",	"r2",	 "r3",	  "r4",
				     "r5",    "r6",	   "r7",	"r8",	 "r9",	  "r10",
				     "r11",   "r12",	   "lr",	"TTBR0", "TTBR1", NULL};

static struct arm_regs common(const uint64_t *value)
{
	return (struct arm_regs){.sp = value[SP],
				 .pc = value[PC],
				 .pstate = (uint32_t)value[PSTATE],
				 .sctlr = value[SCTLR],
				 .ttbr0 = value[TTBR0],
				 .ttbr1 = value[TTBR1],
				 .control = value[CONTROL]};
}

/* Of code of 32 bits, this stub does not tell registers: they are kept elsewhere. */
static bool take_wide(const uint64_t *value, struct regs *to)
{
	struct arm_regs regs = common(value);

	regs.wide = true;
	memcpy(regs.r, value + GP, sizeof(regs.r));
	arm_regs_take(&regs, to);
	return !(regs.pstate & ARM_PSTATE_WIDTH32);
}

static bool take_narrow(const uint64_t *value, struct regs *to)
{
	struct arm_regs regs = common(value);

	memcpy(regs.r, value + GP, LOW * sizeof(*value));
	regs.r[LR] = value[GP + LOW];
	if (value[TTBR0_WIDE])
		regs.ttbr0 = value[TTBR0_WIDE];
	if (value[TTBR1_WIDE])
		regs.ttbr1 = value[TTBR1_WIDE];
	arm_regs_take(&regs, to);
	return regs.pstate & ARM_PSTATE_WIDTH32;
}

const struct gdb_machine gdb_aarch64 = {
	.name = "aarch64",
	.arch = &arch_arm64,
	.registers = wide,
	.needed = GP + 31,
	.take = take_wide,
};

const struct gdb_machine gdb_arm = {
	.name = "arm",
	.arch = &arch_arm32,
	.registers = narrow,
	.needed = GP + LOW + 1,
	.take = take_narrow,
};
