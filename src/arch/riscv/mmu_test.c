/* SPDX-License-Identifier: BSD-3-Clause */
#include "arch/riscv/riscv.h"

#include "arch/tables_testing.h"

/* Indices 500, 511, 7, 1, 9, 3 of an entry at each level from the top, and an offset. */
#define OFFSET 0xabcull
static const unsigned indices[] = {500, 511, 1, 9, 3};

/* Rights: of a table, of a page, and of an entry that was never used. */
#define TABLE  0x01ull
#define PAGE   0xcfull
#define UNUSED 0x0bull

#define PAGE_AT 0x123456789000ull

static const struct layout {
	enum mmu_mode mode;
	unsigned levels, bits;
} layouts[] = {{MMU_RISCV_39, 3, 39}, {MMU_RISCV_48, 4, 48}, {MMU_RISCV_57, 5, 57}};
#define LAYOUTS (sizeof(layouts) / sizeof(*layouts))

static uint64_t entry_to(uint64_t address, uint64_t rights)
{
	return address >> 2 | rights;
}

/* Counted from the top: table `k` is at 0x1000 * (k + 1). */
static uint64_t table_at(unsigned k)
{
	return 0x1000ull * (k + 1);
}

static unsigned index_of(const struct layout *layout, unsigned k)
{
	return indices[5 - layout->levels + k];
}

static uint64_t slot_of(const struct layout *layout, unsigned k)
{
	return table_at(k) + 8ull * index_of(layout, k);
}

/* The address that these indices make, sign-extended. */
static uint64_t address(const struct layout *layout)
{
	uint64_t va = 0;

	for (unsigned k = 0; k < layout->levels; k++)
		va = va << 9 | index_of(layout, k);
	va = va << FRAME_SHIFT | OFFSET;
	return va >> (layout->bits - 1) ? va | UINT64_MAX << layout->bits : va;
}

static void build(struct memory *memory, const struct layout *layout)
{
	memset(memory, 0, sizeof(*memory));
	for (unsigned k = 0; k + 1 < layout->levels; k++)
		put64(memory, slot_of(layout, k), entry_to(table_at(k + 1), TABLE));
	put64(memory, slot_of(layout, layout->levels - 1), entry_to(PAGE_AT, PAGE));
}

static enum xlate_status go_with(struct memory *memory, const struct layout *layout, uint64_t va,
				 struct xlate *out)
{
	const struct physmem mem = {.frame = frame, .ctx = memory};
	const struct mmu mmu = {.mode = layout->mode, .root = table_at(0)};

	memory->reads = 0;
	return arch_riscv64.translate(&mmu, va, &mem, out);
}

static enum xlate_status go(struct memory *memory, const struct layout *layout, struct xlate *out)
{
	memset(out, 0, sizeof(*out));
	return go_with(memory, layout, address(layout), out);
}

static void all_levels(void **state)
{
	for (size_t i = 0; i < LAYOUTS; i++) {
		struct memory memory;
		struct xlate x;

		build(&memory, &layouts[i]);
		assert_int_equal(go(&memory, &layouts[i], &x), XLATE_OK);
		assert_int_equal(x.addr, PAGE_AT | OFFSET);
		assert_int_equal(x.left, FRAME_SIZE - OFFSET);
		assert_int_equal(memory.reads, layouts[i].levels);
	}
}

static void an_entry_that_is_absent_or_reserved_at_any_level(void **state)
{
	/* Not valid; writable only; a bit that is reserved. */
	static const uint64_t clear[] = {1, 2 | 8, 0}, set[] = {0, 4, 1ull << 60};

	for (size_t i = 0; i < LAYOUTS; i++) {
		for (unsigned k = 0; k < layouts[i].levels; k++) {
			for (size_t wrong = 0; wrong < 3; wrong++) {
				struct memory memory;
				uint64_t entry;
				struct xlate x;

				build(&memory, &layouts[i]);
				memcpy(&entry, at(&memory, slot_of(&layouts[i], k)), 8);
				put64(&memory, slot_of(&layouts[i], k),
				      (entry & ~clear[wrong]) | set[wrong]);
				assert_int_equal(go(&memory, &layouts[i], &x), XLATE_ABSENT);
				assert_int_equal(memory.reads, k + 1);
			}
		}
	}
}

static void a_missing_table_is_named(void **state)
{
	for (size_t i = 0; i < LAYOUTS; i++) {
		struct memory memory;
		struct xlate x;

		for (unsigned k = 0; k < layouts[i].levels; k++) {
			build(&memory, &layouts[i]);
			memory.n = k;
			assert_int_equal(go(&memory, &layouts[i], &x), XLATE_MISSING);
			assert_int_equal(x.gfn, table_at(k) >> FRAME_SHIFT);
		}
	}
}

static void large_pages(void **state)
{
	for (size_t i = 0; i < LAYOUTS; i++) {
		const struct layout *layout = &layouts[i];

		for (unsigned k = 0; k + 1 < layout->levels; k++) {
			const unsigned shift = FRAME_SHIFT + 9 * (layout->levels - 1 - k);
			const uint64_t size = 1ull << shift, base = 3 * size & ((1ull << 55) - 1);
			struct memory memory;
			struct xlate x;

			build(&memory, layout);
			put64(&memory, slot_of(layout, k), entry_to(base, PAGE));
			assert_int_equal(go(&memory, layout, &x), XLATE_OK);
			assert_int_equal(x.addr, base | (address(layout) & (size - 1)));
			assert_int_equal(x.left, size - (address(layout) & (size - 1)));
			/* Not at a multiple of its size. */
			put64(&memory, slot_of(layout, k), entry_to(base | FRAME_SIZE, PAGE));
			assert_int_equal(go(&memory, layout, &x), XLATE_ABSENT);
		}
	}
}

static void pages_of_64_kib_have_sixteen_entries(void **state)
{
	const struct layout *layout = &layouts[0];
	const uint64_t napot = 1ull << 63;
	struct memory memory;
	struct xlate x;

	build(&memory, layout);
	put64(&memory, slot_of(layout, 2), entry_to(0x50000 | 0x8000, PAGE) | napot);
	assert_int_equal(go(&memory, layout, &x), XLATE_OK);
	assert_int_equal(x.addr, 0x50000 | 3 * FRAME_SIZE | OFFSET);
	assert_int_equal(x.left, 0x10000 - (3 * FRAME_SIZE | OFFSET));
	put64(&memory, slot_of(layout, 2), entry_to(0x50000 | 0x4000, PAGE) | napot);
	assert_int_equal(go(&memory, layout, &x), XLATE_ABSENT);
	put64(&memory, slot_of(layout, 1), entry_to(0x50000 | 0x8000, PAGE) | napot);
	assert_int_equal(go(&memory, layout, &x), XLATE_ABSENT);
}

static void the_last_level_leads_to_no_table_and_needs_no_use(void **state)
{
	const struct layout *layout = &layouts[0];
	struct memory memory;
	struct xlate x;

	build(&memory, layout);
	put64(&memory, slot_of(layout, 2), entry_to(PAGE_AT, UNUSED));
	assert_int_equal(go(&memory, layout, &x), XLATE_OK);
	put64(&memory, slot_of(layout, 2), entry_to(PAGE_AT, TABLE));
	assert_int_equal(go(&memory, layout, &x), XLATE_ABSENT);
}

static void only_sign_extended_addresses_are_translated(void **state)
{
	for (size_t i = 0; i < LAYOUTS; i++) {
		const uint64_t va = address(&layouts[i]);
		struct memory memory;
		struct xlate x = {0};

		build(&memory, &layouts[i]);
		for (unsigned bit = layouts[i].bits; bit < 64; bit++)
			assert_int_equal(go_with(&memory, &layouts[i], va ^ 1ull << bit, &x),
					 XLATE_ABSENT);
		assert_int_equal(memory.reads, 0);
	}
}

static void a_neighbour_is_found_by_the_last_table_alone(void **state)
{
	const struct layout *layout = &layouts[2];
	struct memory memory;
	struct xlate x;

	build(&memory, layout);
	put64(&memory, slot_of(layout, 4) + 8, entry_to(0x7000, PAGE));
	assert_int_equal(go(&memory, layout, &x), XLATE_OK);
	assert_int_equal(go_with(&memory, layout, address(layout) + FRAME_SIZE, &x), XLATE_OK);
	assert_int_equal(x.addr, 0x7000 | OFFSET);
	assert_int_equal(memory.reads, 1);
	assert_int_equal(go_with(&memory, layout, address(layout) + (1u << 21), &x), XLATE_ABSENT);
	assert_true(memory.reads > 1);
}

static void what_was_read_is_noted(void **state)
{
	struct memory memory;
	struct xlate_log log = {0};
	struct xlate x = {.log = &log};

	build(&memory, &layouts[0]);
	assert_int_equal(go_with(&memory, &layouts[0], address(&layouts[0]), &x), XLATE_OK);
	assert_int_equal(log.n, 3);
	assert_int_equal(log.size, 8);
	assert_ptr_equal(log.read[2].at, at(&memory, slot_of(&layouts[0], 2)));
}

static void without_translation_addresses_are_physical(void **state)
{
	const struct layout off = {MMU_OFF, 3, 39}, of_others = {MMU_X86_4, 3, 39};
	struct memory memory = {0};
	struct xlate x;

	assert_int_equal(go_with(&memory, &off, 0x80200abc, &x), XLATE_OK);
	assert_int_equal(x.addr, 0x80200abc);
	assert_int_equal(go_with(&memory, &off, UINT64_MAX, &x), XLATE_ABSENT);
	assert_int_equal(go_with(&memory, &of_others, 0x80200abc, &x), XLATE_ABSENT);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(all_levels),
		cmocka_unit_test(an_entry_that_is_absent_or_reserved_at_any_level),
		cmocka_unit_test(a_missing_table_is_named),
		cmocka_unit_test(large_pages),
		cmocka_unit_test(pages_of_64_kib_have_sixteen_entries),
		cmocka_unit_test(the_last_level_leads_to_no_table_and_needs_no_use),
		cmocka_unit_test(only_sign_extended_addresses_are_translated),
		cmocka_unit_test(a_neighbour_is_found_by_the_last_table_alone),
		cmocka_unit_test(what_was_read_is_noted),
		cmocka_unit_test(without_translation_addresses_are_physical),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
