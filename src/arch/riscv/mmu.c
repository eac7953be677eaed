/* SPDX-License-Identifier: BSD-3-Clause */
#include "arch/riscv/riscv.h"

#include "arch/table_entry.h"

/*
 * Page walks as the processor does them (RISC-V Instruction Set Manual, volume
 * II, chapter "Supervisor-Level ISA": Sv39, Sv48 and Sv57 differ in their
 * number of levels). Access rights are of no interest here: a page that is
 * there can be read. Entries that would fault because of reserved bits count as
 * absent.
 */

#define PHYS_MAX 0x00ffffffffffffffull

/* Entries: 44 bits of page number; leaves are those that may be read or executed. */
#define VALID	   0x001ull
#define READ	   0x002ull
#define WRITE	   0x004ull
#define EXECUTE	   0x008ull
#define FRAME_MASK 0x00000fffffffffffull
#define FRAME_AT   10
#define RESERVED   0x1fc0000000000000ull
/*
 * Bits that are reserved in an entry for a table: user, accessed, dirty, and
 * all above the page number.
 */
#define NO_TABLE 0xffc00000000000d0ull

/* Svnapot: an entry of the last level for a page of 64 KiB, whose number ends in 8. */
#define NAPOT	    (1ull << 63)
#define NAPOT_SHIFT 16
#define NAPOT_MASK  0xfull
#define NAPOT_64K   0x8ull

#define INDEX_BITS 9
#define INDEX_MASK ((1ull << INDEX_BITS) - 1)

/* Bytes that one last-level table covers, as a shift: neighbouring addresses mostly share it. */
#define TABLE_SHIFT (FRAME_SHIFT + INDEX_BITS)

static uint64_t address_of(uint64_t entry)
{
	return (entry >> FRAME_AT & FRAME_MASK) << FRAME_SHIFT;
}

static enum xlate_status leaf(uint64_t entry, unsigned shift, uint64_t va, struct xlate *out)
{
	const uint64_t base = address_of(entry);

	if (entry & RESERVED)
		return XLATE_ABSENT;
	if (entry & NAPOT) {
		if (shift != FRAME_SHIFT || (entry >> FRAME_AT & NAPOT_MASK) != NAPOT_64K)
			return XLATE_ABSENT;
		return xlate_found(base, NAPOT_SHIFT, va, out);
	}
	if (base & ((1ull << shift) - 1))
		return XLATE_ABSENT;
	return xlate_found(base, shift, va, out);
}

static enum xlate_status walk(uint64_t table, unsigned levels, uint64_t va,
			      const struct physmem *mem, struct xlate *out)
{
	unsigned shift = FRAME_SHIFT + INDEX_BITS * (levels - 1);
	uint64_t entry;

	if (out->table && !((va ^ out->table_va) >> TABLE_SHIFT)) {
		table = out->table;
		shift = FRAME_SHIFT;
	}
	for (;; shift -= INDEX_BITS) {
		if (shift == FRAME_SHIFT) {
			out->table = table;
			out->table_va = va;
		}
		if (!xlate_read_entry(mem, table + (va >> shift & INDEX_MASK) * 8, 8, &entry, out))
			return XLATE_MISSING;
		if (!(entry & VALID) || (entry & (READ | WRITE)) == WRITE)
			return XLATE_ABSENT;
		if (entry & (READ | EXECUTE))
			return leaf(entry, shift, va, out);
		if (shift == FRAME_SHIFT || entry & NO_TABLE)
			return XLATE_ABSENT;
		table = address_of(entry);
	}
}

enum xlate_status riscv_translate(const struct mmu *mmu, uint64_t va, const struct physmem *mem,
				  struct xlate *out)
{
	unsigned levels;

	switch (mmu->mode) {
	case MMU_OFF:
		return va > PHYS_MAX ? XLATE_ABSENT : xlate_found(va, FRAME_SHIFT, va, out);
	case MMU_RISCV_39:
		levels = 3;
		break;
	case MMU_RISCV_48:
		levels = 4;
		break;
	case MMU_RISCV_57:
		levels = 5;
		break;
	default:
		return XLATE_ABSENT;
	}
	if (!xlate_is_canonical(va, FRAME_SHIFT + INDEX_BITS * levels))
		return XLATE_ABSENT;
	return walk(mmu->root, levels, va, mem, out);
}
