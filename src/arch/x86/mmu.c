/* SPDX-License-Identifier: BSD-3-Clause */
#include "arch/x86/x86.h"

#include "arch/table_entry.h"

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

enum xlate_status x86_translate(const struct mmu *mmu, uint64_t va, const struct physmem *mem,
				struct xlate *out)
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
