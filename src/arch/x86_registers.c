/* SPDX-License-Identifier: BSD-3-Clause */
#include "arch/x86_registers.h"

#include <stdio.h>

#define BITS(table)                                     \
	{                                               \
		table, sizeof(table) / sizeof(table[0]) \
	}

/* Intel SDM vol. 1, figure 3-8. */
static const struct register_bit rflags[] = {
	{0, 1, "CF"},  {2, 1, "PF"},  {4, 1, "AF"},   {6, 1, "ZF"},    {7, 1, "SF"},  {8, 1, "TF"},
	{9, 1, "IF"},  {10, 1, "DF"}, {11, 1, "OF"},  {12, 2, "IOPL"}, {14, 1, "NT"}, {16, 1, "RF"},
	{17, 1, "VM"}, {18, 1, "AC"}, {19, 1, "VIF"}, {20, 1, "VIP"},  {21, 1, "ID"},
};

/* Intel SDM vol. 3, section 2.5. */
static const struct register_bit cr0[] = {
	{0, 1, "PE"},  {1, 1, "MP"},  {2, 1, "EM"},  {3, 1, "TS"},  {4, 1, "ET"},  {5, 1, "NE"},
	{16, 1, "WP"}, {18, 1, "AM"}, {29, 1, "NW"}, {30, 1, "CD"}, {31, 1, "PG"},
};

static const struct register_bit cr4[] = {
	{0, 1, "VME"},	  {1, 1, "PVI"},      {2, 1, "TSD"},	     {3, 1, "DE"},
	{4, 1, "PSE"},	  {5, 1, "PAE"},      {6, 1, "MCE"},	     {7, 1, "PGE"},
	{8, 1, "PCE"},	  {9, 1, "OSFXSR"},   {10, 1, "OSXMMEXCPT"}, {11, 1, "UMIP"},
	{12, 1, "LA57"},  {13, 1, "VMXE"},    {14, 1, "SMXE"},	     {16, 1, "FSGSBASE"},
	{17, 1, "PCIDE"}, {18, 1, "OSXSAVE"}, {20, 1, "SMEP"},	     {21, 1, "SMAP"},
	{22, 1, "PKE"},	  {23, 1, "CET"},     {24, 1, "PKS"},
};

/* AMD APM vol. 2, section 3.1.7. */
static const struct register_bit efer[] = {
	{0, 1, "SCE"},	 {8, 1, "LME"},	   {10, 1, "LMA"},   {11, 1, "NXE"},
	{12, 1, "SVME"}, {13, 1, "LMSLE"}, {14, 1, "FFXSR"}, {15, 1, "TCE"},
};

const struct register_bits x86_rflags = BITS(rflags);
const struct register_bits x86_cr0 = BITS(cr0);
const struct register_bits x86_cr4 = BITS(cr4);
const struct register_bits x86_efer = BITS(efer);

/* In the order of DWARF's numbers: System V ABI x86-64, figure 3.36; i386 psABI, table 2.14. */
static const char *const names_64[] = {"rax", "rdx", "rcx", "rbx", "rsi", "rdi", "rbp", "rsp",
				       "r8",  "r9",  "r10", "r11", "r12", "r13", "r14", "r15"};
static const char *const names_32[] = {"eax", "ecx", "edx", "ebx", "esp", "ebp", "esi", "edi"};

/* As debuggers have them. */
static const uint8_t order_64[] = {0, 3, 2, 1, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
static const uint8_t order_32[] = {0, 3, 1, 2, 6, 7, 5, 4};

void x86_registers_general(const struct regs *regs, uint64_t ip, struct registers *out)
{
	const bool wide = regs->word == 8;
	const unsigned bytes = wide ? 8 : 4, n = wide ? sizeof(order_64) : sizeof(order_32);

	registers_add(out, REGISTER_GENERAL, wide ? "rip" : "eip", bytes, ip, NULL);
	registers_add(out, REGISTER_GENERAL, wide ? "rflags" : "eflags", bytes, regs->flags,
		      &x86_rflags);
	for (unsigned i = 0; i < n; i++) {
		unsigned number = wide ? order_64[i] : order_32[i];

		if (regs->gp_valid >> number & 1)
			registers_add(out, REGISTER_GENERAL,
				      wide ? names_64[number] : names_32[number], bytes,
				      regs->gp[number], NULL);
	}
}

void x86_registers_show(const struct regs *regs, struct registers *out)
{
	x86_registers_general(regs, regs->pc, out);
	/* Its flag bits have been taken away. */
	if (regs->mmu.mode != MMU_OFF)
		registers_add(out, REGISTER_CONTROL, "cr3", regs->word, regs->mmu.root, NULL);
}

/* Intel SDM vol. 3, table 3-1. */
static const char *application_kind(uint16_t attributes)
{
	const bool code = attributes & 8, l = attributes >> 9 & 1, db = attributes >> 10 & 1;

	if (!code)
		return attributes & 2 ? "data" : "data, read-only";
	return l ? "64-bit code" : db ? "32-bit code" : "16-bit code";
}

/* Intel SDM vol. 3, table 3-2, of those that registers hold. */
static const char *system_kind(uint16_t attributes)
{
	switch (attributes & 0xf) {
	case 2:
		return "LDT";
	case 3:
		return "16-bit TSS";
	case 9:
	case 11:
		return "TSS";
	}
	return "system";
}

void x86_segment_text(uint16_t attributes, char text[X86_SEGMENT_TEXT])
{
	const bool present = attributes >> 7 & 1, application = attributes >> 4 & 1;

	if (present)
		snprintf(text, X86_SEGMENT_TEXT, "%s, ring %u",
			 application ? application_kind(attributes) : system_kind(attributes),
			 attributes >> 5 & 3);
	else
		snprintf(text, X86_SEGMENT_TEXT, "not present");
}
