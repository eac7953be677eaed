/* SPDX-License-Identifier: BSD-3-Clause */
#include "unwind/tables/unwind_table.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "unwind/tables/expression.h"

#define FP 6
#define SP 7
#define RA 16

static struct table_builder *builder;
static struct unwind_table *table;
static uint64_t gp[17];
static uint64_t memory[16]; /* at address 0x1000 */

static int begin(void **state)
{
	memset(gp, 0, sizeof(gp));
	memset(memory, 0, sizeof(memory));
	table = NULL;
	assert_null(table_builder_new(&builder));
	return 0;
}

static int end(void **state)
{
	table_builder_free(builder);
	unwind_table_free(table);
	return 0;
}

static void put(uint64_t addr, int32_t offset)
{
	const struct row row = {.kind = ROW_CALL, .cfa_reg = SP, .cfa_offset = offset, .ra_at = -8};

	assert_null(table_builder_put(builder, addr, &row));
}

/* A run with a single row, which is known by its offset. */
static void run(uint64_t start, uint64_t stop, unsigned rank, int32_t offset)
{
	assert_null(table_builder_begin(builder, start, stop, rank));
	put(start, offset);
}

static void finish(void)
{
	assert_null(table_builder_finish(builder, &table));
}

static int32_t offset_at(uint64_t addr)
{
	const struct row *row = unwind_table_find(table, addr);

	return row ? row->cfa_offset : -1;
}

static void a_row_is_good_up_to_the_next(void **state)
{
	run(0x100, 0x200, 0, 8);
	put(0x101, 16);
	put(0x101, 24); /* instead of it */
	put(0x180, 24); /* says nothing new */
	put(0x1f0, 8);
	run(0x200, 0x210, 0, 8);
	run(0x300, 0x400, 0, 8);
	finish();
	assert_int_equal(offset_at(0xff), -1);
	assert_int_equal(offset_at(0x100), 8);
	assert_int_equal(offset_at(0x101), 24);
	assert_int_equal(offset_at(0x1ef), 24);
	assert_int_equal(offset_at(0x1f0), 8);
	assert_int_equal(offset_at(0x20f), 8);
	assert_int_equal(offset_at(0x210), -1);
	assert_int_equal(offset_at(0x2ff), -1);
	assert_int_equal(offset_at(0x3ff), 8);
	assert_int_equal(offset_at(0x400), -1);
	assert_int_equal(offset_at(UINT64_MAX), -1);
	assert_int_equal(table->n, 6);
}

static void text_may_start_at_address_0_and_end_with_the_address_space(void **state)
{
	run(0, 0x10, 0, 8);
	finish();
	assert_int_equal(offset_at(0), 8);
	assert_int_equal(offset_at(UINT64_MAX), -1);
	end(state);
	begin(state);
	run(UINT64_MAX - 0xfff, UINT64_MAX, 0, 8);
	finish();
	assert_int_equal(offset_at(UINT64_MAX - 1), 8);
	assert_int_equal(offset_at(UINT64_MAX), -1);
	assert_int_equal(offset_at(0), -1);
}

static void no_rows_make_no_table(void **state)
{
	finish();
	assert_null(table);
	end(state);
	begin(state);
	assert_null(table_builder_begin(builder, 0x100, 0x200, 0));
	finish();
	assert_null(table);
}

static void the_lower_rank_counts(void **state)
{
	run(0x100, 0x200, 1, 1);
	run(0x100, 0x180, 0, 2);
	run(0x300, 0x400, 1, 3);
	run(0x380, 0x390, 0, 4);
	run(0x385, 0x388, 1, 5);
	finish();
	assert_int_equal(offset_at(0x100), 2);
	assert_int_equal(offset_at(0x180), -1);
	assert_int_equal(offset_at(0x37f), 3);
	assert_int_equal(offset_at(0x386), 4);
}

static void runs_that_contradict_each_other_are_left_out(void **state)
{
	/* Functions that the linker dropped, all at 0, and one that is really there. */
	run(0, 0x10, 0, 1);
	run(0, 0x80, 0, 2);
	run(0, 0x20, 0, 3);
	run(0x10, 0x30, 0, 4);
	run(0x40, 0x60, 0, 5);
	run(0x40, 0x60, 0, 5);
	finish();
	assert_int_equal(offset_at(0x8), -1);
	assert_int_equal(offset_at(0x18), 4);
	assert_int_equal(offset_at(0x35), -1);
	assert_int_equal(offset_at(0x48), 5);
}

static void a_later_start_ends_what_runs_over_it(void **state)
{
	run(0x0, 0x100, 0, 1);
	run(0x40, 0x60, 0, 2);
	finish();
	assert_int_equal(offset_at(0x3f), 1);
	assert_int_equal(offset_at(0x40), 2);
	assert_int_equal(offset_at(0x60), -1);
}

static void of_code_far_apart_most_of_it_has_rows(void **state)
{
	run(0x1000, 0x1010, 0, 1);
	run(0xffffffff80000000, 0xffffffff80000100, 0, 2);
	put(0xffffffff80000010, 3);
	finish();
	assert_int_equal(offset_at(0x1000), -1);
	assert_int_equal(offset_at(0xffffffff80000000), 2);
	assert_int_equal(offset_at(0xffffffff80000010), 3);
}

static bool reg(const void *ctx, unsigned n, uint64_t *value)
{
	if (n > RA)
		return false;
	*value = gp[n];
	return true;
}

static bool load(void *ctx, uint64_t va, uint64_t *value)
{
	if (va < 0x1000 || va >= 0x1000 + sizeof(memory) || va % 8)
		return false;
	*value = memory[(va - 0x1000) / 8];
	return true;
}

static const struct row_env env = {
	.reg = reg, .load = load, .word = 8, .fp = FP, .sp = SP, .ra = RA};

static void step(const struct row *row, uint64_t pc, uint64_t sp, uint64_t fp)
{
	const struct unwind_table none = {0};
	struct row_caller caller;

	assert_true(unwind_table_step(&none, row, &env, &caller));
	assert_int_equal(caller.pc, pc);
	assert_int_equal(caller.sp, sp);
	assert_true(caller.fp_known);
	assert_int_equal(caller.fp, fp);
	assert_int_equal(caller.trap, row->kind == ROW_TRAP);
}

static void rows_find_the_callers_registers(void **state)
{
	struct row row = {.kind = ROW_CALL,
			  .cfa_reg = SP,
			  .cfa_offset = 0x20,
			  .ra_at = -8,
			  .fp_at = ROW_SAME,
			  .sp_at = ROW_SAME};

	gp[SP] = 0x1000;
	gp[FP] = 0x1010;
	memory[3] = 0xabc; /* the return address */
	memory[0] = 0x1060;
	step(&row, 0xabc, 0x1020, 0x1010);
	row.fp_at = -0x20;
	step(&row, 0xabc, 0x1020, 0x1060);
	row.base = ROW_PLUS_DEREF; /* the CFA is in the word at sp + 8 */
	row.cfa_offset = 8;
	memory[1] = 0x1020;
	step(&row, 0xabc, 0x1020, 0x1060);
	row.base = ROW_DEREF_PLUS;
	row.cfa_reg = FP;
	row.cfa_offset = 0x10;
	memory[2] = 0x1010;
	step(&row, 0xabc, 0x1020, 0x1060);
}

static void a_trap_has_its_stack_pointer_saved(void **state)
{
	const struct row row = {.kind = ROW_TRAP,
				.cfa_reg = SP,
				.cfa_offset = 0x10,
				.ra_at = 0,
				.fp_at = -8,
				.sp_at = 24};

	gp[SP] = 0x1000;
	memory[2] = 0xabc;
	memory[1] = 0x1234;
	memory[5] = 0x2000;
	step(&row, 0xabc, 0x2000, 0x1234);
}

static void what_is_missing_is_named(void **state)
{
	const struct row row = {.kind = ROW_CALL,
				.cfa_reg = SP,
				.cfa_offset = 0x1000,
				.ra_at = -8,
				.fp_at = ROW_LOST,
				.sp_at = ROW_SAME};
	const struct unwind_table none = {0};
	struct row_caller caller;

	gp[SP] = 0x1000;
	assert_false(unwind_table_step(&none, &row, &env, &caller));
	assert_int_equal(caller.slot, 0x1ff8);
}

static uint64_t evaluate(const char *bytes, size_t len, const uint64_t *first)
{
	uint64_t value = 0;

	assert_true(expression_value((const uint8_t *)bytes, len, &env, first, &value));
	return value;
}
#define VALUE(bytes) evaluate(bytes, sizeof(bytes) - 1, NULL)

static void expressions_are_computed(void **state)
{
	/* The PLT's: rsp + 8 + ((rip & 15) >= 11) * 8 */
	static const char plt[] = "\x77\x08\x80\x00\x3f\x1a\x3b\x2a\x33\x24\x22";
	const uint64_t first = 5;

	gp[SP] = 0x1000;
	gp[RA] = 0x4016;
	assert_int_equal(VALUE(plt), 0x1008);
	gp[RA] = 0x401b;
	assert_int_equal(VALUE(plt), 0x1010);
	memory[1] = 0x77;
	assert_int_equal(VALUE("\x77\x08\x06"), 0x77);
	assert_int_equal(VALUE("\x32\x35\x16\x1c"), 3); /* 2 5 swap - */
	assert_int_equal(VALUE("\x09\xff\x1f"), 1);	/* -1 neg */
	assert_int_equal(VALUE("\x31\x28\x01\x00\x30\x35"), 5);
	assert_int_equal(evaluate("\x33\x22", 2, &first), 8);
}

static void expressions_that_make_no_sense_have_no_value(void **state)
{
	static const char *const bad[] = {"\x06", "\x22",	 "\x12",	 "\x77",
					  "\x08", "\x30\x06",	 "\x2f\xfd\xff", "\x2f\x70\x70",
					  "\xff", "\x90\x70\x01"};
	uint64_t value;

	assert_false(expression_value(NULL, 0, &env, NULL, &value));
	for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++)
		assert_false(expression_value((const uint8_t *)bad[i], strlen(bad[i]), &env, NULL,
					      &value));
}

static void rare_rules_are_applied(void **state)
{
	/* A realigned stack: the frame pointer is saved where it points to. */
	static const char cfa[] = "\x76\x78\x06", fp[] = "\x76\x00";
	struct row_rare rare = {.cfa = {.how = RULE_IS_EXPRESSION, .len = 3},
				.ra = {.how = RULE_AT_CFA, .value = -8},
				.fp = {.how = RULE_AT_EXPRESSION, .len = 2},
				.sp = {.how = RULE_SAME}};
	const uint8_t *const bytes[4] = {(const uint8_t *)cfa, NULL, (const uint8_t *)fp, NULL};
	struct row_caller caller;

	assert_null(table_builder_begin(builder, 0, 0x100, 0));
	assert_null(table_builder_put_rare(builder, 0, &rare, bytes));
	assert_null(table_builder_put_rare(builder, 0x80, &rare, bytes));
	finish();
	assert_int_equal(table->n_rare, 1);
	gp[FP] = 0x1010;
	memory[2] = 0x1070;
	memory[1] = 0x1048;
	memory[8] = 0xabc;
	assert_true(unwind_table_step(table, unwind_table_find(table, 0x10), &env, &caller));
	assert_int_equal(caller.pc, 0xabc);
	assert_int_equal(caller.slot, 0x1040);
	assert_int_equal(caller.sp, 0x1048);
	assert_int_equal(caller.fp, 0x1070);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, begin, end)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(a_row_is_good_up_to_the_next),
		TEST(text_may_start_at_address_0_and_end_with_the_address_space),
		TEST(no_rows_make_no_table),
		TEST(the_lower_rank_counts),
		TEST(runs_that_contradict_each_other_are_left_out),
		TEST(a_later_start_ends_what_runs_over_it),
		TEST(of_code_far_apart_most_of_it_has_rows),
		TEST(rows_find_the_callers_registers),
		TEST(a_trap_has_its_stack_pointer_saved),
		TEST(what_is_missing_is_named),
		TEST(expressions_are_computed),
		TEST(expressions_that_make_no_sense_have_no_value),
		TEST(rare_rules_are_applied),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
