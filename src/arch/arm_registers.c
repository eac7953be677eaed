/* SPDX-License-Identifier: BSD-3-Clause */
#include "arch/arm_registers.h"

#define BITS(array)                                   \
	{                                             \
		array, sizeof(array) / sizeof(*array) \
	}

/* SPSR_EL2 (DDI 0487, C5.2.20), of an exception from AArch64 and from AArch32. */
static const struct register_bit pstate_64[] = {
	{0, 1, "SP"},  {2, 2, "EL"},  {6, 1, "F"},  {7, 1, "I"},  {8, 1, "A"},	{9, 1, "D"},
	{20, 1, "IL"}, {21, 1, "SS"}, {28, 1, "V"}, {29, 1, "C"}, {30, 1, "Z"}, {31, 1, "N"},
};
static const struct register_bit pstate_32[] = {
	{0, 4, "M"},   {5, 1, "T"},  {6, 1, "F"},  {7, 1, "I"},	 {8, 1, "A"},  {9, 1, "E"},
	{20, 1, "IL"}, {27, 1, "Q"}, {28, 1, "V"}, {29, 1, "C"}, {30, 1, "Z"}, {31, 1, "N"},
};

static const struct register_bits flags_64 = BITS(pstate_64);
static const struct register_bits flags_32 = BITS(pstate_32);

/* In the order of DWARF's numbers: AADWARF64 and AADWARF32. */
static const char *const names_64[] = {"x0",  "x1",  "x2",  "x3",  "x4",  "x5",	 "x6",	"x7",
				       "x8",  "x9",  "x10", "x11", "x12", "x13", "x14", "x15",
				       "x16", "x17", "x18", "x19", "x20", "x21", "x22", "x23",
				       "x24", "x25", "x26", "x27", "x28", "x29", "x30", "sp"};
static const char *const names_32[] = {"r0", "r1", "r2",  "r3",	 "r4",	"r5", "r6", "r7",
				       "r8", "r9", "r10", "r11", "r12", "sp", "lr"};

void arm_registers_show(const struct regs *regs, struct registers *out)
{
	const bool wide = regs->word == 8;
	const unsigned n =
		wide ? sizeof(names_64) / sizeof(*names_64) : sizeof(names_32) / sizeof(*names_32);

	registers_add(out, REGISTER_GENERAL, "pc", regs->word, regs->pc, NULL);
	registers_add(out, REGISTER_GENERAL, "cpsr", 4, regs->flags, wide ? &flags_64 : &flags_32);
	for (unsigned i = 0; i < n; i++)
		if (regs->gp_valid >> i & 1)
			registers_add(out, REGISTER_GENERAL, wide ? names_64[i] : names_32[i],
				      regs->word, regs->gp[i], NULL);
}
