/* SPDX-License-Identifier: BSD-3-Clause */
/* Walks with unwind tables, true and false ones. */
#include "unwind/guest_testing.h"

#define SP  7
#define FP  6
#define RCX 2

/* Start of an interrupt handler. */
#define ENTRY 0x400

static struct table_builder *builder;
static struct unwind_table *table;
static uint64_t slide;

static int begin(void **state)
{
	build(state);
	table = NULL;
	slide = 0;
	return table_builder_new(&builder) != NULL;
}

static int end(void **state)
{
	table_builder_free(builder);
	unwind_table_free(table);
	rows_of_guest = NULL;
	switches_of_guest = NULL;
	return clean(state);
}

static const struct unwind_table *find_table(void *ctx, uint64_t va, uint64_t *by)
{
	*by = slide;
	return va - TEXT < sizeof(text) ? table : NULL;
}

static void put(uint64_t at, struct row row)
{
	assert_null(table_builder_begin(builder, at - slide, at - slide + 0x40, 0));
	assert_null(table_builder_put(builder, at - slide, &row));
}

static void done(void)
{
	assert_null(table_builder_finish(builder, &table));
	rows_of_guest = find_table;
}

static struct row by_sp(int32_t offset, int16_t fp_at)
{
	return (struct row){.kind = ROW_CALL,
			    .cfa_reg = SP,
			    .cfa_offset = offset,
			    .ra_at = -8,
			    .fp_at = fp_at,
			    .sp_at = ROW_SAME};
}

static struct row by_fp(void)
{
	return (struct row){.kind = ROW_CALL,
			    .cfa_reg = FP,
			    .cfa_offset = 16,
			    .ra_at = -8,
			    .fp_at = -16,
			    .sp_at = ROW_SAME};
}

static void frameless(void)
{
	/* The leaf, called by OMITS (24 bytes of frame), by H, by start. */
	*at(STACK) = IN_OMITS;
	*at(STACK + 8 + 0x18) = IN_H;
	record(STACK + 8 + 0x20, 0, IN_START);
}

static void tables_find_callers_without_symbols(void **state)
{
	symbols = false;
	slide = 0x1000;
	frameless();
	put(TEXT + LEAF, by_sp(8, ROW_SAME));
	put(TEXT + OMITS, by_sp(32, ROW_SAME));
	put(TEXT + H, by_fp());
	put(TEXT + START, (struct row){.kind = ROW_END});
	done();
	for (int i = 0; i < 2; i++) {
		unwind(TEXT + LEAF, STACK + 8 + 0x20);
		EXPECT(UNWIND_OUTERMOST, IN_OMITS, IN_H, IN_START);
	}
	method = UNWIND_CFI;
	unwind(TEXT + LEAF, STACK + 8 + 0x20);
	EXPECT(UNWIND_OUTERMOST, IN_OMITS, IN_H, IN_START);
}

static void code_that_is_called_is_not_outermost(void **state)
{
	frameless();
	put(TEXT + LEAF, (struct row){.kind = ROW_END});
	put(TEXT + OMITS, by_sp(32, ROW_SAME));
	put(TEXT + H, by_fp());
	put(TEXT + START, (struct row){.kind = ROW_END});
	done();
	unwind(TEXT + LEAF, STACK + 8 + 0x20);
	EXPECT(UNWIND_OUTERMOST, IN_OMITS, IN_H, IN_START);
	/* Without a call on the stack it is. */
	*at(STACK) = NO_CALL;
	unwind(TEXT + LEAF, STACK + 8 + 0x20);
	EXPECT_NONE(UNWIND_OUTERMOST);
}

/* Interrupted at its beginning. */
static void unwind_interrupted(uint64_t pc, uint64_t sp)
{
	*at(STACK) = pc;
	*at(STACK + 8) = 0;
	*at(STACK + 32) = sp;
	unwind_anywhere(TEXT + 0x300, NO_FP);
}

static void code_that_is_called_is_not_outermost_where_it_is_interrupted(void **state)
{
	put(TEXT + 0x300,
	    (struct row){.kind = ROW_TRAP, .cfa_reg = SP, .ra_at = 0, .fp_at = 8, .sp_at = 32});
	put(TEXT + LEAF, (struct row){.kind = ROW_END});
	put(TEXT + OMITS, by_sp(32, ROW_SAME));
	put(TEXT + START, (struct row){.kind = ROW_END});
	done();
	*at(STACK + 0x100) = IN_OMITS;
	*at(STACK + 0x120) = IN_START;
	unwind_interrupted(TEXT + LEAF, STACK + 0x100);
	EXPECT(UNWIND_OUTERMOST, TEXT + LEAF, IN_OMITS, IN_START);
	/* The return address of an indirect call may be a leftover of any function. */
	*at(STACK + 0x100) = IN_H;
	unwind_interrupted(TEXT + LEAF, STACK + 0x100);
	EXPECT(UNWIND_OUTERMOST, TEXT + LEAF);
}

static void a_return_to_the_beginning_of_a_function_is_a_jump(void **state)
{
	put(TEXT + LEAF, by_sp(8, ROW_SAME));
	put(TEXT + H, by_sp(16, ROW_SAME));
	put(TEXT + START, (struct row){.kind = ROW_END});
	done();
	*at(STACK) = TEXT + G;
	*at(STACK + 8) = IN_H;
	*at(STACK + 24) = IN_START;
	unwind(TEXT + LEAF + 3, NO_FP);
	EXPECT(UNWIND_OUTERMOST, IN_H, IN_START);
	/* Not into its middle, nor without a call. */
	*at(STACK) = TEXT + G + 1;
	unwind_anywhere(TEXT + LEAF + 3, NO_FP);
	assert_true(out.n < 2 || frames[1].trust == TRUST_GUESS);
	*at(STACK) = TEXT + G;
	*at(STACK + 8) = NO_CALL;
	unwind_anywhere(TEXT + LEAF + 3, NO_FP);
	assert_true(out.n < 2 || frames[1].trust == TRUST_GUESS);
}

static void
with_tables_only_the_hypercall_page_has_a_caller_whatever_the_frame_pointer_holds(void **state)
{
	static const uint64_t anything[] = {0, NO_FP, STACK + 0x80, STACK + 0x100};

	*at(STACK + 16) = IN_G;
	*at(STACK + 32) = IN_H;
	*at(STACK + 48) = IN_H;
	put(TEXT + G, by_sp(16, ROW_SAME));
	put(TEXT + H, by_sp(16, ROW_SAME));
	done();
	method = UNWIND_CFI;
	for (size_t i = 0; i < sizeof(anything) / sizeof(anything[0]); i++) {
		unwind(STUB + 10, anything[i]);
		EXPECT(UNWIND_OUTERMOST, IN_G, IN_H, IN_H);
		assert_int_equal(frames[1].trust, TRUST_GUESS);
	}
}

static void stacks_may_lie_close_to_each_other(void **state)
{
	uint64_t words[8] = {[1] = IN_OMITS, [5] = IN_START};
	struct window near = {.va = STACK + sizeof(stack) + 0x4000,
			      .len = sizeof(words),
			      .bytes = (uint8_t *)words};
	struct row switches = by_sp(8, ROW_SAME);

	switches.base = ROW_DEREF_PLUS;
	*at(STACK) = near.va + 8;
	put(TEXT + LEAF, switches);
	put(TEXT + OMITS, by_sp(32, ROW_SAME));
	put(TEXT + START, (struct row){.kind = ROW_END});
	done();
	unwind(TEXT + LEAF, 0);
	EXPECT_NONE(UNWIND_BYTES);
	assert_in_range(out.elsewhere, near.va - 4096, near.va + 8);
	second = &near;
	unwind(TEXT + LEAF, 0);
	EXPECT(UNWIND_OUTERMOST, IN_OMITS, IN_START);
}

static void a_table_that_is_wrong_is_not_believed(void **state)
{
	frameless();
	*at(STACK + 0x10) = IN_F; /* looks like a return address, and is none */
	put(TEXT + LEAF, by_sp(0x18, ROW_SAME));
	put(TEXT + OMITS, by_sp(16, ROW_SAME));
	done();
	unwind(TEXT + LEAF, STACK + 8 + 0x20);
	EXPECT(UNWIND_OUTERMOST, IN_OMITS, IN_H, IN_START);
	/* Two opinions: that of the code, with a mark. */
	assert_int_equal(frames[1].trust, TRUST_GUESS);
}

static void what_only_a_wrong_table_says_is_a_guess(void **state)
{
	symbols = false;
	*at(STACK + 0x10) = IN_H; /* some address behind a call through a pointer */
	put(TEXT + 0x300, by_sp(0x18, ROW_SAME));
	done();
	memset(text + 0x300, 0x0f, 64); /* code that cannot be followed */
	unwind(TEXT + 0x310, NO_FP);
	for (size_t i = 1; i < out.n; i++)
		assert_int_equal(frames[i].trust, TRUST_GUESS);
}

static void a_signal_frame_leads_to_what_it_interrupted(void **state)
{
	/* At sp: pc; at sp + 32: sp; at sp + 8: fp. */
	put(TEXT + 0x300,
	    (struct row){.kind = ROW_TRAP, .cfa_reg = SP, .ra_at = 0, .fp_at = 8, .sp_at = 32});
	done();
	*at(STACK) = TEXT + LEAF;
	*at(STACK + 8) = 0;
	*at(STACK + 32) = STACK + 0x100;
	*at(STACK + 0x100) = IN_F;
	*at(STACK + 0x100 + 0x28) = 0;
	unwind_anywhere(TEXT + 0x300, NO_FP);
	assert_true(out.n >= 3);
	assert_int_equal(frames[1].addr, TEXT + LEAF);
	assert_int_equal(frames[1].kind, FRAME_PC);
	assert_int_equal(frames[1].trust, TRUST_SURE);
	assert_int_equal(frames[2].addr, IN_F);
	assert_int_equal(frames[2].kind, FRAME_RETURN);
}

static void a_system_call_is_entered_on_the_programs_stack(void **state)
{
	static const uint8_t *const none[4];
	const struct row_rare entry = {.cfa = {.how = RULE_IS_CFA, .reg = SP},
				       .ra = {.how = RULE_IN_REG, .value = RCX},
				       .trap = true};

	assert_null(table_builder_begin(builder, TEXT + OMITS, TEXT + OMITS + 0x40, 0));
	assert_null(table_builder_put_rare(builder, TEXT + OMITS, &entry, none));
	done();
	regs.gp[RCX] = TEXT + LEAF;
	regs.gp_valid = 1u << RCX;
	/* Which the code, if it was followed as if a call had led here, would take for its own. */
	*at(STACK) = IN_F;
	*at(STACK + 0x28) = 0;
	unwind_anywhere(TEXT + OMITS, NO_FP);
	assert_true(out.n >= 3);
	assert_int_equal(frames[1].addr, TEXT + LEAF);
	assert_int_equal(frames[1].kind, FRAME_PC);
	assert_int_equal(frames[2].addr, IN_F);
	assert_int_equal(frames[2].kind, FRAME_RETURN);
}

/* As the processor pushes it: pc, cs, flags, sp. */
/* CFA = *(rsp - 8) + 8, in code that cannot be followed. */
static void put_red_zone(uint64_t at)
{
	static const uint8_t cfa[] = {0x77, 0x78, 0x06, 0x23, 0x08};
	const uint8_t *const bytes[4] = {cfa};
	struct row_rare rare = {.cfa = {.how = RULE_IS_EXPRESSION, .len = sizeof(cfa)},
				.ra = {.how = RULE_AT_CFA, .value = -8},
				.fp = {.how = RULE_SAME},
				.sp = {.how = RULE_SAME}};

	assert_null(table_builder_begin(builder, at - slide, at - slide + 0x40, 0));
	assert_null(table_builder_put_rare(builder, at - slide, &rare, bytes));
}

/* Stores as the function at RED_ZONE does with this stack pointer. */
static void store_in_red_zone(uint64_t sp)
{
	*at(sp - 8) = sp + 0x100;
	*at(sp + 0x100) = IN_H;
	record(sp + 0x140, 0, IN_START);
}

#define RED_ZONE 0x300

static void a_rule_may_read_the_red_zone(void **state)
{
	put_red_zone(TEXT + RED_ZONE);
	put(TEXT + H, by_fp());
	put(TEXT + START, (struct row){.kind = ROW_END});
	done();
	regs.sp = STACK + 0x80;
	window.bytes += 0x80;
	window.len -= 0x80;
	window.below = 0x80;
	store_in_red_zone(regs.sp);
	unwind(TEXT + RED_ZONE + 4, regs.sp + 0x140);
	EXPECT(UNWIND_OUTERMOST, IN_H, IN_START);
	assert_true(out.red_zone);
	/* A red zone that was not copied is asked for. */
	window.below = 0;
	unwind(TEXT + RED_ZONE + 4, regs.sp + 0x140);
	EXPECT_NONE(UNWIND_BYTES);
	assert_true(out.red_zone);
	assert_int_equal(out.elsewhere, 0);
}

static void what_is_interrupted_has_its_red_zone(void **state)
{
	put(TEXT + ENTRY,
	    (struct row){
		    .kind = ROW_TRAP, .cfa_reg = SP, .ra_at = 0, .fp_at = ROW_SAME, .sp_at = 8});
	put_red_zone(TEXT + RED_ZONE);
	put(TEXT + H, by_fp());
	put(TEXT + START, (struct row){.kind = ROW_END});
	done();
	*at(STACK) = TEXT + RED_ZONE + 4;
	*at(STACK + 8) = STACK + 0x200;
	store_in_red_zone(STACK + 0x200);
	unwind_anywhere(TEXT + ENTRY + 4, STACK + 0x340);
	EXPECT(UNWIND_OUTERMOST, TEXT + RED_ZONE + 4, IN_H, IN_START);
}

static void what_no_processor_has_pushed_was_not_interrupted(void **state)
{
	put(TEXT + 0x300,
	    (struct row){.kind = ROW_TRAP, .cfa_reg = SP, .fp_at = ROW_SAME, .sp_at = 24});
	put(TEXT + LEAF, by_sp(8, ROW_SAME));
	put(TEXT + OMITS, by_sp(32, ROW_SAME));
	done();
	*at(STACK) = TEXT + LEAF;
	*at(STACK + 8) = 0x10;
	*at(STACK + 16) = 0x202;
	*at(STACK + 24) = STACK + 0x100;
	*at(STACK + 0x100) = IN_OMITS;
	unwind_anywhere(TEXT + 0x300, NO_FP);
	EXPECT(UNWIND_OUTERMOST, TEXT + LEAF, IN_OMITS);
	expect_sure();
	/* The second bit of the flags is always set. */
	*at(STACK + 16) = 0x200;
	unwind_anywhere(TEXT + 0x300, NO_FP);
	for (size_t i = 1; i < out.n; i++)
		assert_int_equal(frames[i].trust, TRUST_GUESS);
}

static void a_new_thread_begins_where_nobody_has_called(void **state)
{
	*at(STACK) = TEXT + START;
	put(TEXT + LEAF, by_sp(8, ROW_SAME));
	put(TEXT + START, (struct row){.kind = ROW_END});
	done();
	unwind_anywhere(TEXT + LEAF, NO_FP);
	EXPECT(UNWIND_OUTERMOST, TEXT + START);
	assert_int_equal(frames[1].kind, FRAME_PC);
	expect_sure();
	/*
	 * A pc inside of an outermost function, or at the start of another one,
	 * is no thread's start.
	 */
	*at(STACK) = TEXT + START + 2;
	unwind_anywhere(TEXT + LEAF, NO_FP);
	EXPECT_NONE(UNWIND_BROKEN);
	*at(STACK) = TEXT + LEAF;
	unwind_anywhere(TEXT + LEAF, NO_FP);
	EXPECT_NONE(UNWIND_BROKEN);
}

/* A kernel in the upper half, with the same tables. */
#define KERNEL 0xffffffff00000000ull

static const struct unwind_table *find_both(void *ctx, uint64_t va, uint64_t *by)
{
	*by = va >> 63 ? KERNEL : 0;
	return va - *by - TEXT < sizeof(text) ? table : NULL;
}

static bool in_entry(void *ctx, uint64_t va, bool calls)
{
	return !calls && va - (KERNEL + TEXT + ENTRY) < 0x40;
}

static bool nowhere(void *ctx, uint64_t va, bool calls)
{
	return false;
}

static void between_two_programs_the_kernel_leads_to_none(void **state)
{
	put(TEXT + ENTRY,
	    (struct row){.kind = ROW_TRAP, .cfa_reg = SP, .ra_at = 0, .fp_at = 8, .sp_at = 32});
	done();
	rows_of_guest = find_both;
	*at(STACK) = TEXT + LEAF;
	*at(STACK + 32) = STACK + 0x100;
	*at(STACK + 0x100) = IN_F;
	unwind_anywhere(KERNEL + TEXT + ENTRY, NO_FP);
	assert_true(out.n >= 3);
	assert_int_equal(frames[1].addr, TEXT + LEAF);
	assert_int_equal(frames[2].addr, IN_F);
	/* While it switches, it is the same address space as before, or another. */
	switches_of_guest = nowhere;
	unwind_anywhere(KERNEL + TEXT + ENTRY, NO_FP);
	switches_of_guest = in_entry;
	unwind_anywhere(KERNEL + TEXT + ENTRY, NO_FP);
	assert_int_equal(frames[2].addr, IN_F);
	regs.mmu.root += 0x1000;
	unwind_anywhere(KERNEL + TEXT + ENTRY, NO_FP);
	EXPECT_NONE(UNWIND_OUTERMOST);
	regs.mmu.root -= 0x1000;
	window.va = regs.sp += 0x100000;
	*at(STACK + 32) += 0x100000;
	unwind_on(&window, KERNEL + TEXT + ENTRY, NO_FP);
	EXPECT_NONE(UNWIND_OUTERMOST);
	window.va = regs.sp = STACK;
	/* The program's own code is no kernel's. */
	*at(STACK) = IN_OMITS;
	unwind_anywhere(TEXT + LEAF, NO_FP);
	assert_int_equal(frames[1].addr, IN_OMITS);
}

static void a_scan_takes_what_follows_a_call(void **state)
{
	method = UNWIND_SCAN;
	*at(STACK + 0x10) = IN_F;
	*at(STACK + 0x18) = NO_CALL;
	*at(STACK + 0x20) = IN_MAIN;
	unwind(TEXT + LEAF, NO_FP);
	EXPECT(UNWIND_BROKEN, IN_F, IN_MAIN);
	assert_int_equal(frames[1].trust, TRUST_GUESS);
	assert_int_equal(frames[2].trust, TRUST_GUESS);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, begin, end)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(tables_find_callers_without_symbols),
		TEST(code_that_is_called_is_not_outermost),
		TEST(code_that_is_called_is_not_outermost_where_it_is_interrupted),
		TEST(a_return_to_the_beginning_of_a_function_is_a_jump),
		TEST(with_tables_only_the_hypercall_page_has_a_caller_whatever_the_frame_pointer_holds),
		TEST(stacks_may_lie_close_to_each_other),
		TEST(a_table_that_is_wrong_is_not_believed),
		TEST(what_only_a_wrong_table_says_is_a_guess),
		TEST(a_signal_frame_leads_to_what_it_interrupted),
		TEST(a_system_call_is_entered_on_the_programs_stack),
		TEST(a_rule_may_read_the_red_zone),
		TEST(what_is_interrupted_has_its_red_zone),
		TEST(what_no_processor_has_pushed_was_not_interrupted),
		TEST(a_new_thread_begins_where_nobody_has_called),
		TEST(between_two_programs_the_kernel_leads_to_none),
		TEST(a_scan_takes_what_follows_a_call),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
