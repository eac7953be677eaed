/* SPDX-License-Identifier: BSD-3-Clause */
#include "arch/arm/arm.h"

#include <elf.h>
#include <string.h>

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
static unsigned levels_of(const struct half *half)
{
	const unsigned stride = half->granule - 3;

	return (half->bits - half->granule + stride - 1) / stride;
}

/* Bits of an address below those that index the top table. */
static unsigned top_shift(const struct half *half)
{
	return half->granule + (levels_of(half) - 1) * (half->granule - 3);
}

static enum xlate_status walk(const struct half *half, uint64_t va, const struct physmem *mem,
			      struct xlate *out)
{
	const unsigned stride = half->granule - 3, levels = levels_of(half);
	const unsigned last_table = half->granule + stride;
	unsigned shift = top_shift(half), bits = half->bits - shift;
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

/* More than 48 bits take descriptors with room for them. */
static bool is_possible(const struct half *half)
{
	return !half->off && half->granule && half->bits <= VA_BITS_MAX &&
	       half->bits >= VA_BITS_MIN && half->bits > half->granule &&
	       (half->bits <= 48 || half->granule == 16 || half->wide);
}

/* Translates as stage 1 of EL1&0 does in AArch64 state. */
static enum xlate_status walk_arm64(const struct mmu *mmu, uint64_t va, const struct physmem *mem,
				    struct xlate *out)
{
	const struct half half = half_of(mmu, va);

	return is_possible(&half) && in_half(&half, va) ? walk(&half, va, mem, out) : XLATE_ABSENT;
}

uint64_t arm64_table(const struct mmu *mmu)
{
	const struct half half = half_of(mmu, 0);

	return is_possible(&half) ? top_table(&half, half.bits - top_shift(&half)) : 0;
}

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

#define SCTLR_M 1u

/* DWARF register numbers of AArch64 (AADWARF64) and of AArch32 (AADWARF32). */
enum { X29 = 29, SP64 = 31 };
enum { R7 = 7, R11 = 11, R12 = 12, SP = 13, LR = 14, PC = 15 };

static void convert_mmu(const struct arm_regs *from, struct mmu *mmu)
{
	mmu->root = from->ttbr0;
	mmu->root_high = from->ttbr1;
	mmu->control = from->control;
	if (!(from->sctlr & SCTLR_M))
		mmu->mode = MMU_OFF;
	else if (from->wide)
		mmu->mode = MMU_ARM64;
	else
		mmu->mode = from->control & ARM_TTBCR_EAE ? MMU_ARM_LPAE : MMU_ARM_SHORT;
}

/*
 * Linux with KPTI (arch/arm64/kernel/entry.S, tramp_map_kernel): while a program runs, its ASID has this
 * bit, and TTBR1_EL1 the table that is so far before that of the kernel.
 */
#define LINUX_USER_ASID	    (1ull << 48)
#define LINUX_KERNEL_BEHIND 0x2000u

uint64_t arm64_linux_kernel_root(uint64_t ttbr1)
{
	return ttbr1 & LINUX_USER_ASID ? (ttbr1 & ~LINUX_USER_ASID) + LINUX_KERNEL_BEHIND : 0;
}

static void convert_64(const struct arm_regs *from, struct regs *to)
{
	to->kernel_root = arm64_linux_kernel_root(from->ttbr1);
	to->word = 8;
	to->user = !(from->pstate & ARM_PSTATE_EL);
	memcpy(to->gp, from->r, sizeof(from->r));
	to->gp[SP64] = from->sp;
	to->gp_valid = UINT32_MAX;
	to->fp = to->gp[X29];
}

static void convert_32(const struct arm_regs *from, struct regs *to)
{
	to->word = 4;
	to->user = !(from->pstate & ARM_PSTATE_MODE);
	for (int i = 0; i <= R12; i++)
		to->gp[i] = from->r[i];
	to->gp[SP] = from->sp;
	to->gp[LR] = from->r[LR];
	to->gp[PC] = from->pc;
	to->gp_valid = 0xffff;
	to->fp = to->gp[from->pstate & ARM_PSTATE_T ? R7 : R11];
}

void arm_regs_convert(const struct arm_regs *from, struct regs *to)
{
	memset(to, 0, sizeof(*to));
	to->isa = ISA_ARM;
	to->pc = from->pc;
	to->sp = from->sp;
	to->flags = from->pstate;
	if (from->pstate & ARM_PSTATE_WIDTH32)
		convert_32(from, to);
	else
		convert_64(from, to);
	convert_mmu(from, &to->mmu);
}

/* SPSR_EL2 (DDI 0487, C5.2.20), of an exception from AArch64 and from AArch32. */
static const struct register_bit pstate_64[] = {
	{0, 1, "SP"}, {2, 2, "EL"},  {6, 1, "F"},   {7, 1, "I"},  {8, 1, "A"},
	{9, 1, "D"},  {20, 1, "IL"}, {21, 1, "SS"}, {28, 1, "V"}, {29, 1, "C"},
	{30, 1, "Z"}, {31, 1, "N"},  {0},
};
static const struct register_bit pstate_32[] = {
	{0, 4, "M"},  {5, 1, "T"},   {6, 1, "F"},  {7, 1, "I"},	 {8, 1, "A"},
	{9, 1, "E"},  {20, 1, "IL"}, {27, 1, "Q"}, {28, 1, "V"}, {29, 1, "C"},
	{30, 1, "Z"}, {31, 1, "N"},  {0},
};

/* In the order of DWARF's numbers: AADWARF64 and AADWARF32. */
static const char *const names_64[] = {"x0",  "x1",  "x2",  "x3",  "x4",  "x5",	 "x6",	"x7",
				       "x8",  "x9",  "x10", "x11", "x12", "x13", "x14", "x15",
				       "x16", "x17", "x18", "x19", "x20", "x21", "x22", "x23",
				       "x24", "x25", "x26", "x27", "x28", "x29", "x30", "sp"};
static const char *const names_32[] = {"r0", "r1", "r2",  "r3",	 "r4",	"r5", "r6", "r7",
				       "r8", "r9", "r10", "r11", "r12", "sp", "lr"};

/* General registers of 64 or 32 bits, by regs->word, and the state with its flags. */
static void arm_registers_show(const struct regs *regs, struct registers *out)
{
	const bool wide = regs->word == 8;
	const unsigned n =
		wide ? sizeof(names_64) / sizeof(*names_64) : sizeof(names_32) / sizeof(*names_32);

	registers_add(out, REGISTER_GENERAL, "pc", regs->word, regs->pc, NULL);
	registers_add(out, REGISTER_GENERAL, "cpsr", 4, regs->flags, wide ? pstate_64 : pstate_32);
	for (unsigned i = 0; i < n; i++)
		if (regs->gp_valid >> i & 1)
			registers_add(out, REGISTER_GENERAL, wide ? names_64[i] : names_32[i],
				      regs->word, regs->gp[i], NULL);
}

#define MODES (1u << MMU_OFF | 1u << MMU_ARM64 | 1u << MMU_ARM_LPAE | 1u << MMU_ARM_SHORT)

/*
 * Programs of 32 bits run on kernels of 64 and are translated as these say: the
 * mode alone tells how. AArch32 state has addresses of 32 bits.
 */
static enum xlate_status translate(const struct mmu *mmu, uint64_t va, const struct physmem *mem,
				   struct xlate *out)
{
	switch (mmu->mode) {
	case MMU_OFF:
		return va > PHYS_MAX ? XLATE_ABSENT : xlate_found(va, FRAME_SHIFT, va, out);
	case MMU_ARM64:
		return walk_arm64(mmu, va, mem, out);
	case MMU_ARM_LPAE:
		return va >> 32 ? XLATE_ABSENT : walk_long(mmu, va, mem, out);
	case MMU_ARM_SHORT:
		return va >> 32 ? XLATE_ABSENT : walk_short(mmu, va, mem, out);
	default:
		return XLATE_ABSENT;
	}
}

#define ARM_ARCH(called, bytes, number)                                                           \
	{                                                                                         \
		.name = called, .isa = ISA_ARM, .word = bytes, .machine = number, .modes = MODES, \
		.translate = translate, .show = arm_registers_show                                \
	}

const struct arch arch_arm64 = ARM_ARCH("arm64", 8, EM_AARCH64);
const struct arch arch_arm32 = ARM_ARCH("arm32", 4, EM_ARM);
