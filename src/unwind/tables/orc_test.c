/* SPDX-License-Identifier: BSD-3-Clause */
#include "unwind/tables/cfi.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define TABLE 0xffffffff82c00000ull
#define TEXT  0xffffffff81000000ull

/* Registers in ORC and in DWARF. */
enum { NONE = 0, PREV_SP = 1, DX = 2, BP = 4, SP = 5, R10 = 6, BP_INDIRECT = 8, SP_INDIRECT = 9 };
enum { RDX = 1, RBP = 6, RSP = 7, ORC_R10_AS_DWARF = 10 };

/* Types and the bit behind them, in the bits above the registers. */
enum { OLD_CALL = 0, OLD_REGS = 1, OLD_PARTIAL = 2, OLD_END = 4 };
enum { NEW_NONE = 0, NEW_END = 1, NEW_CALL = 2, NEW_REGS = 3, NEW_PARTIAL = 4, NEW_SIGNAL = 8 };

struct rule {
	uint64_t at;
	int16_t sp_offset, bp_offset;
	unsigned sp_reg, bp_reg, type;
};

static struct unwind_table *make(const struct rule *rules, size_t n, enum orc_layout layout)
{
	uint8_t *addresses = calloc(n, 4), *bytes = calloc(n, 6);
	const struct orc_tables tables = {TABLE, addresses, bytes, n, layout};
	struct unwind_table *table;

	for (size_t i = 0; i < n; i++) {
		int32_t offset = (int32_t)(rules[i].at - (TABLE + 4 * i));
		uint16_t bits =
			(uint16_t)(rules[i].sp_reg | rules[i].bp_reg << 4 | rules[i].type << 8);

		memcpy(addresses + 4 * i, &offset, 4);
		memcpy(bytes + 6 * i, &rules[i].sp_offset, 2);
		memcpy(bytes + 6 * i + 2, &rules[i].bp_offset, 2);
		memcpy(bytes + 6 * i + 4, &bits, 2);
	}
	assert_null(orc_table(&tables, &table));
	free(addresses);
	free(bytes);
	return table;
}

/* The row of a rule that stands alone between two undefined ones. */
static struct row one(int16_t sp_offset, unsigned sp_reg, int16_t bp_offset, unsigned bp_reg,
		      unsigned type, enum orc_layout layout)
{
	const struct rule rules[] = {
		{TEXT, sp_offset, bp_offset, sp_reg, bp_reg, type},
		{TEXT + 16, 0, 0, NONE, NONE, 0},
	};
	struct unwind_table *table = make(rules, 2, layout);
	const struct row *row;
	struct row copy = {.kind = ROW_NONE};

	if (!table)
		return copy;
	row = unwind_table_find(table, TEXT + 5);
	if (row)
		copy = *row;
	assert_null(unwind_table_find(table, TEXT + 16));
	assert_null(unwind_table_find(table, TEXT - 1));
	unwind_table_free(table);
	return copy;
}

static void is_call(struct row row, uint8_t reg, int32_t offset, int16_t fp_at)
{
	assert_int_equal(row.kind, ROW_CALL);
	assert_int_equal(row.cfa_reg, reg);
	assert_int_equal(row.cfa_offset, offset);
	assert_int_equal(row.ra_at, -8);
	assert_int_equal(row.fp_at, fp_at);
	assert_int_equal(row.sp_at, ROW_SAME);
}

static void functions_have_the_return_address_below_the_cfa(void **state)
{
	is_call(one(48, SP, -40, PREV_SP, OLD_CALL, ORC_LINUX_4_14), RSP, 48, -40);
	is_call(one(48, SP, -40, PREV_SP, NEW_CALL, ORC_LINUX_6_4), RSP, 48, -40);
	is_call(one(8, SP, 0, NONE, OLD_CALL, ORC_LINUX_4_14), RSP, 8, ROW_SAME);
	is_call(one(16, BP, -16, PREV_SP, NEW_CALL, ORC_LINUX_6_4), RBP, 16, -16);
}

static void other_stacks_are_reached_through_a_word(void **state)
{
	struct row row = one(16, SP_INDIRECT, -16, PREV_SP, NEW_CALL, ORC_LINUX_6_4);

	is_call(row, RSP, 16, -16);
	assert_int_equal(row.base, ROW_DEREF_PLUS);
}

static void is_trap(struct row row, int16_t ra_at, int16_t sp_at, int16_t fp_at)
{
	assert_int_equal(row.kind, ROW_TRAP);
	assert_int_equal(row.ra_at, ra_at);
	assert_int_equal(row.sp_at, sp_at);
	assert_int_equal(row.fp_at, fp_at);
}

static void interrupted_registers_are_where_pt_regs_has_them(void **state)
{
	is_trap(one(0, SP, 0, NONE, OLD_REGS, ORC_LINUX_4_14), 128, 152, 32);
	is_trap(one(0, SP, 0, NONE, NEW_REGS | NEW_SIGNAL, ORC_LINUX_6_4), 128, 152, 32);
	is_trap(one(-32, SP, 0, NONE, OLD_REGS, ORC_LINUX_4_14), 128, 152, 32);
	/* Taken off the stack already. */
	is_trap(one(-40, SP, 0, NONE, OLD_REGS, ORC_LINUX_4_14), 128, 152, ROW_SAME);
}

static void what_the_processor_pushed_is_an_iret_frame(void **state)
{
	struct row row = one(8, DX, 0, NONE, NEW_PARTIAL | NEW_SIGNAL, ORC_LINUX_6_4);

	is_trap(one(16, SP, 0, NONE, OLD_PARTIAL, ORC_LINUX_4_14), 0, 24, ROW_SAME);
	is_trap(row, 0, 24, ROW_SAME);
	assert_int_equal(row.cfa_reg, RDX);
}

static void ends_are_told_from_what_is_not_known(void **state)
{
	assert_int_equal(one(0, NONE, 0, NONE, OLD_END, ORC_LINUX_4_14).kind, ROW_END);
	assert_int_equal(one(0, NONE, 0, NONE, OLD_CALL, ORC_LINUX_4_14).kind, ROW_NONE);
	assert_int_equal(one(0, NONE, 0, NONE, NEW_END, ORC_LINUX_6_4).kind, ROW_END);
	assert_int_equal(one(0, NONE, 0, NONE, NEW_NONE, ORC_LINUX_6_4).kind, ROW_NONE);
}

static void what_no_kernel_has_is_not_known(void **state)
{
	assert_int_equal(one(8, SP, 0, NONE, 7, ORC_LINUX_6_4).kind, ROW_NONE);
	assert_int_equal(one(8, 12, 0, NONE, NEW_CALL, ORC_LINUX_6_4).kind, ROW_NONE);
	assert_int_equal(one(8, SP, 0, 11, NEW_CALL, ORC_LINUX_6_4).fp_at, ROW_LOST);
}

/* The numbers of registers in Linux 7.2, whose layout is told as that of 6.4. */
enum { DX_7_2 = 2, SP_7_2, BP_7_2, R10_7_2 = 6, PREV_SP_7_2 = 8, SP_INDIRECT_7_2, BP_INDIRECT_7_2 };

static void registers_have_other_numbers_in_linux_7_2(void **state)
{
	static const struct rule rules[] = {
		{TEXT, 8, 0, SP_7_2, NONE, NEW_CALL},
		{TEXT + 16, 48, -40, SP_7_2, PREV_SP_7_2, NEW_CALL},
		{TEXT + 32, 16, -16, BP_7_2, PREV_SP_7_2, NEW_CALL},
		{TEXT + 48, 0, 0, R10_7_2, NONE, NEW_CALL},
		{TEXT + 64, 16, -16, SP_INDIRECT_7_2, PREV_SP_7_2, NEW_CALL},
		{TEXT + 80, 8, 0, DX_7_2, NONE, NEW_PARTIAL},
		{TEXT + 96, 8, 0, SP_7_2, NONE, NEW_CALL},
		{TEXT + 112, 8, 0, 1, NONE, NEW_CALL},
		{TEXT + 128, 8, 0, 5, NONE, NEW_CALL},
		{TEXT + 144, 0, 0, NONE, NONE, NEW_NONE},
	};
	struct unwind_table *table = make(rules, sizeof(rules) / sizeof(*rules), ORC_LINUX_6_4);

	is_call(*unwind_table_find(table, TEXT), RSP, 8, ROW_SAME);
	is_call(*unwind_table_find(table, TEXT + 16), RSP, 48, -40);
	is_call(*unwind_table_find(table, TEXT + 32), RBP, 16, -16);
	is_call(*unwind_table_find(table, TEXT + 48), ORC_R10_AS_DWARF, 0, ROW_SAME);
	is_call(*unwind_table_find(table, TEXT + 64), RSP, 16, -16);
	assert_int_equal(unwind_table_find(table, TEXT + 64)->base, ROW_DEREF_PLUS);
	is_trap(*unwind_table_find(table, TEXT + 80), 0, 24, ROW_SAME);
	assert_int_equal(unwind_table_find(table, TEXT + 80)->cfa_reg, RDX);
	assert_null(unwind_table_find(table, TEXT + 112));
	assert_null(unwind_table_find(table, TEXT + 128));
	unwind_table_free(table);
}

/* A stack of some words at 0x1000. */
struct machine {
	uint64_t reg[16], word[8];
};

static bool get_reg(const void *ctx, unsigned n, uint64_t *value)
{
	*value = ((const struct machine *)ctx)->reg[n & 15];
	return n < 16;
}

static bool get_word(void *ctx, uint64_t va, uint64_t *value)
{
	uint64_t at = (va - 0x1000) / 8;

	if (va < 0x1000 || at >= 8)
		return false;
	*value = ((struct machine *)ctx)->word[at];
	return true;
}

static void realigned_stacks_are_crossed(void **state)
{
	struct machine machine = {.word = {0, 0, 0x1030, 0xbeef, 0, 0x1234}};
	const struct row_env env = {&machine, get_reg, get_word, 8, RBP, RSP, 16};
	const struct rule rules[] = {
		{TEXT, -8, 0, BP_INDIRECT, BP, NEW_CALL},
		{TEXT + 8, 0, 0, R10, BP, NEW_CALL},
		{TEXT + 16, 0, 0, NONE, NONE, NEW_NONE},
	};
	struct unwind_table *table = make(rules, 3, ORC_LINUX_6_4);
	struct row_caller caller;

	machine.reg[RBP] = 0x1018;
	assert_true(unwind_table_step(table, unwind_table_find(table, TEXT), &env, &caller));
	assert_int_equal(caller.pc, 0x1234);
	assert_int_equal(caller.sp, 0x1030);
	assert_true(caller.fp_known);
	assert_int_equal(caller.fp, 0xbeef);
	machine.reg[ORC_R10_AS_DWARF] = 0x1030;
	assert_true(unwind_table_step(table, unwind_table_find(table, TEXT + 8), &env, &caller));
	assert_int_equal(caller.pc, 0x1234);
	assert_int_equal(caller.fp, 0xbeef);
	unwind_table_free(table);
}

static void of_two_rules_for_an_address_the_later_is_good(void **state)
{
	const struct rule rules[] = {
		{TEXT, 0, 0, NONE, NONE, OLD_CALL},
		{TEXT, 8, 0, SP, NONE, OLD_CALL},
		{TEXT + 8, 0, 0, NONE, NONE, OLD_CALL},
	};
	struct unwind_table *table = make(rules, 3, ORC_LINUX_4_14);

	assert_non_null(unwind_table_find(table, TEXT));
	assert_int_equal(unwind_table_find(table, TEXT)->cfa_offset, 8);
	unwind_table_free(table);
}

static void addresses_out_of_order_are_no_table(void **state)
{
	const struct rule rules[] = {
		{TEXT + 8, 8, 0, SP, NONE, OLD_CALL},
		{TEXT, 8, 0, SP, NONE, OLD_CALL},
	};

	assert_null(make(rules, 2, ORC_LINUX_4_14));
	assert_null(make(rules, 0, ORC_LINUX_4_14));
}

static void damaged_tables_are_survived(void **state)
{
	enum { N = 500 };
	uint8_t addresses[4 * N], bytes[6 * N];
	const struct orc_tables tables = {TABLE, addresses, bytes, N, ORC_LINUX_6_4};
	struct machine machine = {0};
	const struct row_env env = {&machine, get_reg, get_word, 8, RBP, RSP, 16};
	struct row_caller caller;

	srand(1);
	for (size_t round = 0; round < 50; round++) {
		struct unwind_table *table;

		for (size_t i = 0; i < sizeof(bytes); i++)
			bytes[i] = (uint8_t)rand();
		for (size_t i = 0; i < N; i++) {
			int32_t offset = (int32_t)(8 * i);

			memcpy(addresses + 4 * i, &offset, 4);
		}
		assert_null(orc_table(&tables, &table));
		for (uint64_t at = 0; table && at < 12 * N; at += 12) {
			const struct row *row = unwind_table_find(table, TABLE + at);

			if (row && row->kind != ROW_END)
				(void)unwind_table_step(table, row, &env, &caller);
		}
		unwind_table_free(table);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(functions_have_the_return_address_below_the_cfa),
		cmocka_unit_test(registers_have_other_numbers_in_linux_7_2),
		cmocka_unit_test(other_stacks_are_reached_through_a_word),
		cmocka_unit_test(interrupted_registers_are_where_pt_regs_has_them),
		cmocka_unit_test(what_the_processor_pushed_is_an_iret_frame),
		cmocka_unit_test(ends_are_told_from_what_is_not_known),
		cmocka_unit_test(what_no_kernel_has_is_not_known),
		cmocka_unit_test(realigned_stacks_are_crossed),
		cmocka_unit_test(of_two_rules_for_an_address_the_later_is_good),
		cmocka_unit_test(addresses_out_of_order_are_no_table),
		cmocka_unit_test(damaged_tables_are_survived),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
