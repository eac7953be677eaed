/* SPDX-License-Identifier: BSD-3-Clause */
#include "arch/arm/arm.h"

#include "arch/table_entry.h"

/*
 * Page walks as the processor does them in AArch32 state (Arm Architecture
 * Reference Manual for A-profile, DDI 0487, chapter G5). Access rights and the
 * access flag are of no interest here: a page that is there can be read.
 */

/* TTBCR with short descriptors (G8.2.163). */
#define TTBCR_N	  7u
#define TTBCR_PD0 (1u << 4)
#define TTBCR_PD1 (1u << 5)

/* Short descriptors of the first level (G5.4.1): their type, bits 1:0. */
enum { SHORT_NONE, SHORT_TABLE };
#define SECTION_SUPER (1u << 18)

static enum xlate_status second_level(uint64_t first, uint64_t va, const struct physmem *mem,
				      struct xlate *out)
{
	uint64_t entry;

	if (!xlate_read_entry(mem, (first & 0xfffffc00) + (va >> 12 & 0xff) * 4, 4, &entry, out))
		return XLATE_MISSING;
	switch (entry & 3) {
	case 0:
		return XLATE_ABSENT;
	case 1:
		return xlate_found(entry & 0xffff0000, 16, va, out);
	default:
		return xlate_found(entry & 0xfffff000, 12, va, out);
	}
}

static enum xlate_status section(uint64_t entry, uint64_t va, struct xlate *out)
{
	if (entry & SECTION_SUPER)
		return xlate_found((entry & 0xff000000) | (entry >> 20 & 0xf) << 32 |
					   (entry >> 5 & 0xf) << 36,
				   24, va, out);
	return xlate_found(entry & 0xfff00000, 20, va, out);
}

static enum xlate_status walk_short(const struct mmu *mmu, uint64_t va, const struct physmem *mem,
				    struct xlate *out)
{
	const uint32_t ttbcr = (uint32_t)mmu->control;
	unsigned n = ttbcr & TTBCR_N;
	uint64_t table = mmu->root, entry;
	bool off = ttbcr & TTBCR_PD0;

	if (n && va >> (32 - n)) {
		table = mmu->root_high;
		off = ttbcr & TTBCR_PD1;
		n = 0;
	}
	if (off)
		return XLATE_ABSENT;
	table &= 0xffffffff & ~((1ull << (14 - n)) - 1);
	if (!xlate_read_entry(mem, table + (va >> 20 & ((1u << (12 - n)) - 1)) * 4, 4, &entry, out))
		return XLATE_MISSING;
	switch (entry & 3) {
	case SHORT_NONE:
		return XLATE_ABSENT;
	case SHORT_TABLE:
		return second_level(entry, va, mem, out);
	default:
		return section(entry, va, out);
	}
}

/* TTBCR with long descriptors (G8.2.163). */
#define TTBCR_T0SZ 0
#define TTBCR_T1SZ 16
#define TTBCR_SZ   7u
#define TTBCR_EPD0 (1u << 7)
#define TTBCR_EPD1 (1u << 23)

#define LONG_VALID   1u
#define LONG_TABLE   2u /* ... or, at the last level, a page */
#define LONG_ADDRESS 0x000000fffffff000ull

/*
 * Chooses the table that translates `va`, and the size of its addresses in bits
 * (G5.5.5); false: none.
 */
static bool choose(const struct mmu *mmu, uint64_t va, uint64_t *table, unsigned *bits)
{
	const uint32_t ttbcr = (uint32_t)mmu->control;
	const unsigned t0 = ttbcr >> TTBCR_T0SZ & TTBCR_SZ, t1 = ttbcr >> TTBCR_T1SZ & TTBCR_SZ;
	const uint64_t above = t1 ? ~va & 0xffffffff : va;

	if (!(va >> (32 - t0)) && (t0 || !t1 || above >> (32 - t1))) {
		*table = mmu->root;
		*bits = 32 - t0;
		return !(ttbcr & TTBCR_EPD0);
	}
	if (t1 && above >> (32 - t1))
		return false;
	*table = mmu->root_high;
	*bits = 32 - t1;
	return !(ttbcr & TTBCR_EPD1);
}

/* Levels of 9 bits; with 30 bits or less the first of the three is left out. */
static enum xlate_status walk_long(const struct mmu *mmu, uint64_t va, const struct physmem *mem,
				   struct xlate *out)
{
	uint64_t table, entry;
	unsigned bits, shift, index;

	if (!choose(mmu, va, &table, &bits))
		return XLATE_ABSENT;
	shift = bits > 30 ? 30 : 21;
	index = bits - shift;
	table &= 0x000000ffffffffffull & ~((8ull << index) - 1);
	for (;; shift -= 9, index = 9) {
		if (!xlate_read_entry(mem, table + (va >> shift & ((1u << index) - 1)) * 8, 8,
				      &entry, out))
			return XLATE_MISSING;
		if (!(entry & LONG_VALID))
			return XLATE_ABSENT;
		table = entry & LONG_ADDRESS;
		if (shift == 12)
			return entry & LONG_TABLE ? xlate_found(table, shift, va, out)
						  : XLATE_ABSENT;
		if (!(entry & LONG_TABLE))
			return xlate_found(table, shift, va, out);
	}
}

enum xlate_status arm32_translate(const struct mmu *mmu, uint64_t va, const struct physmem *mem,
				  struct xlate *out)
{
	if (va >> 32)
		return XLATE_ABSENT;
	switch (mmu->mode) {
	case MMU_OFF:
		return xlate_found(va, FRAME_SHIFT, va, out);
	case MMU_ARM_SHORT:
		return walk_short(mmu, va, mem, out);
	case MMU_ARM_LPAE:
		return walk_long(mmu, va, mem, out);
	default:
		return XLATE_ABSENT;
	}
}
