/* SPDX-License-Identifier: BSD-3-Clause */
#include "arch/x86/x86.h"

#include <elf.h>
#include <stdio.h>
#include <string.h>

/*
 * Page walks as the processor does them (Intel SDM vol. 3, chapter 4). Access
 * rights are of no interest here: a page that is there can be read. Entries
 * that would fault because of reserved bits count as absent.
 */

#define PRESENT	  0x001ull
#define PAGE_SIZE 0x080ull /* the entry maps a large page */
#define ADDR_MASK 0x000ffffffffff000ull
#define PHYS_MAX  0x000fffffffffffffull

/*
 * Bytes that a page table of 512 entries covers, as a shift: neighbouring
 * addresses mostly share it.
 */
#define TABLE_SHIFT (FRAME_SHIFT + 9)

/* Walks tables of 512 entries from `level` (1: page table, ... 5) down. */
static enum xlate_status walk(uint64_t table, int level, uint64_t va, const struct physmem *mem,
			      struct xlate *out)
{
	uint64_t entry, size, base;

	if (out->table && !((va ^ out->table_va) >> TABLE_SHIFT)) {
		table = out->table;
		level = 1;
	}
	for (;; level--) {
		unsigned shift = FRAME_SHIFT + 9 * (level - 1);

		table &= ADDR_MASK;
		if (level == 1) {
			out->table = table;
			out->table_va = va;
		}
		if (!xlate_read_entry(mem, table + (va >> shift & 511) * 8, 8, &entry, out))
			return XLATE_MISSING;
		if (!(entry & PRESENT))
			return XLATE_ABSENT;
		if (level == 1)
			return xlate_found(entry & ADDR_MASK, FRAME_SHIFT, va, out);
		if (!(entry & PAGE_SIZE)) {
			table = entry;
			continue;
		}
		if (level > 3)
			return XLATE_ABSENT;
		size = 1ull << shift;
		/* In the address of a large page, bit 12 is a memory type, the rest must be 0. */
		base = entry & ADDR_MASK & ~(uint64_t)FRAME_SIZE;
		if (base & (size - 1))
			return XLATE_ABSENT;
		return xlate_found(base, shift, va, out);
	}
}

/*
 * The four top entries may lie at any multiple of 32 bytes, map no large pages
 * and have no rights bits. In a PV guest they may point above 4 GiB.
 */
static enum xlate_status walk_pae(const struct mmu *mmu, uint64_t va, const struct physmem *mem,
				  struct xlate *out)
{
	uint64_t entry, top = mmu->root & PHYS_MAX & ~31ull;

	if (va >> 32)
		return XLATE_ABSENT;
	if (!xlate_read_entry(mem, top + (va >> 30) * 8, 8, &entry, out))
		return XLATE_MISSING;
	if (!(entry & PRESENT))
		return XLATE_ABSENT;
	return walk(entry, 2, va, mem, out);
}

static enum xlate_status walk_32(const struct mmu *mmu, uint64_t va, const struct physmem *mem,
				 struct xlate *out)
{
	uint64_t entry, table = mmu->root & 0xfffff000;

	if (va >> 32)
		return XLATE_ABSENT;
	if (!xlate_read_entry(mem, table + (va >> 22) * 4, 4, &entry, out))
		return XLATE_MISSING;
	if (!(entry & PRESENT))
		return XLATE_ABSENT;
	if (mmu->pse && (entry & PAGE_SIZE)) {
		/* PSE-36: bits 20:13 of the entry are bits 39:32 of the address. */
		if (entry >> 21 & 1)
			return XLATE_ABSENT;
		return xlate_found((entry & 0xffc00000) | (entry >> 13 & 0xff) << 32, 22, va, out);
	}
	table = entry & 0xfffff000;
	if (!xlate_read_entry(mem, table + (va >> 12 & 1023) * 4, 4, &entry, out))
		return XLATE_MISSING;
	if (!(entry & PRESENT))
		return XLATE_ABSENT;
	return xlate_found(entry & 0xfffff000, FRAME_SHIFT, va, out);
}

/* The `translate` of both x86 architectures: every paging mode, chosen by mmu->mode. */
static enum xlate_status x86_translate(const struct mmu *mmu, uint64_t va,
				       const struct physmem *mem, struct xlate *out)
{
	switch (mmu->mode) {
	case MMU_OFF:
		return va > PHYS_MAX ? XLATE_ABSENT : xlate_found(va, FRAME_SHIFT, va, out);
	case MMU_X86_32:
		return walk_32(mmu, va, mem, out);
	case MMU_X86_PAE:
		return walk_pae(mmu, va, mem, out);
	case MMU_X86_4:
		return xlate_is_canonical(va, 48) ? walk(mmu->root, 4, va, mem, out) : XLATE_ABSENT;
	case MMU_X86_5:
		return xlate_is_canonical(va, 57) ? walk(mmu->root, 5, va, mem, out) : XLATE_ABSENT;
	default:
		return XLATE_ABSENT;
	}
}

#define PFN_MASK 0x000ffffffffff000ull

enum { AX, CX, DX, BX, SP, BP, SI, DI };

static void convert_mmu(const struct x86_regs *from, struct mmu *mmu)
{
	mmu->pse = from->cr4 & CR4_PSE;
	mmu->root = from->cr3 & PFN_MASK;
	if (!(from->cr0 & CR0_PG)) {
		mmu->mode = MMU_OFF;
	} else if (from->efer & EFER_LMA) {
		mmu->mode = from->cr4 & CR4_LA57 ? MMU_X86_5 : MMU_X86_4;
	} else if (from->cr4 & CR4_PAE) {
		mmu->mode = MMU_X86_PAE;
		mmu->root = from->cr3 & 0xffffffe0; /* SDM vol. 3, table 4-7 */
	} else {
		mmu->mode = MMU_X86_32;
		mmu->root = from->cr3 & 0xfffff000;
	}
}

/* DWARF register numbers of the System V ABI x86-64, figure 3.36. */
static void convert_wide(const struct x86_regs *from, struct regs *to)
{
	const uint64_t first[] = {from->gp[AX], from->gp[DX], from->gp[CX], from->gp[BX],
				  from->gp[SI], from->gp[DI], from->gp[BP], from->gp[SP]};

	to->word = 8;
	to->pc = from->rip;
	to->sp = from->gp[SP];
	to->fp = from->gp[BP];
	memcpy(to->gp, first, sizeof(first));
	memcpy(to->gp + 8, from->gp + 8, sizeof(first));
	to->gp_valid = 0xffff;
}

/* DWARF register numbers of the i386 psABI, table 2.14, which are the processor's own. */
static void convert_narrow(const struct x86_regs *from, struct regs *to)
{
	to->word = 4;
	to->pc = (uint32_t)(from->rip + from->cs_base);
	to->sp = x86_stack_address(from->gp[SP], from->ss_base, from->ss_short);
	to->fp = x86_stack_address(from->gp[BP], from->ss_base, from->ss_short);
	to->segmented = x86_segmented(from->cs_base, from->cs_short);
	for (int i = 0; i < 8; i++)
		to->gp[i] = (uint32_t)from->gp[i];
	to->gp_valid = 0xff;
}

void x86_regs_convert(const struct x86_regs *from, struct regs *to)
{
	memset(to, 0, sizeof(*to));
	if ((from->efer & EFER_LMA) && from->cs_long)
		convert_wide(from, to);
	else
		convert_narrow(from, to);
	to->flags = from->rflags;
	to->user = from->cpl == 3;
	convert_mmu(from, &to->mmu);
	to->own[0] = from->gs_base;
	to->own[1] = from->kernel_gs_base;
	to->kernel_root = to->mmu.root & ~X86_LINUX_USER_TABLE;
}

/* Intel SDM vol. 1, figure 3-8. */
const struct register_bit x86_rflags[] = {
	{0, 1, "CF"},  {2, 1, "PF"},  {4, 1, "AF"},   {6, 1, "ZF"},    {7, 1, "SF"},  {8, 1, "TF"},
	{9, 1, "IF"},  {10, 1, "DF"}, {11, 1, "OF"},  {12, 2, "IOPL"}, {14, 1, "NT"}, {16, 1, "RF"},
	{17, 1, "VM"}, {18, 1, "AC"}, {19, 1, "VIF"}, {20, 1, "VIP"},  {21, 1, "ID"}, {0},
};

/* Intel SDM vol. 3, section 2.5. */
const struct register_bit x86_cr0[] = {
	{0, 1, "PE"},  {1, 1, "MP"},  {2, 1, "EM"},  {3, 1, "TS"},  {4, 1, "ET"},  {5, 1, "NE"},
	{16, 1, "WP"}, {18, 1, "AM"}, {29, 1, "NW"}, {30, 1, "CD"}, {31, 1, "PG"}, {0},
};

const struct register_bit x86_cr4[] = {
	{0, 1, "VME"},	  {1, 1, "PVI"},      {2, 1, "TSD"},	     {3, 1, "DE"},
	{4, 1, "PSE"},	  {5, 1, "PAE"},      {6, 1, "MCE"},	     {7, 1, "PGE"},
	{8, 1, "PCE"},	  {9, 1, "OSFXSR"},   {10, 1, "OSXMMEXCPT"}, {11, 1, "UMIP"},
	{12, 1, "LA57"},  {13, 1, "VMXE"},    {14, 1, "SMXE"},	     {16, 1, "FSGSBASE"},
	{17, 1, "PCIDE"}, {18, 1, "OSXSAVE"}, {20, 1, "SMEP"},	     {21, 1, "SMAP"},
	{22, 1, "PKE"},	  {23, 1, "CET"},     {24, 1, "PKS"},	     {0},
};

/* AMD APM vol. 2, section 3.1.7. */
const struct register_bit x86_efer[] = {
	{0, 1, "SCE"},	  {8, 1, "LME"},   {10, 1, "LMA"},
	{11, 1, "NXE"},	  {12, 1, "SVME"}, {13, 1, "LMSLE"},
	{14, 1, "FFXSR"}, {15, 1, "TCE"},  {0},
};

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
		      x86_rflags);
	for (unsigned i = 0; i < n; i++) {
		unsigned number = wide ? order_64[i] : order_32[i];

		if (regs->gp_valid >> number & 1)
			registers_add(out, REGISTER_GENERAL,
				      wide ? names_64[number] : names_32[number], bytes,
				      regs->gp[number], NULL);
	}
}

/* Shows `struct regs` for targets that know no more: arch->show. */
static void x86_registers_show(const struct regs *regs, struct registers *out)
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

/* Intel SDM vol. 3, table 3-2: the system types that segment registers can have. */
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

#define MODES \
	(1u << MMU_OFF | 1u << MMU_X86_32 | 1u << MMU_X86_PAE | 1u << MMU_X86_4 | 1u << MMU_X86_5)

/* The control registers alone select the translation: both architectures share the walk. */
#define X86_ARCH(called, bytes, number)                                                           \
	{                                                                                         \
		.name = called, .isa = ISA_X86, .word = bytes, .machine = number, .modes = MODES, \
		.translate = x86_translate, .show = x86_registers_show,                           \
		.segment_text = x86_segment_text                                                  \
	}

const struct arch arch_x86_64 = X86_ARCH("x86_64", 8, EM_X86_64);
const struct arch arch_x86_32 = X86_ARCH("x86_32", 4, EM_386);
