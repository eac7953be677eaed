/* SPDX-License-Identifier: BSD-3-Clause */
/* Instructions of Arm's tables for exceptions, as rows: by the examples and the table of EHABI32, 10.3. */
#include "unwind/tables/cfi.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

enum { R4 = 4, R7 = 7, R8 = 8, R11 = 11, SP = 13 };

static struct row row;
static struct row_kept kept;

#define COMPILE(...)                                                                          \
	ehabi_compile((const uint8_t[]){__VA_ARGS__}, sizeof((const uint8_t[]){__VA_ARGS__}), \
		      &row, &kept)

static void expect_cfa(unsigned reg, int32_t offset)
{
	assert_int_equal(row.kind, ROW_BODY);
	assert_int_equal(row.base, ROW_PLUS);
	assert_int_equal(row.cfa_reg, reg);
	assert_int_equal(row.cfa_offset, offset);
	assert_int_equal(row.sp_at, ROW_SAME);
}

static void expect_kept(unsigned reg, int at)
{
	assert_int_equal(kept.at[reg - ROW_KEPT_FIRST], at);
}

static void a_leaf_has_no_frame(void **state)
{
	assert_true(COMPILE(0xb0, 0xb0, 0xb0));
	expect_cfa(SP, 0);
	assert_int_equal(row.ra_at, ROW_SAME);
	for (unsigned reg = R4; reg <= R11; reg++)
		expect_kept(reg, ROW_SAME);
}

static void what_was_pushed_is_found(void **state)
{
	/* push {r4, r5, r6, lr}; sub sp, #16 */
	assert_true(COMPILE(0x03, 0xaa, 0xb0));
	expect_cfa(SP, 32);
	assert_int_equal(row.ra_at, -4);
	expect_kept(4, -16);
	expect_kept(6, -8);
	expect_kept(7, ROW_SAME);
	/* push {r4, r8, lr} */
	assert_true(COMPILE(0x84, 0x11, 0xb0));
	expect_cfa(SP, 12);
	expect_kept(4, -12);
	expect_kept(8, -8);
	assert_int_equal(row.ra_at, -4);
	/* push {r0, r1}; push {r4, pc}: the return address is the value of pc. */
	assert_true(COMPILE(0x88, 0x01, 0xb1, 0x03, 0xb0));
	expect_cfa(SP, 16);
	expect_kept(4, -16);
	assert_int_equal(row.ra_at, -12);
}

static void another_register_may_lead_to_the_frame(void **state)
{
	/* push {r11, lr}; add r11, sp, #4 */
	assert_true(COMPILE(0x9b, 0x40, 0x84, 0x80, 0xb0));
	expect_cfa(R11, 4);
	expect_kept(11, -8);
	assert_int_equal(row.ra_at, -4);
	/* push {r7, lr}; mov r7, sp */
	assert_true(COMPILE(0x97, 0x84, 0x08, 0xb0));
	expect_cfa(R7, 8);
	expect_kept(7, -8);
}

static void large_and_vector_frames_are_passed(void **state)
{
	assert_true(COMPILE(0xb2, 0x04, 0xb0)); /* 0x204 + 16 */
	expect_cfa(SP, 0x214);
	assert_true(COMPILE(0xb2, 0x80, 0x01, 0xb0));
	expect_cfa(SP, 0x204 + 0x200);
	assert_true(COMPILE(0xd1, 0xa8, 0xb0)); /* vpush {d8, d9} */
	expect_cfa(SP, 24);
	assert_int_equal(row.ra_at, -4);
	assert_true(COMPILE(0xc9, 0x83, 0xb0)); /* d8 to d11 */
	expect_cfa(SP, 32);
	assert_true(COMPILE(0xb9, 0xb0)); /* FSTMFDX of d8 and d9 */
	expect_cfa(SP, 20);
	assert_true(COMPILE(0xb3, 0x81, 0xb0));
	expect_cfa(SP, 20);
	assert_true(COMPILE(0xb4, 0xa8, 0xb5, 0xb0)); /* with an authentication code */
	expect_cfa(SP, 12);
}

static void what_a_row_cannot_say_is_refused(void **state)
{
	assert_false(COMPILE(0x80, 0x00));	       /* no way out */
	assert_false(COMPILE(0x82, 0x00, 0xb0));       /* the stack pointer is popped */
	assert_false(COMPILE(0x9d, 0xb0));	       /* reserved */
	assert_false(COMPILE(0xa8, 0x9b, 0xa8, 0xb0)); /* two stacks */
	assert_false(COMPILE(0xb1, 0x00));
	assert_false(COMPILE(0xb1, 0x10));
	assert_false(COMPILE(0xb6));
	assert_false(COMPILE(0xca));
	assert_false(COMPILE(0xd8));
	/* Cut off, and beyond all bounds. */
	assert_false(COMPILE(0x84));
	assert_false(COMPILE(0xb2));
	assert_false(COMPILE(0xb2, 0xff, 0xff));
	assert_false(COMPILE(0xb2, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_leaf_has_no_frame),
		cmocka_unit_test(what_was_pushed_is_found),
		cmocka_unit_test(another_register_may_lead_to_the_frame),
		cmocka_unit_test(large_and_vector_frames_are_passed),
		cmocka_unit_test(what_a_row_cannot_say_is_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
