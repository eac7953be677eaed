/* SPDX-License-Identifier: BSD-3-Clause */
/* How far a walk goes, and why it ends. */
#include "unwind/pc_info.h"
#include "unwind/guest_testing.h"

static void a_frame_pointer_that_is_none_adds_no_edge(void **state)
{
	static const uint64_t anything[] = {0,
					    2,
					    0xff,
					    STACK + 3,
					    STACK + 0x100,
					    STACK - 8,
					    UINT64_MAX,
					    0x8000000000000000ull,
					    TEXT};

	memset(stack, 0x5a, sizeof(stack));
	for (size_t i = 0; i < sizeof(anything) / sizeof(anything[0]); i++) {
		unwind(TEXT + F + 8, anything[i]);
		assert_int_equal(out.n, 1);
		assert_int_not_equal(out.end, UNWIND_FRAMES);
	}
	unwind(TEXT + F + 8, NO_FP);
	EXPECT_NONE(UNWIND_BROKEN);
}

static void what_is_no_return_address_ends_the_chain(void **state)
{
	record(STACK + 0x20, STACK + 0x40, IN_MAIN);
	record(STACK + 0x40, STACK + 0x60, NO_CALL);
	unwind(TEXT + F + 8, STACK + 0x20);
	EXPECT(UNWIND_BROKEN, IN_MAIN);
	record(STACK + 0x40, STACK + 0x60, 0x1234567);
	unwind(TEXT + F + 8, STACK + 0x20);
	EXPECT(UNWIND_BROKEN, IN_MAIN);
}

static void a_zero_return_address_is_the_end(void **state)
{
	record(STACK + 0x20, STACK + 0x40, IN_MAIN);
	record(STACK + 0x40, 0, 0);
	unwind(TEXT + F + 8, STACK + 0x20);
	EXPECT(UNWIND_OUTERMOST, IN_MAIN);
}

static void a_return_address_of_all_ones_is_the_end(void **state)
{
	record(STACK + 0x20, STACK + 0x40, IN_MAIN);
	record(STACK + 0x40, STACK + 0x60, UINT64_MAX);
	unwind(TEXT + F + 8, STACK + 0x20);
	EXPECT(UNWIND_OUTERMOST, IN_MAIN);
	symbols = readable = false;
	unwind(TEXT + F + 8, STACK + 0x20);
	EXPECT(UNWIND_OUTERMOST, IN_MAIN);
}

/* As in a kernel whose trap handler's first part has jumped there from a program. */
static void a_frame_that_ends_with_its_stack_is_the_first(void **state)
{
	const uint64_t last = STACK + sizeof(stack) - 16;

	record(STACK + 0x20, last, IN_MAIN);
	record(last, 0x7ffe, 0x1234567);
	unwind(TEXT + F + 8, STACK + 0x20);
	EXPECT(UNWIND_OUTERMOST, IN_MAIN);
	/* More of the stack may follow. */
	window.cut = true;
	code_version++;
	unwind(TEXT + F + 8, STACK + 0x20);
	EXPECT(UNWIND_BROKEN, IN_MAIN);
	window.cut = false;
	record(STACK + 0x20, last - 8, IN_MAIN);
	record(last - 8, 0x7ffe, 0x1234567);
	unwind(TEXT + F + 8, STACK + 0x20);
	EXPECT(UNWIND_BROKEN, IN_MAIN);
}

static void loops_end(void **state)
{
	/* Records that no code stands behind: without symbols, called through pointers. */
	symbols = false;
	record(STACK + 0x20, STACK + 0x40, IN_H);
	record(STACK + 0x40, STACK + 0x40, IN_H);
	unwind(TEXT + H + 6, STACK + 0x20);
	assert_int_equal(out.end, UNWIND_LOOP);
	assert_int_equal(out.n, 3);
	record(STACK + 0x40, STACK + 0x20, IN_H);
	unwind(TEXT + H + 6, STACK + 0x20);
	assert_int_equal(out.end, UNWIND_LOOP);
	assert_int_equal(out.n, 3);
}

static void what_was_called_through_a_pointer_is_left_where_it_returns(void **state)
{
	symbols = false;
	*at(STACK + 24) = IN_H;
	*at(STACK + 32) = STACK + 0x60;
	*at(STACK + 40) = IN_MAIN;
	unwind(TEXT + OMITS + 10, NO_FP);
	assert_in_range(out.n, 3, 4);
	assert_int_equal(frames[1].addr, IN_H);
	assert_int_equal(frames[2].addr, IN_MAIN);
	assert_int_equal(frames[1].trust, TRUST_GUESS);
	/* Not if that is no return address, though the rule was learned. */
	*at(STACK + 24) = NO_CALL;
	unwind(TEXT + OMITS + 10, NO_FP);
	EXPECT_NONE(UNWIND_BROKEN);
}

static void code_that_its_function_does_not_lead_to_is_left_where_it_returns(void **state)
{
	/* As a switch of threads goes on: 0 ret; 16 pop rbx, pop rbp, ret */
	CODE(JUMPS, "\xc3");
	CODE(JUMPS + 16, "\x5b\x5d\xc3");
	*at(STACK + 16) = IN_MAIN;
	*at(STACK + 24) = STACK + 0x60;
	*at(STACK + 32) = IN_START;
	unwind(TEXT + JUMPS + 16, NO_FP);
	assert_in_range(out.n, 2, 3);
	assert_int_equal(frames[1].addr, IN_MAIN);
	assert_int_equal(frames[1].trust, TRUST_GUESS);
	/* Not if that is no return address. */
	*at(STACK + 16) = NO_CALL;
	unwind(TEXT + JUMPS + 16, NO_FP);
	EXPECT_NONE(UNWIND_BROKEN);
}

/* A thread's first function: 0 push rbp; mov rbp, rdi; push rbx; sub rsp, 8; 9 call LEAF; 14 jmp 9 */
static void expect_beginning(unsigned begin)
{
	CODE(begin, "\x55\x48\x89\xfd\x53\x48\x83\xec\x08");
	call(begin + 9, TEXT + LEAF);
	CODE(begin + 14, "\xeb\xf9");
	symbols = false;
	*at(STACK + 16) = 0;
	*at(STACK + 24) = IN_H;
	unwind(TEXT + begin + 9, NO_FP);
	assert_in_range(out.n, 2, 3);
	assert_int_equal(frames[1].addr, IN_H);
	assert_int_equal(frames[1].trust, TRUST_GUESS);
	/* Not if that is no return address. */
	*at(STACK + 24) = NO_CALL;
	unwind(TEXT + begin + 9, NO_FP);
	EXPECT_NONE(UNWIND_BROKEN);
}

static void a_function_without_a_symbol_begins_where_compilers_align_it(void **state)
{
	expect_beginning(JUMPS + 32);
}

static void a_function_without_a_symbol_begins_behind_one_that_returns(void **state)
{
	CODE(JUMPS + 7, "\xc3");
	expect_beginning(JUMPS + 8);
}

static void code_without_a_symbol_that_takes_a_stack_of_its_own_has_no_caller(void **state)
{
	/* 0 mov rsp, [0x40f000], or lea; 8 mov [rip], rsi; and rsp, -16; 19 call LEAF */
	static const char loads[2][9] = {"\x48\x8b\x24\x25\x00\xf0\x40\x00",
					 "\x48\x8d\x24\x25\x00\xf0\x40\x00"};

	for (unsigned i = 0; i < 2; i++) {
		const unsigned begin = JUMPS + 32 + 64 * i;

		CODE(begin, loads[i]);
		CODE(begin + 8, "\x48\x89\x35\x21\x00\x41\x00\x48\x83\xe4\xf0");
		call(begin + 19, TEXT + LEAF);
		symbols = false;
		*at(STACK) = TEXT + begin + 24;
		*at(STACK + 8) = NO_CALL;
		unwind(TEXT + LEAF, NO_FP);
		EXPECT(UNWIND_OUTERMOST, TEXT + begin + 24);
	}
}

static void a_call_of_a_thunk_is_one_through_a_register(void **state)
{
	static const struct {
		const char *bytes;
		size_t len;
	} thunks[] = {{"\xff\xe0", 2},		   /* jmp rax */
		      {"\x0f\xae\xe8\xff\xe0", 5}, /* lfence; jmp rax */
		      /* call; pause; lfence; jmp; mov [rsp], rax; ret */
		      {"\xe8\x07\x00\x00\x00\xf3\x90\x0f\xae\xe8\xeb\xf9\x48\x89\x04\x24\xc3", 17}};

	call(MAIN + 4, TEXT + JUMPS);
	record(STACK + 0x20, STACK + 0x40, IN_MAIN);
	record(STACK + 0x40, 0, IN_START);
	for (size_t i = 0; i < sizeof(thunks) / sizeof(*thunks); i++) {
		code(JUMPS, thunks[i].bytes, thunks[i].len);
		code_version++;
		unwind(TEXT + F + 8, STACK + 0x20);
		EXPECT(UNWIND_OUTERMOST, IN_MAIN, IN_START);
		assert_int_equal(frames[1].trust, TRUST_SURE);
	}
	/* A function that returns leads nowhere else. */
	CODE(JUMPS, "\x90\xc3");
	code_version++;
	unwind(TEXT + F + 8, STACK + 0x20);
	assert_int_equal(frames[1].trust, TRUST_GUESS);
}

static void a_threads_first_frame_is_known_by_what_marks_it(void **state)
{
	symbols = false;
	/* pop rdi, rbx; push 0; xor rbp, rbp; call rbx */
	CODE(JUMPS + 16, "\x5f\x5b\x6a\x00\x48\x31\xed\xff\xd3");
	*at(STACK + 24) = TEXT + JUMPS + 25;
	unwind(TEXT + OMITS + 10, 0);
	EXPECT(UNWIND_OUTERMOST, TEXT + JUMPS + 25);
	/* Not if another word lies above, nor if fp has another value by now. */
	*at(STACK + 32) = 1;
	unwind(TEXT + OMITS + 10, 0);
	EXPECT(UNWIND_BROKEN, TEXT + JUMPS + 25);
	*at(STACK + 32) = 0;
	unwind(TEXT + OMITS + 10, NO_FP);
	EXPECT(UNWIND_BROKEN, TEXT + JUMPS + 25);
}

/* What a context switch returns to for the first time has no return address, but what stood on the stack. */
static void a_function_that_never_returns_begins_a_thread(void **state)
{
	CODE(G, "\x55\x48\x89\xe5\xff\xd0"); /* push rbp; mov rbp, rsp; call rax */
	call(G + 6, TEXT + OMITS);
	memset(text + G + 11, 0xcc, 64 - 11);
	text[G + 11] = 0xeb; /* jmp back to the call of what ends it */
	text[G + 12] = 0xf9;
	record(STACK + 0x20, STACK + 0x40, TEXT + G + 6);
	record(STACK + 0x40, 0x99, 0x9999);
	unwind(TEXT + F + 8, STACK + 0x20);
	EXPECT(UNWIND_OUTERMOST, TEXT + G + 6);
	/* A caller is one, whatever it called. */
	call(MAIN + 4, TEXT + G);
	record(STACK + 0x40, STACK + 0x60, IN_MAIN);
	record(STACK + 0x60, 0, IN_START);
	code_version++;
	unwind(TEXT + F + 8, STACK + 0x20);
	EXPECT(UNWIND_OUTERMOST, TEXT + G + 6, IN_MAIN, IN_START);
	/* If it may return, from an interrupt, too, it had one; and a program's may not be readable. */
	record(STACK + 0x40, 0x99, 0x9999);
	CODE(G + 11, "\x5d\xc3");
	code_version++;
	unwind(TEXT + F + 8, STACK + 0x20);
	EXPECT(UNWIND_BROKEN, TEXT + G + 6);
	CODE(G + 11, "\x5d\x48\xcf");
	code_version++;
	unwind(TEXT + F + 8, STACK + 0x20);
	EXPECT(UNWIND_BROKEN, TEXT + G + 6);
	CODE(G + 11, "\xeb\xf9");
	regs.user = true;
	code_version++;
	unwind(TEXT + F + 8, STACK + 0x20);
	EXPECT(UNWIND_BROKEN, TEXT + G + 6);
}

static void a_frame_above_the_window_asks_for_more(void **state)
{
	record(STACK + 0x20, STACK + 0x8000, IN_MAIN);
	window.cut = true;
	unwind(TEXT + F + 8, STACK + 0x20);
	assert_int_equal(out.end, UNWIND_BYTES);
	assert_int_equal(out.n, 2);
	assert_in_range(out.want, 0x8010, 0x9000);
	/* Not if the guest has no memory there. */
	window.cut = false;
	unwind(TEXT + F + 8, STACK + 0x20);
	EXPECT(UNWIND_BROKEN, IN_MAIN);
	assert_int_equal(out.want, 0);
}

static void a_frame_pointer_to_its_own_return_address_ends_a_chain(void **state)
{
	/* So GRUB begins its stack, for which there are no symbols. */
	symbols = false;
	record(STACK + 0x20, STACK + 0x40, IN_H);
	record(STACK + 0x40, STACK + 0x48, IN_H);
	record(STACK + 0x48, IN_H, 0);
	unwind(TEXT + H + 6, STACK + 0x20);
	EXPECT(UNWIND_OUTERMOST, IN_H, IN_H);
	/* The next record has no return address, and does not end the chain. */
	record(STACK + 0x48, IN_H, 1);
	unwind(TEXT + H + 6, STACK + 0x20);
	EXPECT(UNWIND_LOOP, IN_H, IN_H);
}

static void frames_are_bounded(void **state)
{
	for (unsigned i = 0; i < 200; i++)
		record(STACK + 0x20 + i * 16, STACK + 0x30 + i * 16, IN_H);
	max_frames = 7;
	unwind(TEXT + H + 6, STACK + 0x20);
	assert_int_equal(out.end, UNWIND_FRAMES);
	assert_int_equal(out.n, 7);
	max_frames = 1;
	unwind(TEXT + H + 6, STACK + 0x20);
	EXPECT_NONE(UNWIND_FRAMES);
}

static void a_guest_that_was_not_started_has_no_stack(void **state)
{
	regs.sp = 0;
	unwind(TEXT, 0);
	EXPECT_NONE(UNWIND_NO_STACK);
	regs.sp = STACK;
	window.len = 0;
	unwind(TEXT + F + 8, STACK + 0x20);
	EXPECT_NONE(UNWIND_NO_STACK);
}

static void offsets_in_segments_are_no_callers(void **state)
{
	record(STACK + 0x20, STACK + 0x40, IN_MAIN);
	record(STACK + 0x40, 0, IN_START);
	unwind(TEXT + F + 8, STACK + 0x20);
	EXPECT(UNWIND_OUTERMOST, IN_MAIN, IN_START);
	regs.segmented = 16;
	unwind(TEXT + F + 8, STACK + 0x20);
	EXPECT_NONE(UNWIND_SEGMENTED);
}

static void without_code_all_callers_are_guesses(void **state)
{
	record(STACK + 0x20, STACK + 0x40, IN_MAIN);
	record(STACK + 0x40, 0, IN_START);
	readable = false;
	unwind(TEXT + F + 8, STACK + 0x20);
	EXPECT(UNWIND_OUTERMOST, IN_MAIN, IN_START);
	assert_int_equal(frames[1].trust, TRUST_GUESS);
	assert_int_equal(frames[2].trust, TRUST_GUESS);
	/* What could not be read may become readable. */
	readable = true;
	for (unsigned i = 0; i <= UNREADABLE_STACKS; i++)
		unwind(TEXT + F + 8, STACK + 0x20);
	EXPECT(UNWIND_OUTERMOST, IN_MAIN, IN_START);
	expect_sure();
}

static void code_that_changes_is_looked_at_again(void **state)
{
	record(STACK + 0x20, STACK + 0x40, IN_MAIN);
	record(STACK + 0x40, 0, IN_START);
	memset(text + MAIN, 0, 64);
	unwind(TEXT + F + 8, STACK + 0x20);
	EXPECT_NONE(UNWIND_BROKEN);
	CODE(MAIN, "\x55\x48\x89\xe5");
	call(MAIN + 4, TEXT + F);
	for (int i = 0; i < 4096; i++)
		unwind(TEXT + F + 8, STACK + 0x20);
	EXPECT(UNWIND_OUTERMOST, IN_MAIN, IN_START);
}

static void a_misaligned_stack_pointer_is_no_place_to_count_from(void **state)
{
	regs.sp = STACK + 3;
	*at(STACK) = IN_F;
	record(STACK + 0x28, STACK + 0x48, IN_MAIN);
	record(STACK + 0x48, 0, IN_START);
	unwind(TEXT + F + 8, STACK + 0x28);
	EXPECT(UNWIND_OUTERMOST, IN_MAIN, IN_START);
}

static void another_stack_is_followed(void **state)
{
	uint64_t words[8] = {0};
	struct window other = {.va = 0x10000, .len = sizeof(words), .bytes = (uint8_t *)words};

	/* f runs on a stack of its own; its frame pointer leads to the one that it came from. */
	record(STACK + 0x20, 0x10010, IN_MAIN);
	words[2] = 0;
	words[3] = IN_START;
	unwind(TEXT + F + 8, STACK + 0x20);
	EXPECT(UNWIND_BYTES, IN_MAIN);
	assert_int_equal(out.elsewhere, 0x10010);
	second = &other;
	unwind(TEXT + F + 8, STACK + 0x20);
	EXPECT(UNWIND_OUTERMOST, IN_MAIN, IN_START);
	expect_sure();
	/* Nothing leads back. */
	words[2] = STACK + 0x20;
	words[3] = IN_H;
	unwind(TEXT + F + 8, STACK + 0x20);
	assert_in_range(out.n, 2, 4);
}

static void another_stack_may_be_close_above(void **state)
{
	uint64_t words[8] = {0, 0, 0, IN_START};
	struct window other = {.va = STACK + 0x80000,
			       .len = sizeof(words),
			       .bytes = (uint8_t *)words};

	record(STACK + 0x20, other.va + 0x10, IN_MAIN);
	window.cut = true;
	unwind(TEXT + F + 8, STACK + 0x20);
	EXPECT(UNWIND_BYTES, IN_MAIN);
	assert_in_range(out.beyond, other.va, other.va + 0x18);
	second = &other;
	unwind(TEXT + F + 8, STACK + 0x20);
	EXPECT(UNWIND_OUTERMOST, IN_MAIN, IN_START);
}

static void ends_have_names(void **state)
{
	for (int i = 0; i < UNWIND_ENDS; i++)
		assert_string_not_equal(unwind_end_text((enum unwind_end)i), "unknown");
	assert_string_equal(unwind_end_text(UNWIND_ENDS), "unknown");
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, build, clean)

/* Code of which nothing is known, each time. */
static void unwind_anew(void)
{
	code_version++;
	record(STACK + 0x20, STACK + 0x40, IN_MAIN);
	record(STACK + 0x40, 0, IN_START);
	unwind(TEXT + F + 8, STACK + 0x20);
}

static void code_that_takes_long_to_follow_gets_its_share_and_no_more(void **state)
{
	const uint64_t second_ns = 1000000000;
	unsigned first;

	unwind_anew();
	EXPECT(UNWIND_OUTERMOST, IN_MAIN, IN_START);
	unwinder_ration(unwinder, second_ns);
	unwind_anew();
	first = unwinder->lent - unwinder->steps;
	assert_in_range(first, 1, UNWIND_STEPS);
	for (unsigned i = 0; i < 2 * UNWIND_STEPS_SAVED / first; i++)
		unwind_anew();
	/* What there was has been spent, and time brings no more than its share. */
	unwinder_ration(unwinder, second_ns);
	assert_in_range(unwinder->saved, 0, first);
	unwinder_ration(unwinder, second_ns + 1000);
	assert_in_range(unwinder->saved, 1, first + UNWIND_STEPS_PER_S / 1000000);
	unwinder_ration(unwinder, 3 * second_ns);
	assert_int_equal(unwinder->saved, UNWIND_STEPS_SAVED);
	unwind_anew();
	EXPECT(UNWIND_OUTERMOST, IN_MAIN, IN_START);
	expect_sure();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(a_frame_pointer_that_is_none_adds_no_edge),
		TEST(what_is_no_return_address_ends_the_chain),
		TEST(a_zero_return_address_is_the_end),
		TEST(a_return_address_of_all_ones_is_the_end),
		TEST(a_frame_that_ends_with_its_stack_is_the_first),
		TEST(loops_end),
		TEST(what_was_called_through_a_pointer_is_left_where_it_returns),
		TEST(code_that_its_function_does_not_lead_to_is_left_where_it_returns),
		TEST(a_function_without_a_symbol_begins_where_compilers_align_it),
		TEST(a_function_without_a_symbol_begins_behind_one_that_returns),
		TEST(code_without_a_symbol_that_takes_a_stack_of_its_own_has_no_caller),
		TEST(a_call_of_a_thunk_is_one_through_a_register),
		TEST(a_threads_first_frame_is_known_by_what_marks_it),
		TEST(a_function_that_never_returns_begins_a_thread),
		TEST(a_frame_above_the_window_asks_for_more),
		TEST(a_frame_pointer_to_its_own_return_address_ends_a_chain),
		TEST(frames_are_bounded),
		TEST(a_guest_that_was_not_started_has_no_stack),
		TEST(offsets_in_segments_are_no_callers),
		TEST(without_code_all_callers_are_guesses),
		TEST(code_that_changes_is_looked_at_again),
		TEST(a_misaligned_stack_pointer_is_no_place_to_count_from),
		TEST(another_stack_is_followed),
		TEST(another_stack_may_be_close_above),
		TEST(code_that_takes_long_to_follow_gets_its_share_and_no_more),
		TEST(ends_have_names),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
