/* SPDX-License-Identifier: BSD-3-Clause */
#include "arch/x86/x86.h"

#include "arch/tables_testing.h"

static enum xlate_status go(struct memory *memory, enum mmu_mode mode, uint64_t root, uint64_t va,
			    struct xlate *out)
{
	struct physmem mem = {.frame = frame, .ctx = memory};
	struct mmu mmu = {.mode = mode, .root = root, .pse = true};

	memset(out, 0, sizeof(*out));
	memory->reads = 0;
	return arch_x86_64.translate(&mmu, va, &mem, out);
}

#define assert_maps(memory, mode, root, va, phys, bytes)                     \
	do {                                                                 \
		struct xlate x_;                                             \
		assert_int_equal(go(memory, mode, root, va, &x_), XLATE_OK); \
		assert_int_equal(x_.addr, phys);                             \
		assert_int_equal(x_.left, bytes);                            \
	} while (0)

#define assert_status(memory, mode, root, va, status)                      \
	do {                                                               \
		struct xlate x_;                                           \
		assert_int_equal(go(memory, mode, root, va, &x_), status); \
	} while (0)

#define VA 0x00007f8041203abcull /* indices 255, 1, 9, 3, offset 0xabc */

/* Four levels for VA, with the tables at 0x1000, 0x2000, ... and the page at `page`. */
static void build_4(struct memory *memory, uint64_t page)
{
	memset(memory, 0, sizeof(*memory));
	put64(memory, 0x1000 + 255 * 8, 0x2000 | 7);
	put64(memory, 0x2000 + 1 * 8, 0x3000 | 7);
	put64(memory, 0x3000 + 9 * 8, 0x4000 | 7);
	put64(memory, 0x4000 + 3 * 8, page | 7);
}

static void four_levels(void **state)
{
	struct memory memory;

	build_4(&memory, 0x5000);
	assert_maps(&memory, MMU_X86_4, 0x1000, VA, 0x5abc, 0x544);
	assert_int_equal(memory.reads, 4);
	assert_maps(&memory, MMU_X86_4, 0x1000, VA | 0xfff, 0x5fff, 1);
	/* Address bits reach to 51; the bits above (XD, ignored bits) are no address. */
	build_4(&memory, 0xfff0000012345000ull | 1ull << 63 | 0xfull << 48);
	assert_maps(&memory, MMU_X86_4, 0x1000, VA, 0xf000012345abcull, 0x544);
}

static void five_levels(void **state)
{
	struct memory memory;
	uint64_t va = 0xff00000000000000ull | VA;

	build_4(&memory, 0x5000);
	put64(&memory, 0x6000 + 256 * 8, 0x1000 | 1);
	put64(&memory, 0x6000 + 0 * 8, 0x1000 | 1);
	assert_maps(&memory, MMU_X86_5, 0x6000, va, 0x5abc, 0x544);
	assert_int_equal(memory.reads, 5);
	assert_maps(&memory, MMU_X86_5, 0x6000, VA, 0x5abc, 0x544);
}

static void absent_at_every_level(void **state)
{
	static const uint64_t entries[] = {0x1000 + 255 * 8, 0x2000 + 8, 0x3000 + 72, 0x4000 + 24};
	struct memory memory;

	for (size_t i = 0; i < 4; i++) {
		build_4(&memory, 0x5000);
		*at(&memory, entries[i]) &= ~1;
		assert_status(&memory, MMU_X86_4, 0x1000, VA, XLATE_ABSENT);
		assert_int_equal(memory.reads, i + 1);
	}
	put64(&memory, 0x6000 + 0 * 8, 0x1000);
	assert_status(&memory, MMU_X86_5, 0x6000, VA, XLATE_ABSENT);
	assert_int_equal(memory.reads, 1);
}

static void a_neighbour_is_found_by_the_last_table_alone(void **state)
{
	struct memory memory;
	const struct physmem mem = {.frame = frame, .ctx = &memory};
	const struct mmu mmu = {.mode = MMU_X86_4, .root = 0x1000};
	struct xlate x;

	build_4(&memory, 0x5000);
	put64(&memory, 0x4000 + 4 * 8, 0x6000 | 1);
	assert_int_equal(go(&memory, MMU_X86_4, 0x1000, VA, &x), XLATE_OK);
	assert_int_equal(memory.reads, 4);
	assert_int_equal(arch_x86_64.translate(&mmu, VA + FRAME_SIZE, &mem, &x), XLATE_OK);
	assert_int_equal(x.addr, 0x6abc);
	assert_int_equal(memory.reads, 5);
	/* An address that another table leads to is walked to from the top. */
	assert_int_equal(arch_x86_64.translate(&mmu, VA + (1u << 21), &mem, &x), XLATE_ABSENT);
	assert_true(memory.reads > 6);
}

static void a_missing_table_is_named(void **state)
{
	struct memory memory;
	struct xlate x = {0};

	for (size_t keep = 0; keep <= 4; keep++) {
		build_4(&memory, 0x5000);
		memory.n = keep;
		if (keep == 4) {
			/* The page itself need not be at hand to be translated. */
			assert_maps(&memory, MMU_X86_4, 0x1000, VA, 0x5abc, 0x544);
			continue;
		}
		assert_int_equal(go(&memory, MMU_X86_4, 0x1000, VA, &x), XLATE_MISSING);
		assert_int_equal(x.gfn, keep + 1);
	}
	build_4(&memory, 0x5000);
	assert_int_equal(go(&memory, MMU_X86_PAE, 0x7fe0, 0, &x), XLATE_MISSING);
	assert_int_equal(x.gfn, 7);
	assert_int_equal(go(&memory, MMU_X86_32, 0x9000, 0, &x), XLATE_MISSING);
	assert_int_equal(x.gfn, 9);
}

static void large_pages(void **state)
{
	struct memory memory;

	build_4(&memory, 0x5000);
	put64(&memory, 0x3000 + 9 * 8, 0x80001200000ull | 0x1000 | 0x80 | 1);
	assert_maps(&memory, MMU_X86_4, 0x1000, VA, 0x80001203abcull, 0x200000 - 0x3abc);
	put64(&memory, 0x2000 + 1 * 8, 0x8040000000ull | 0x80 | 1);
	assert_maps(&memory, MMU_X86_4, 0x1000, VA, 0x8041203abcull, 0x40000000 - 0x1203abc);
	put64(&memory, 0x2000 + 1 * 8, 0x8040000000ull | 0x80);
	assert_status(&memory, MMU_X86_4, 0x1000, VA, XLATE_ABSENT);
}

static void reserved_bits_make_an_entry_absent(void **state)
{
	struct memory memory;

	build_4(&memory, 0x5000);
	put64(&memory, 0x3000 + 9 * 8, 0x1200000 | 0x2000 | 0x80 | 1);
	assert_status(&memory, MMU_X86_4, 0x1000, VA, XLATE_ABSENT);
	put64(&memory, 0x2000 + 1 * 8, 0x40200000 | 0x80 | 1);
	assert_status(&memory, MMU_X86_4, 0x1000, VA, XLATE_ABSENT);
	build_4(&memory, 0x5000);
	put64(&memory, 0x1000 + 255 * 8, 0x2000 | 0x80 | 1);
	assert_status(&memory, MMU_X86_4, 0x1000, VA, XLATE_ABSENT);
	build_4(&memory, 0x5000);
	put64(&memory, 0x6000, 0x1000 | 0x80 | 1);
	assert_status(&memory, MMU_X86_5, 0x6000, VA, XLATE_ABSENT);
}

static void non_canonical_addresses_are_absent(void **state)
{
	static const uint64_t bad4[] = {1ull << 47, 0xffff000000000000ull, 0x7fffull << 48,
					1ull << 63};
	static const uint64_t bad5[] = {1ull << 56, 0xfe00000000000000ull, 1ull << 63};
	struct memory memory;

	build_4(&memory, 0x5000);
	for (size_t i = 0; i < 4; i++) {
		assert_status(&memory, MMU_X86_4, 0x1000, bad4[i] | VA, XLATE_ABSENT);
		assert_int_equal(memory.reads, 0);
	}
	for (size_t i = 0; i < 3; i++) {
		assert_status(&memory, MMU_X86_5, 0x1000, bad5[i], XLATE_ABSENT);
		assert_int_equal(memory.reads, 0);
	}
}

static void the_last_page_of_the_address_space(void **state)
{
	struct memory memory = {0};

	put64(&memory, 0x1000 + 511 * 8,
	      0x1000 | 1); /* points to itself: every level is this one */
	assert_maps(&memory, MMU_X86_4, 0x1000, UINT64_MAX, 0x1fff, 1);
	assert_int_equal(memory.reads, 4);
	assert_maps(&memory, MMU_X86_5, 0x1000, UINT64_MAX, 0x1fff, 1);
	assert_int_equal(memory.reads, 5);
	put32(&memory, 0x2000 + 1023 * 4, 0x2000 | 1);
	assert_maps(&memory, MMU_X86_32, 0x2000, 0xffffffff, 0x2fff, 1);
	put64(&memory, 0x3000 + 3 * 8, 0x1000 | 1);
	assert_maps(&memory, MMU_X86_PAE, 0x3000, 0xffffffff, 0x1fff, 1);
}

static void pae(void **state)
{
	struct memory memory = {0};

	put64(&memory, 0x1fe0 + 2 * 8, 0x2000 | 1);
	put64(&memory, 0x2000 + 3 * 8, 0x1234000003000ull | 7);
	put64(&memory, 0x1234000003000ull + 5 * 8, 0x8000000900004000ull | 7);
	/* The top table lies in the middle of a page, the others above 4 GiB. */
	assert_maps(&memory, MMU_X86_PAE, 0x1fe0, 0x80605123, 0x900004123ull, 0xedd);
	assert_int_equal(memory.reads, 3);
	put64(&memory, 0x2000 + 3 * 8, 0x500600000ull | 0x80 | 1);
	assert_maps(&memory, MMU_X86_PAE, 0x1fe0, 0x80605123, 0x500605123ull, 0x200000 - 0x5123);
	assert_status(&memory, MMU_X86_PAE, 0x1fe0, 0x40605123, XLATE_ABSENT);
	assert_status(&memory, MMU_X86_PAE, 0x1fe0, 0x80805123, XLATE_ABSENT);
	assert_status(&memory, MMU_X86_PAE, 0x1fe0, 0x180605123ull, XLATE_ABSENT);
	/* There are no 1 GiB pages in this mode: bit 7 of a top entry means nothing. */
	put64(&memory, 0x1fe0 + 2 * 8, 0x2000 | 0x80 | 1);
	assert_maps(&memory, MMU_X86_PAE, 0x1fe0, 0x80605123, 0x500605123ull, 0x200000 - 0x5123);
}

static void two_levels(void **state)
{
	struct memory memory = {0};
	struct physmem mem = {.frame = frame, .ctx = &memory};
	struct mmu mmu = {.mode = MMU_X86_32, .root = 0x1000};
	struct xlate x = {0};

	put32(&memory, 0x1000 + 0x300 * 4, 0x2000 | 7);
	put32(&memory, 0x2000 + 5 * 4, 0xfffff000 | 7);
	assert_maps(&memory, MMU_X86_32, 0x1000, 0xc0005123, 0xfffff123, 0xedd);
	assert_int_equal(memory.reads, 2);
	assert_status(&memory, MMU_X86_32, 0x1000, 0xc0006123, XLATE_ABSENT);
	assert_status(&memory, MMU_X86_32, 0x1000, 0xb0005123, XLATE_ABSENT);
	assert_status(&memory, MMU_X86_32, 0x1000, 0x1c0005123ull, XLATE_ABSENT);
	/* A 4 MiB page above 4 GiB. */
	put32(&memory, 0x1000 + 0x300 * 4, 0x00c00000 | 0x12 << 13 | 0x80 | 1);
	assert_maps(&memory, MMU_X86_32, 0x1000, 0xc0005123, 0x1200c05123ull, 0x400000 - 0x5123);
	put32(&memory, 0x1000 + 0x300 * 4, 0x00c00000 | 1 << 21 | 0x80 | 1);
	assert_status(&memory, MMU_X86_32, 0x1000, 0xc0005123, XLATE_ABSENT);
	/* Without CR4.PSE the bit means nothing. */
	put32(&memory, 0x1000 + 0x300 * 4, 0x2000 | 0x80 | 1);
	assert_int_equal(arch_x86_64.translate(&mmu, 0xc0005123, &mem, &x), XLATE_OK);
	assert_int_equal(x.addr, 0xfffff123);
}

static void no_paging(void **state)
{
	struct memory memory = {0};

	assert_maps(&memory, MMU_OFF, 0, 0x12345678, 0x12345678, 0x988);
	assert_maps(&memory, MMU_OFF, 0, 0, 0, 0x1000);
	assert_maps(&memory, MMU_OFF, 0, 0xfffffffffffffull, 0xfffffffffffffull, 1);
	assert_status(&memory, MMU_OFF, 0, 0x10000000000000ull, XLATE_ABSENT);
	assert_int_equal(memory.reads, 0);
}

/* Whatever the tables hold, a walk is short and its result lies in the physical address space. */
static void random_tables_are_walked_within_bounds(void **state)
{
	struct memory memory = {.n = 16};
	uint64_t seed = 88172645463325252ull;
	struct xlate x = {0};

	for (int round = 0; round < 200000; round++) {
		uint64_t va, root;

		if (round % 1000 == 0) {
			for (size_t i = 0; i < 16; i++) {
				memory.gfn[i] = i;
				for (size_t j = 0; j < FRAME_SIZE / 8; j++) {
					seed ^= seed << 13, seed ^= seed >> 7, seed ^= seed << 17;
					memory.words[i][j] = seed & 1 ? seed & 0xf0e7 : seed;
				}
			}
		}
		seed ^= seed << 13, seed ^= seed >> 7, seed ^= seed << 17;
		va = seed;
		root = seed >> 20 & 0x1fff8;
		for (int mode = MMU_OFF; mode <= MMU_X86_5; mode++) {
			uint64_t addr = mode == MMU_X86_4   ? va >> 17
					: mode == MMU_X86_5 ? va >> 8
							    : va >> 32;

			if (go(&memory, (enum mmu_mode)mode, root, addr, &x) == XLATE_OK) {
				assert_in_range(x.left, 1, 1u << 30);
				assert_true(x.addr + x.left <= 1ull << 52);
			}
			assert_in_range(memory.reads, 0, 5);
		}
	}
}

static void architectures_are_found_by_name_and_machine(void **state)
{
	assert_ptr_equal(arch_by_name("x86_64"), &arch_x86_64);
	assert_ptr_equal(arch_by_name("x86_32"), &arch_x86_32);
	assert_null(arch_by_name("x86"));
	assert_ptr_equal(arch_by_machine(62), &arch_x86_64);
	assert_ptr_equal(arch_by_machine(3), &arch_x86_32);
	assert_null(arch_by_machine(0));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(four_levels),
		cmocka_unit_test(five_levels),
		cmocka_unit_test(absent_at_every_level),
		cmocka_unit_test(a_neighbour_is_found_by_the_last_table_alone),
		cmocka_unit_test(a_missing_table_is_named),
		cmocka_unit_test(large_pages),
		cmocka_unit_test(reserved_bits_make_an_entry_absent),
		cmocka_unit_test(non_canonical_addresses_are_absent),
		cmocka_unit_test(the_last_page_of_the_address_space),
		cmocka_unit_test(pae),
		cmocka_unit_test(two_levels),
		cmocka_unit_test(no_paging),
		cmocka_unit_test(random_tables_are_walked_within_bounds),
		cmocka_unit_test(architectures_are_found_by_name_and_machine),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
