/* SPDX-License-Identifier: BSD-3-Clause */
#include "arch/arm/arm.h"

#include "arch/tables_testing.h"

static enum xlate_status go(struct memory *memory, const struct mmu *mmu, uint64_t va,
			    struct xlate *out)
{
	const struct physmem mem = {.frame = frame, .ctx = memory};

	memset(out, 0, sizeof(*out));
	return arch_arm32.translate(mmu, va, &mem, out);
}

#define assert_maps(memory, mmu, va, phys, bytes)                     \
	do {                                                          \
		struct xlate x_;                                      \
		assert_int_equal(go(memory, mmu, va, &x_), XLATE_OK); \
		assert_int_equal(x_.addr, phys);                      \
		assert_int_equal(x_.left, bytes);                     \
	} while (0)

#define assert_status(memory, mmu, va, status)                      \
	do {                                                        \
		struct xlate x_;                                    \
		assert_int_equal(go(memory, mmu, va, &x_), status); \
	} while (0)

static void short_descriptors(void **state)
{
	static struct memory memory;
	const struct mmu mmu = {.mode = MMU_ARM_SHORT, .root = 0x4000 | 0x6a};

	/* 0x80112345: entry 0x801 of the first level, 0x12 of the second. */
	put32(&memory, 0x4000 + 0x801 * 4, 0x20000 | 0x400 | 1);
	put32(&memory, 0x20400 + 0x12 * 4, 0x60007000 | 0x7e);
	assert_maps(&memory, &mmu, 0x80112345, 0x60007345, 0xcbb);
	put32(&memory, 0x20400 + 0x12 * 4, 0x60007000 | 0x3f);
	assert_maps(&memory, &mmu, 0x80112345, 0x60007345, 0xcbb);
	put32(&memory, 0x20400 + 0x12 * 4, 0x60070000 | 0x55);
	assert_maps(&memory, &mmu, 0x80112345, 0x60072345, 0xdcbb);
	put32(&memory, 0x20400 + 0x12 * 4, 0x60007000);
	assert_status(&memory, &mmu, 0x80112345, XLATE_ABSENT);
	assert_status(&memory, &mmu, 0x90012345, XLATE_ABSENT);
}

static void sections_and_supersections(void **state)
{
	static struct memory memory;
	const struct mmu mmu = {.mode = MMU_ARM_SHORT, .root = 0x4000};

	put32(&memory, 0x4000 + 0x801 * 4, 0x60300000 | 0xc0e);
	assert_maps(&memory, &mmu, 0x80112345, 0x60312345, 0xedcbb);
	/* Bits 23:20 are bits 35:32 of the address, bits 8:5 are 39:36. */
	put32(&memory, 0x4000 + 0x801 * 4, 0x61000000 | 0x00500000 | 0x40000 | 0x00a0 | 2);
	assert_maps(&memory, &mmu, 0x80112345, 0x5561112345, 0xeedcbb);
}

static void two_tables_of_short_descriptors(void **state)
{
	static struct memory memory;
	/* N = 2: the first table has the lowest GiB and is of 4 KiB. */
	struct mmu mmu = {.mode = MMU_ARM_SHORT, .root = 0x5000, .root_high = 0x8000, .control = 2};

	put32(&memory, 0x5000 + 0x012 * 4, 0x60100000 | 2);
	put32(&memory, 0x9000 + 0x012 * 4, 0x60300000 | 2);
	assert_maps(&memory, &mmu, 0x01212345, 0x60112345, 0xedcbb);
	assert_maps(&memory, &mmu, 0x41212345, 0x60312345, 0xedcbb);
	assert_status(&memory, &mmu, 0x80112345, XLATE_MISSING);
	put32(&memory, 0xa000 + 0x001 * 4, 0x60200000 | 2);
	assert_maps(&memory, &mmu, 0x80112345, 0x60212345, 0xedcbb);
	mmu.control |= 1 << 4;
	assert_status(&memory, &mmu, 0x01212345, XLATE_ABSENT);
	mmu.control |= 1 << 5;
	assert_status(&memory, &mmu, 0x80112345, XLATE_ABSENT);
}

static void long_descriptors(void **state)
{
	static struct memory memory;
	const struct mmu mmu = {.mode = MMU_ARM_LPAE,
				.root = 0x002a000000004020,
				.control = ARM_TTBCR_EAE};

	/* 0x80403abc: entries 2, 2 and 3. */
	put64(&memory, 0x4020 + 2 * 8, 0x5000 | 3);
	put64(&memory, 0x5000 + 2 * 8, 0x6000 | 3);
	put64(&memory, 0x6000 + 3 * 8, 0x0040001280007000 | 0x703);
	assert_maps(&memory, &mmu, 0x80403abc, 0x1280007abc, 0x544);
	put64(&memory, 0x6000 + 3 * 8, 0x80007000 | 0x701);
	assert_status(&memory, &mmu, 0x80403abc, XLATE_ABSENT);
	put64(&memory, 0x5000 + 2 * 8, 0x80200000 | 0x701);
	assert_maps(&memory, &mmu, 0x80403abc, 0x80203abc, 0x1fc544);
	put64(&memory, 0x4020 + 2 * 8, 0xc0000000 | 0x701);
	assert_maps(&memory, &mmu, 0x80403abc, 0xc0403abc, 0x3fbfc544);
	put64(&memory, 0x4020 + 2 * 8, 0);
	assert_status(&memory, &mmu, 0x80403abc, XLATE_ABSENT);
	put64(&memory, 0x4020 + 2 * 8, 0x77000 | 3);
	assert_status(&memory, &mmu, 0x80403abc, XLATE_MISSING);
}

/*
 * `expected`: for the first and the last byte of each GiB, 0 or 1 for TTBR0 or
 * TTBR1, x for a fault.
 */
static void expect_choice(uint32_t t0sz, uint32_t t1sz, const char *expected)
{
	static struct memory memory;
	const struct mmu mmu = {.mode = MMU_ARM_LPAE,
				.root = 0x10000,
				.root_high = 0x20000,
				.control = ARM_TTBCR_EAE | t0sz | t1sz << 16};

	memset(&memory, 0, sizeof(memory));
	for (unsigned i = 0; i < 8; i++) {
		const uint64_t va = (uint64_t)(i / 2) << 30 | (i & 1 ? 0x3fffffff : 0);
		struct xlate x;
		const enum xlate_status status = go(&memory, &mmu, va, &x);
		const char seen = status == XLATE_ABSENT ? 'x' : x.gfn >> 4 == 1 ? '0' : '1';

		assert_int_equal(seen, expected[i]);
	}
}

/* DDI 0487, table G5-3, "Use of TTBR0 and TTBR1, Long-descriptor format". */
static void which_table_translates_what(void **state)
{
	expect_choice(0, 0, "00000000");
	expect_choice(1, 0, "00001111");
	expect_choice(2, 0, "00111111");
	expect_choice(0, 1, "00001111");
	expect_choice(0, 2, "00000011");
	expect_choice(1, 1, "00001111");
	expect_choice(2, 2, "00xxxx11");
}

static void small_spaces_begin_at_the_second_level(void **state)
{
	static struct memory memory;
	struct mmu mmu = {.mode = MMU_ARM_LPAE,
			  .root_high = 0x8000,
			  .control = ARM_TTBCR_EAE | 2u << 16};

	/* 0xc0403abc: entries 2 and 3. */
	put64(&memory, 0x8000 + 2 * 8, 0x6000 | 3);
	put64(&memory, 0x6000 + 3 * 8, 0x80007000 | 0x703);
	assert_maps(&memory, &mmu, 0xc0403abc, 0x80007abc, 0x544);
	mmu.control |= 1 << 23;
	assert_status(&memory, &mmu, 0xc0403abc, XLATE_ABSENT);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(short_descriptors),
		cmocka_unit_test(sections_and_supersections),
		cmocka_unit_test(two_tables_of_short_descriptors),
		cmocka_unit_test(long_descriptors),
		cmocka_unit_test(which_table_translates_what),
		cmocka_unit_test(small_spaces_begin_at_the_second_level),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
