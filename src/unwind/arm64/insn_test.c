/* SPDX-License-Identifier: BSD-3-Clause */
#include "unwind/link.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

enum { SP = 31, ZERO };

static void assert_same(uint32_t insn, unsigned n, const struct link_op *expected)
{
	struct link_op op[LINK_OPS];

	assert_int_equal(unwind_arm64.link_code->decode((const uint8_t *)&insn, 4, op), n);
	assert_int_equal(op->size, 4);
	for (unsigned i = 0; i < n; i++) {
		assert_int_equal(op[i].op, expected[i].op);
		if (op[i].op != LINK_STORE)
			assert_int_equal(op[i].rd, expected[i].rd);
		if (op[i].op == LINK_STORE)
			assert_int_equal(op[i].rs2, expected[i].rs2);
		if (op[i].op == LINK_OTHER)
			continue;
		assert_int_equal(op[i].rs1, expected[i].rs1);
		assert_int_equal(op[i].imm, expected[i].imm);
	}
}

#define SAME(insn, ...)                                             \
	do {                                                        \
		const struct link_op all[] = {__VA_ARGS__};         \
		assert_same(insn, sizeof(all) / sizeof(*all), all); \
	} while (0)

#define MOVE(reg, by)                                             \
	{                                                         \
		.op = LINK_ADDI, .rd = reg, .rs1 = reg, .imm = by \
	}
#define STORE(reg, base, at)                                         \
	{                                                            \
		.op = LINK_STORE, .rs1 = base, .rs2 = reg, .imm = at \
	}
#define LOAD(reg, base, at)                                        \
	{                                                          \
		.op = LINK_LOAD, .rd = reg, .rs1 = base, .imm = at \
	}
#define LOSE(reg)                           \
	{                                   \
		.op = LINK_OTHER, .rd = reg \
	}

static void pairs_are_at_a_register_and_a_number(void **state)
{
	/* stp x29, x30, [sp, #-48]! */
	SAME(0xa9bd7bfd, STORE(29, SP, -48), STORE(30, SP, -40), MOVE(SP, -48));
	/* ldp x29, x30, [sp], #48 */
	SAME(0xa8c37bfd, LOAD(29, SP, 0), LOAD(30, SP, 8), MOVE(SP, 48));
	/* ldp xzr, x30, [sp, #16] */
	SAME(0xa9417bff, LOAD(ZERO, SP, 16), LOAD(30, SP, 24));
	/* ldnp x29, x30, [sp, #16] */
	SAME(0xa8417bfd, LOAD(29, SP, 16), LOAD(30, SP, 24));
	/* ldpsw x0, x1, [sp], #8 */
	SAME(0x68c107e0, LOSE(0), LOSE(1), MOVE(SP, 8));
	/* stp q0, q1, [sp, #-32]!; stp d8, d9, [sp, #-16]!; ldp s0, s1, [sp], #8 */
	SAME(0xadbf07e0, LOSE(ZERO), MOVE(SP, -32));
	SAME(0x6dbf27e8, LOSE(ZERO), MOVE(SP, -16));
	SAME(0x2cc107e0, LOSE(ZERO), MOVE(SP, 8));
	/* stp w0, w1, [sp, #-8]! */
	SAME(0x29bf07e0, LOSE(ZERO), MOVE(SP, -8));
}

static void single_ones_are_scaled_or_move_their_base(void **state)
{
	/* ldr x0, [x1, #8]; str x30, [sp, #16]; str xzr, [sp] */
	SAME(0xf9400420, LOAD(0, 1, 8));
	SAME(0xf9000bfe, STORE(30, SP, 16));
	SAME(0xf90003ff, STORE(ZERO, SP, 0));
	/* ldur x3, [x4, #-8] */
	SAME(0xf85f8083, LOAD(3, 4, -8));
	/* str x30, [sp, #-16]!; ldr x30, [sp], #16 */
	SAME(0xf81f0ffe, STORE(30, SP, -16), MOVE(SP, -16));
	SAME(0xf84107fe, LOAD(30, SP, 0), MOVE(SP, 16));
	/* str d8, [sp, #16]; str w1, [sp, #16]; ldrsw x1, [sp, #16] */
	SAME(0xfd000be8, LOSE(ZERO));
	SAME(0xb90013e1, LOSE(ZERO));
	SAME(0xb98013e1, LOSE(1));
}

static void the_base_moves_whatever_is_stored_there(void **state)
{
	/* str w0, [sp, #-16]!; str q0, [sp, #-16]!; ldrb w0, [x1], #1 */
	SAME(0xb81f0fe0, LOSE(ZERO), MOVE(SP, -16));
	SAME(0x3c9f0fe0, LOSE(ZERO), MOVE(SP, -16));
	SAME(0x38401420, LOSE(0), MOVE(1, 1));
}

static void all_else_is_none(void **state)
{
	/* ldr x0, [x1, x2]; stgp x0, x1, [sp, #-32]!; mov x29, sp; bl */
	SAME(0xf8626820, LOSE(0), LOSE(26));
	SAME(0x69bf07e0, LOSE(0), LOSE(1));
	SAME(0x910003fd, {.op = LINK_ADDI, .rd = 29, .rs1 = SP});
	SAME(0x94000000, {.op = LINK_JUMP, .rd = 30, .rs1 = ZERO});
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
