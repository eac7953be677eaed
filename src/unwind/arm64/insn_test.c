/* SPDX-License-Identifier: BSD-3-Clause */
#include "unwind/arm64/insn.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

enum { SP = 31 };

static void assert_same(uint32_t insn, struct arm64_access expected)
{
	struct arm64_access access;

	assert_true(arm64_access(insn, &access));
	assert_int_equal(access.load, expected.load);
	assert_int_equal(access.whole, expected.whole);
	assert_int_equal(access.writes_back, expected.writes_back);
	assert_int_equal(access.post, expected.post);
	assert_int_equal(access.offset, expected.offset);
	assert_int_equal(access.n, expected.n);
	assert_int_equal(access.base, expected.base);
	for (unsigned i = 0; i < expected.n; i++)
		assert_int_equal(access.reg[i], expected.reg[i]);
}

#define SAME(insn, ...) assert_same(insn, (struct arm64_access){__VA_ARGS__})

static void pairs_are_at_a_register_and_a_number(void **state)
{
	/* stp x29, x30, [sp, #-48]! */
	SAME(0xa9bd7bfd, .whole = true, .writes_back = true, .offset = -48, .n = 2, .base = SP,
	     .reg = {29, 30});
	/* ldp x29, x30, [sp], #48 */
	SAME(0xa8c37bfd, .load = true, .whole = true, .writes_back = true, .post = true,
	     .offset = 48, .n = 2, .base = SP, .reg = {29, 30});
	/* ldpsw x0, x1, [sp], #8 */
	SAME(0x68c107e0, .load = true, .writes_back = true, .post = true, .offset = 8, .n = 2,
	     .base = SP, .reg = {0, 1});
	/* stp q0, q1, [sp, #-32]! */
	SAME(0xadbf07e0, .writes_back = true, .offset = -32, .base = SP);
}

static void single_ones_are_scaled_or_move_their_base(void **state)
{
	/* ldr x0, [x1, #8] */
	SAME(0xf9400420, .load = true, .whole = true, .offset = 8, .n = 1, .base = 1, .reg = {0});
	/* ldur x3, [x4, #-8] */
	SAME(0xf85f8083, .load = true, .whole = true, .offset = -8, .n = 1, .base = 4, .reg = {3});
	/* str d8, [sp, #16] */
	SAME(0xfd000be8, .offset = 16, .base = SP);
}

static void the_base_moves_whatever_is_stored_there(void **state)
{
	/* str w0, [sp, #-16]!; str q0, [sp, #-16]! */
	SAME(0xb81f0fe0, .writes_back = true, .offset = -16, .n = 1, .base = SP, .reg = {0});
	SAME(0x3c9f0fe0, .writes_back = true, .offset = -16, .base = SP);
}

static void all_else_is_none(void **state)
{
	/* ldr x0, [x1, x2]; stgp x0, x1, [sp, #-32]!; mov x29, sp; bl */
	static const uint32_t insns[] = {0xf8626820, 0x69bf07e0, 0x910003fd, 0x94000000};
	struct arm64_access access;

	for (size_t i = 0; i < sizeof(insns) / sizeof(*insns); i++)
		assert_false(arm64_access(insns[i], &access));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(pairs_are_at_a_register_and_a_number),
		cmocka_unit_test(single_ones_are_scaled_or_move_their_base),
		cmocka_unit_test(the_base_moves_whatever_is_stored_there),
		cmocka_unit_test(all_else_is_none),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
