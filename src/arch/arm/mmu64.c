/* SPDX-License-Identifier: BSD-3-Clause */
#include "arch/arm/arm.h"

#include "arch/table_entry.h"

/*
 * Page walks as the processor does them (Arm Architecture Reference Manual for
 * A-profile, DDI 0487, chapter D8, "The AArch64 Virtual Memory System
 * Architecture"). Access rights and the access flag are of no interest here: a
 * page that is there can be read.
 */

#define PHYS_MAX 0x000fffffffffffffull

/* TCR_EL1 (D19.2.139): the same fields for TTBR0_EL1 and, further up, for TTBR1_EL1. */
#define TCR_T0SZ 0
#define TCR_T1SZ 16
#define TCR_SZ	 0x3f
#define TCR_EPD0 (1ull << 7)
#define TCR_EPD1 (1ull << 23)
#define TCR_TG0	 14
#define TCR_TG1	 30
#define TCR_TBI0 (1ull << 37)
#define TCR_TBI1 (1ull << 38)
#define TCR_DS	 (1ull << 59)

/* The bit of an address that chooses the table, whatever is in the bits above. */
#define CHOICE 55

/* Descriptors (D8.3.1). */
#define DESC_VALID 1ull
#define DESC_TABLE 2ull /* ... or, at the last level, a page */

#define VA_BITS_MIN 16
#define VA_BITS_MAX 52

/* One of the two halves of the address space. */
struct half {
	uint64_t root;	  /* the top table, as in TTBRn_EL1 */
	unsigned granule; /* log 2 of its size; 0: reserved */
	unsigned bits;	  /* of an address */
	bool off;	  /* no walks */
	bool tbi;	  /* the top byte is ignored */
	bool wide;	  /* TCR_EL1.DS: 52-bit descriptors with granules of 4 and 16 KiB */
};

static struct half half_of(const struct mmu *mmu, uint64_t va)
{
	static const uint8_t granule0[] = {12, 16, 14, 0}, granule1[] = {0, 14, 12, 16};
	const uint64_t tcr = mmu->control;
	struct half half = {.wide = tcr & TCR_DS};

	if (va >> CHOICE & 1) {
		half.root = mmu->root_high;
		half.granule = granule1[tcr >> TCR_TG1 & 3];
		half.bits = 64 - (tcr >> TCR_T1SZ & TCR_SZ);
		half.off = tcr & TCR_EPD1;
		half.tbi = tcr & TCR_TBI1;
	} else {
		half.root = mmu->root;
		half.granule = granule0[tcr >> TCR_TG0 & 3];
		half.bits = 64 - (tcr >> TCR_T0SZ & TCR_SZ);
		half.off = tcr & TCR_EPD0;
		half.tbi = tcr & TCR_TBI0;
	}
	return half;
}

static uint64_t extend(uint64_t va, unsigned bits)
{
	const uint64_t high = UINT64_MAX << bits;

	return va >> CHOICE & 1 ? va | high : va & ~high;
}

uint64_t arm64_strip(const struct mmu *mmu, uint64_t va)
{
	const struct half half = half_of(mmu, va);

	if (mmu->mode != MMU_ARM64 || half.bits > VA_BITS_MAX || half.bits < VA_BITS_MIN)
		return va;
	return extend(va, half.bits);
}

/* Is this an address of this half? */
static bool in_half(const struct half *half, uint64_t va)
{
	const uint64_t meant = extend(va, half->bits);

	/* Tags are in the top byte, where it is ignored. */
	return half->tbi ? !((va ^ meant) << 8) : va == meant;
}

/* The address in a descriptor of the last level, a block or a table (D8.3.1, D8.3.2). */
static uint64_t address_of(const struct half *half, uint64_t desc)
{
	const uint64_t low = desc & 0x0000ffffffffffffull & UINT64_MAX << half->granule;

	if (half->granule == 16)
		return low | (desc >> 12 & 0xf) << 48;
	if (half->wide)
		return (desc & 0x0003ffffffffffffull & UINT64_MAX << half->granule) |
		       (desc >> 8 & 3) << 50;
	return low;
}

/* The top table has as many entries as are needed, and is aligned to its size (D8.2.8). */
static uint64_t top_table(const struct half *half, unsigned index_bits)
{
	const uint64_t size = index_bits + 3 > 6 ? 1ull << (index_bits + 3) : 64;
	const bool wide = half->granule == 16 ? half->bits > 48 : half->wide;
	uint64_t base = half->root & 0x0000fffffffffffeull & ~(size - 1);

	if (wide)
		base |= (half->root >> 2 & 0xf) << 48;
	return base;
}

/* Blocks exist where they are of a useful size (D8.3.1, table D8-20). */
static bool has_blocks(const struct half *half, unsigned shift)
{
	switch (half->granule) {
	case 12:
		return shift == 21 || shift == 30 || (shift == 39 && half->wide);
	case 14:
		return shift == 25 || (shift == 36 && half->wide);
	default:
		return shift == 29 || shift == 42;
	}
}

/* At most five levels: with 4 KiB, (52 - 12) / 9 rounded up. */
static enum xlate_status walk(const struct half *half, uint64_t va, const struct physmem *mem,
			      struct xlate *out)
{
	const unsigned stride = half->granule - 3;
	const unsigned levels = (half->bits - half->granule + stride - 1) / stride;
	const unsigned last_table = half->granule + stride;
	unsigned shift = half->granule + (levels - 1) * stride, bits = half->bits - shift;
	uint64_t table = top_table(half, bits), desc;

	if (out->table && !((va ^ out->table_va) >> last_table)) {
		table = out->table;
		shift = half->granule;
		bits = stride;
	}
	for (;; shift -= stride, bits = stride) {
		if (shift == half->granule && levels > 1) {
			out->table = table;
			out->table_va = va;
		}
		if (!xlate_read_entry(mem, table + (va >> shift & ((1ull << bits) - 1)) * 8, 8,
				      &desc, out))
			return XLATE_MISSING;
		if (!(desc & DESC_VALID))
			return XLATE_ABSENT;
		table = address_of(half, desc);
		if (shift == half->granule)
			return desc & DESC_TABLE ? xlate_found(table, shift, va, out)
						 : XLATE_ABSENT;
		if (desc & DESC_TABLE)
			continue;
		return has_blocks(half, shift) ? xlate_found(table, shift, va, out) : XLATE_ABSENT;
	}
}

enum xlate_status arm64_translate(const struct mmu *mmu, uint64_t va, const struct physmem *mem,
				  struct xlate *out)
{
	struct half half;

	if (mmu->mode == MMU_OFF)
		return va > PHYS_MAX ? XLATE_ABSENT : xlate_found(va, FRAME_SHIFT, va, out);
	if (mmu->mode != MMU_ARM64)
		return XLATE_ABSENT;
	half = half_of(mmu, va);
	if (half.off || !half.granule || half.bits > VA_BITS_MAX || half.bits < VA_BITS_MIN ||
	    half.bits <= half.granule || !in_half(&half, va))
		return XLATE_ABSENT;
	/* More than 48 bits take descriptors with room for them. */
	if (half.bits > 48 && half.granule != 16 && !half.wide)
		return XLATE_ABSENT;
	return walk(&half, va, mem, out);
}
