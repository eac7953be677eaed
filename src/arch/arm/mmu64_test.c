/* SPDX-License-Identifier: BSD-3-Clause */
#include "arch/arm/arm.h"

#include "arch/tables_testing.h"

/* A translation setup of a guest, as in the manual's tables: not computed as the walk does it. */
struct layout {
	const char *name;
	uint64_t tcr;
	uint64_t va;
	unsigned n;
	unsigned shifts[5]; /* of the index at each level, from the top */
	unsigned bits[5];   /* of the index */
};

#define T0SZ(bits) (64ull - (bits))
#define T1SZ(bits) ((64ull - (bits)) << 16)
#define TG0_4K	   (0ull << 14)
#define TG0_16K	   (2ull << 14)
#define TG0_64K	   (1ull << 14)
#define TG1_4K	   (2ull << 30)
#define TG1_16K	   (1ull << 30)
#define TG1_64K	   (3ull << 30)
#define DS	   (1ull << 59)

static const struct layout layouts[] = {
	{"4K, 48 bits, low",
	 T0SZ(48) | TG0_4K | TG1_64K,
	 0x00007f8041203abc,
	 4,
	 {39, 30, 21, 12},
	 {9, 9, 9, 9}},
	{"4K, 48 bits, high",
	 T1SZ(48) | TG1_4K | TG0_64K,
	 0xffff800041203abc,
	 4,
	 {39, 30, 21, 12},
	 {9, 9, 9, 9}},
	{"4K, 39 bits", T1SZ(39) | TG1_4K, 0xffffff8041203abc, 3, {30, 21, 12}, {9, 9, 9}},
	{"4K, 36 bits", T0SZ(36) | TG0_4K, 0x0000000841203abc, 3, {30, 21, 12}, {6, 9, 9}},
	{"4K, 30 bits", T0SZ(30) | TG0_4K, 0x0000000001203abc, 2, {21, 12}, {9, 9}},
	{"4K, 52 bits",
	 T1SZ(52) | TG1_4K | DS,
	 0xfff7800041203abc,
	 5,
	 {48, 39, 30, 21, 12},
	 {4, 9, 9, 9, 9}},
	{"16K, 48 bits",
	 T1SZ(48) | TG1_16K,
	 0xffff800041203abc,
	 4,
	 {47, 36, 25, 14},
	 {1, 11, 11, 11}},
	{"16K, 47 bits", T0SZ(47) | TG0_16K, 0x00007f8041203abc, 3, {36, 25, 14}, {11, 11, 11}},
	{"16K, 36 bits", T0SZ(36) | TG0_16K, 0x0000000841203abc, 2, {25, 14}, {11, 11}},
	{"64K, 48 bits", T1SZ(48) | TG1_64K, 0xffff800041203abc, 3, {42, 29, 16}, {6, 13, 13}},
	{"64K, 42 bits", T0SZ(42) | TG0_64K, 0x0000038041203abc, 2, {29, 16}, {13, 13}},
	{"64K, 52 bits", T0SZ(52) | TG0_64K, 0x000f7f8041203abc, 3, {42, 29, 16}, {10, 13, 13}},
};

#define N_LAYOUTS (sizeof(layouts) / sizeof(*layouts))
#define ROOT	  0x10000ull
#define NEXT	  0x10000ull /* from each table to that below */
#define PAGE	  0x80000000ull

static uint64_t entry_at(const struct layout *layout, unsigned level)
{
	uint64_t index = layout->va >> layout->shifts[level] & ((1ull << layout->bits[level]) - 1);

	return ROOT + level * NEXT + index * 8;
}

/* Tables down to `level`, where `last` is put. */
static void build(struct memory *memory, const struct layout *layout, unsigned level, uint64_t last)
{
	memset(memory, 0, sizeof(*memory));
	for (unsigned i = 0; i < level; i++)
		put64(memory, entry_at(layout, i), (ROOT + (i + 1) * NEXT) | 3);
	put64(memory, entry_at(layout, level), last);
}

static struct mmu mmu_of(const struct layout *layout)
{
	/* The ASID is in the high bits, CnP in bit 0. */
	const uint64_t ttbr = ROOT | 0x002a000000000001ull;

	return (struct mmu){.mode = MMU_ARM64,
			    .control = layout->tcr,
			    .root = layout->va >> 55 ? 0xbad0000 : ttbr,
			    .root_high = layout->va >> 55 ? ttbr : 0xbad0000};
}

static enum xlate_status go(struct memory *memory, const struct mmu *mmu, uint64_t va,
			    struct xlate *out)
{
	const struct physmem mem = {.frame = frame, .ctx = memory};

	memset(out, 0, sizeof(*out));
	return arch_arm64.translate(mmu, va, &mem, out);
}

static void pages_of_every_granule_and_size_of_addresses(void **state)
{
	static struct memory memory;
	struct xlate x;

	for (size_t i = 0; i < N_LAYOUTS; i++) {
		const struct layout *layout = &layouts[i];
		const struct mmu mmu = mmu_of(layout);
		const uint64_t size = 1ull << layout->shifts[layout->n - 1];

		print_message("# %s\n", layout->name);
		build(&memory, layout, layout->n - 1, PAGE | 0x4c3);
		assert_int_equal(go(&memory, &mmu, layout->va, &x), XLATE_OK);
		assert_int_equal(x.addr, PAGE + (layout->va & (size - 1)));
		assert_int_equal(x.left, size - (layout->va & (size - 1)));
	}
}

static void invalid_entries_are_absent_at_every_level(void **state)
{
	static struct memory memory;
	struct xlate x;

	for (size_t i = 0; i < N_LAYOUTS; i++)
		for (unsigned level = 0; level < layouts[i].n; level++) {
			const struct mmu mmu = mmu_of(&layouts[i]);

			build(&memory, &layouts[i], level, PAGE | 2);
			assert_int_equal(go(&memory, &mmu, layouts[i].va, &x), XLATE_ABSENT);
		}
}

static void a_table_that_is_not_at_hand_is_named(void **state)
{
	static struct memory memory;
	struct xlate x;

	for (size_t i = 0; i < N_LAYOUTS; i++) {
		const struct mmu mmu = mmu_of(&layouts[i]);

		build(&memory, &layouts[i], 0, 0x123456790000 | 3);
		assert_int_equal(go(&memory, &mmu, layouts[i].va, &x),
				 layouts[i].n == 1 ? XLATE_OK : XLATE_MISSING);
		assert_int_equal(x.gfn >> 4, 0x12345679);
	}
}

static void blocks_where_the_architecture_has_them(void **state)
{
	static const struct {
		unsigned layout, level, bits;
	} blocks[] = {{0, 1, 30}, {0, 2, 21}, {7, 1, 25}, {10, 0, 29}, {5, 1, 39}, {11, 0, 42}};
	static struct memory memory;
	struct xlate x;

	for (size_t i = 0; i < sizeof(blocks) / sizeof(*blocks); i++) {
		const struct layout *layout = &layouts[blocks[i].layout];
		const struct mmu mmu = mmu_of(layout);
		const uint64_t size = 1ull << blocks[i].bits, base = size;

		build(&memory, layout, blocks[i].level, base | 0x4c1);
		assert_int_equal(go(&memory, &mmu, layout->va, &x), XLATE_OK);
		assert_int_equal(x.addr, base + (layout->va & (size - 1)));
		assert_int_equal(x.left, size - (layout->va & (size - 1)));
	}
}

static void blocks_elsewhere_and_reserved_pages_are_absent(void **state)
{
	static const struct {
		unsigned layout, level;
	} bad[] = {{0, 0}, {0, 3}, {6, 0}, {6, 1}, {7, 0}, {7, 2}, {10, 1}, {5, 0}};
	static struct memory memory;
	struct xlate x;

	for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
		const struct mmu mmu = mmu_of(&layouts[bad[i].layout]);

		build(&memory, &layouts[bad[i].layout], bad[i].level, 1);
		assert_int_equal(go(&memory, &mmu, layouts[bad[i].layout].va, &x), XLATE_ABSENT);
	}
}

static void addresses_between_the_halves_are_absent(void **state)
{
	static struct memory memory;
	struct mmu mmu = mmu_of(&layouts[0]);
	struct xlate x;

	build(&memory, &layouts[0], 3, PAGE | 3);
	assert_int_equal(go(&memory, &mmu, layouts[0].va | 1ull << 48, &x), XLATE_ABSENT);
	assert_int_equal(go(&memory, &mmu, layouts[0].va | 1ull << 60, &x), XLATE_ABSENT);
	mmu.control |= 1ull << 37;
	assert_int_equal(go(&memory, &mmu, layouts[0].va | 1ull << 60, &x), XLATE_OK);
	assert_int_equal(go(&memory, &mmu, layouts[0].va | 1ull << 48, &x), XLATE_ABSENT);
}

static void halves_can_be_switched_off(void **state)
{
	static struct memory memory;
	struct mmu mmu = mmu_of(&layouts[0]);
	struct xlate x;

	build(&memory, &layouts[0], 3, PAGE | 3);
	mmu.control |= 1ull << 7;
	assert_int_equal(go(&memory, &mmu, layouts[0].va, &x), XLATE_ABSENT);
	mmu.control = layouts[0].tcr | 1ull << 23;
	assert_int_equal(go(&memory, &mmu, layouts[0].va, &x), XLATE_OK);
}

/* FEAT_LPA: bits 15:12 are bits 51:48 of the address; FEAT_LPA2: bits 9:8 are bits 51:50. */
static void physical_addresses_of_52_bits(void **state)
{
	static struct memory memory;
	struct mmu mmu = mmu_of(&layouts[11]);
	struct xlate x;

	build(&memory, &layouts[11], 2, PAGE | 0xa003);
	assert_int_equal(go(&memory, &mmu, layouts[11].va, &x), XLATE_OK);
	assert_int_equal(x.addr, 0x000a000080003abc);
	mmu = mmu_of(&layouts[5]);
	build(&memory, &layouts[5], 4, PAGE | 0x0002000000000303);
	assert_int_equal(go(&memory, &mmu, layouts[5].va, &x), XLATE_OK);
	assert_int_equal(x.addr, 0x000e000080000abc);
}

static void reserved_sizes_are_absent(void **state)
{
	static struct memory memory;
	const uint64_t tcrs[] = {T0SZ(48) | 3ull << 14, 60, 0, T0SZ(52) | TG0_4K, T0SZ(15)};
	struct xlate x;

	for (size_t i = 0; i < sizeof(tcrs) / sizeof(*tcrs); i++) {
		const struct mmu mmu = {.mode = MMU_ARM64, .control = tcrs[i], .root = ROOT};

		assert_int_equal(go(&memory, &mmu, 0x1000, &x), XLATE_ABSENT);
	}
}

static void the_table_of_programs_is_without_the_other_bits_of_its_register(void **state)
{
	/* Five levels, of which the first has 16 entries, and four. */
	struct mmu mmu = {.mode = MMU_ARM64,
			  .control = T0SZ(52) | TG0_4K | DS,
			  .root = 0x002a0000434d6a81ull};

	assert_true(mmu_table(&mmu) == 0x434d6a80);
	mmu.control = T0SZ(48) | TG0_4K;
	assert_true(mmu_table(&mmu) == 0x434d6000);
	/* No table. */
	mmu.control = T0SZ(52) | TG0_4K;
	assert_true(mmu_table(&mmu) == 0);
	mmu = (struct mmu){.mode = MMU_X86_4, .root = 0x1234000};
	assert_true(mmu_table(&mmu) == 0x1234000);
}

static void without_mmu_addresses_are_physical(void **state)
{
	const struct mmu mmu = {.mode = MMU_OFF};
	struct xlate x;

	assert_int_equal(go(NULL, &mmu, 0x40001234, &x), XLATE_OK);
	assert_int_equal(x.addr, 0x40001234);
	assert_int_equal(x.left, 0xdcc);
}

static void neighbours_are_found_from_the_same_table(void **state)
{
	static struct memory memory;
	const struct mmu mmu = mmu_of(&layouts[0]);
	const struct physmem mem = {.frame = frame, .ctx = &memory};
	struct xlate x = {0};

	build(&memory, &layouts[0], 3, PAGE | 3);
	put64(&memory, entry_at(&layouts[0], 3) + 8, (PAGE + 0x5000) | 3);
	assert_int_equal(arch_arm64.translate(&mmu, layouts[0].va, &mem, &x), XLATE_OK);
	assert_int_equal(arch_arm64.translate(&mmu, layouts[0].va + 0x1000, &mem, &x), XLATE_OK);
	assert_int_equal(x.addr, PAGE + 0x5abc);
	/* Behind the table's end the walk begins anew. */
	assert_int_equal(arch_arm64.translate(&mmu, layouts[0].va + (1u << 21), &mem, &x),
			 XLATE_ABSENT);
}

static void codes_and_tags_are_stripped(void **state)
{
	const struct mmu mmu = {.mode = MMU_ARM64, .control = T0SZ(39) | T1SZ(48)};

	assert_int_equal(arm64_strip(&mmu, 0x3a7fff8000401234), 0x0000000000401234);
	assert_int_equal(arm64_strip(&mmu, 0x00a5800010001234), 0xffff800010001234);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(pages_of_every_granule_and_size_of_addresses),
		cmocka_unit_test(invalid_entries_are_absent_at_every_level),
		cmocka_unit_test(a_table_that_is_not_at_hand_is_named),
		cmocka_unit_test(blocks_where_the_architecture_has_them),
		cmocka_unit_test(blocks_elsewhere_and_reserved_pages_are_absent),
		cmocka_unit_test(addresses_between_the_halves_are_absent),
		cmocka_unit_test(halves_can_be_switched_off),
		cmocka_unit_test(physical_addresses_of_52_bits),
		cmocka_unit_test(reserved_sizes_are_absent),
		cmocka_unit_test(the_table_of_programs_is_without_the_other_bits_of_its_register),
		cmocka_unit_test(without_mmu_addresses_are_physical),
		cmocka_unit_test(neighbours_are_found_from_the_same_table),
		cmocka_unit_test(codes_and_tags_are_stripped),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
