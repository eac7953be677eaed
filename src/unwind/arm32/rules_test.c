/* SPDX-License-Identifier: BSD-3-Clause */
/* Walks by frame records, where no symbols give the starts of functions. */
#include "unwind/unwind.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define TEXT  0x40008000u
#define STACK 0x41000000u
#define MAX   64
#define R7    7
#define R11   11
#define LR    14
#define T32   0x20u

/* Calls, and the return addresses behind them. */
static const uint32_t text_arm[] = {0xebfffffe, 0xe320f000, 0xebfffffe, 0xe320f000, 0xe320f000};
static const uint16_t text_thumb[] = {0xf7ff, 0xfffe, 0x4798, 0xbf00};
#define INNER	(TEXT + 16) /* nop */
#define RET_1	(TEXT + 4)
#define RET_2	(TEXT + 12)
#define THUMB_1 (TEXT + 4) /* bl */
#define THUMB_2 (TEXT + 6) /* blx r3 */

static uint32_t stack[64];
static struct regs regs;
static struct unwinder *unwinder;
static struct frame frames[MAX];
static struct unwind_result out;
static const void *text;
static size_t text_len;

static size_t read_text(void *ctx, uint64_t va, void *buf, size_t len)
{
	if (va < TEXT || va - TEXT >= text_len)
		return 0;
	if (len > text_len - (va - TEXT))
		len = text_len - (va - TEXT);
	memcpy(buf, (const uint8_t *)text + (va - TEXT), len);
	return len;
}

static int begin(void **state)
{
	memset(stack, 0, sizeof(stack));
	regs = (struct regs){
		.word = 4, .isa = ISA_ARM, .sp = STACK, .pc = INNER, .gp_valid = 0xffff};
	text = text_arm;
	text_len = sizeof(text_arm);
	assert_null(unwinder_new(&unwinder));
	return 0;
}

static int clean(void **state)
{
	unwinder_free(unwinder);
	return 0;
}

static uint32_t at(unsigned word)
{
	return STACK + word * 4;
}

static void expect(enum unwind_end end, size_t n, const uint64_t *callers)
{
	const struct window window = {.va = STACK,
				      .len = sizeof(stack),
				      .bytes = (const uint8_t *)stack};
	const struct code code = {.read = read_text};
	const struct unwind_input in = {.regs = &regs,
					.stack = &window,
					.code = &code,
					.unwinder = unwinder,
					.max_frames = MAX};

	unwind_stack(&in, frames, &out);
	assert_int_equal(out.n, n + 1);
	for (size_t i = 0; i < n; i++) {
		assert_int_equal(frames[i + 1].addr, callers[i]);
		assert_int_equal(frames[i + 1].kind, FRAME_RETURN);
		assert_int_equal(frames[i + 1].trust, TRUST_GUESS);
	}
	assert_int_equal(out.end, end);
}

#define EXPECT(end, ...)                                     \
	do {                                                 \
		const uint64_t callers_[] = {__VA_ARGS__};   \
		expect(end, sizeof(callers_) / 8, callers_); \
	} while (0)

/* push {fp, lr}; add fp, sp, #4 */
static void record_of_gcc(unsigned word, uint32_t next, uint32_t ret)
{
	stack[word - 1] = next;
	stack[word] = ret;
}

static void gcc_points_at_the_return_address(void **state)
{
	regs.gp[R11] = at(5);
	regs.gp[LR] = RET_2;
	record_of_gcc(5, at(20), RET_1);
	record_of_gcc(20, 0, RET_2);
	EXPECT(UNWIND_OUTERMOST, RET_1, RET_2);
}

/* str fp, [sp, #-4]!; add fp, sp, #0 */
static void gcc_keeps_the_return_address_of_a_leaf_in_lr(void **state)
{
	regs.gp[R11] = at(3);
	regs.gp[LR] = RET_1;
	stack[3] = at(20);
	record_of_gcc(20, 0, RET_2);
	EXPECT(UNWIND_OUTERMOST, RET_1, RET_2);
}

/* mov ip, sp; push {fp, ip, lr, pc}; sub fp, ip, #4 */
static void records_of_the_old_standard_have_four_words(void **state)
{
	regs.gp[R11] = at(9);
	stack[9] = TEXT + 8;
	stack[8] = RET_1;
	stack[7] = at(10);
	stack[6] = at(29);
	stack[29] = TEXT + 8;
	stack[28] = RET_2;
	EXPECT(UNWIND_OUTERMOST, RET_1, RET_2);
}

/* push {fp, lr}; mov fp, sp */
static void clang_points_at_the_next_record(void **state)
{
	regs.gp[R11] = at(4);
	stack[4] = at(12);
	stack[5] = RET_1;
	stack[13] = RET_2;
	EXPECT(UNWIND_OUTERMOST, RET_1, RET_2);
}

/* push {r7, lr}; mov r7, sp */
static void clang_does_so_in_t32_by_r7(void **state)
{
	text = text_thumb;
	text_len = sizeof(text_thumb);
	regs.flags = T32;
	regs.pc = THUMB_2;
	regs.gp[R7] = at(4);
	stack[4] = at(12);
	stack[5] = THUMB_1 | 1;
	stack[13] = THUMB_2 | 1;
	EXPECT(UNWIND_OUTERMOST, THUMB_1, THUMB_2);
}

static void what_follows_no_call_is_no_return_address(void **state)
{
	regs.gp[R11] = at(5);
	record_of_gcc(5, at(20), INNER);
	EXPECT(UNWIND_BROKEN, );
}

static void a_chain_that_turns_back_ends(void **state)
{
	regs.gp[R11] = at(20);
	record_of_gcc(20, at(30), RET_1);
	record_of_gcc(30, at(20), RET_2);
	EXPECT(UNWIND_BROKEN, RET_1);
}

static void any_frame_pointer_does_no_harm(void **state)
{
	static const uint32_t values[] = {2, 0xff, STACK - 4, 0xfffffffc, 0xfffffff8};

	for (size_t i = 0; i < sizeof(values) / sizeof(*values); i++) {
		regs.gp[R11] = values[i];
		EXPECT(UNWIND_BROKEN, );
	}
}

static bool all_of_it(void *ctx, uint64_t va, uint64_t *start, uint64_t *end)
{
	*start = TEXT;
	*end = TEXT + text_len;
	return va >= TEXT && va < *end;
}

/* A linear congruential generator: the same numbers each time. */
static uint32_t next_random(void)
{
	static uint64_t value = 1;

	value = value * 6364136223846793005u + 1442695040888963407u;
	return (uint32_t)(value >> 32);
}

static void any_code_does_no_harm(void **state)
{
	static uint32_t random_text[64];
	const struct window window = {.va = STACK,
				      .len = sizeof(stack),
				      .bytes = (const uint8_t *)stack};
	const struct code code = {.read = read_text, .function = all_of_it};
	const struct unwind_input in = {.regs = &regs,
					.stack = &window,
					.code = &code,
					.unwinder = unwinder,
					.max_frames = MAX};

	text = random_text;
	text_len = sizeof(random_text);
	for (unsigned round = 0; round < 20000; round++) {
		for (unsigned i = 0; i < 64; i++) {
			random_text[i] = next_random();
			/* Executed always, most of it. */
			if (next_random() & 7)
				random_text[i] = (random_text[i] & 0x0fffffff) | 0xe0000000;
			stack[i] = (next_random() & 1 ? TEXT : STACK) + (next_random() & 255);
		}
		for (unsigned i = 0; i < 16; i++)
			regs.gp[i] = STACK + (next_random() & 255);
		regs.pc = TEXT + (next_random() & 252);
		regs.flags = next_random();
		regs.mmu.root = round;
		unwind_stack(&in, frames, &out);
		assert_in_range(out.n, 1, MAX);
	}
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, begin, clean)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(gcc_points_at_the_return_address),
		TEST(gcc_keeps_the_return_address_of_a_leaf_in_lr),
		TEST(records_of_the_old_standard_have_four_words),
		TEST(clang_points_at_the_next_record),
		TEST(clang_does_so_in_t32_by_r7),
		TEST(what_follows_no_call_is_no_return_address),
		TEST(a_chain_that_turns_back_ends),
		TEST(any_frame_pointer_does_no_harm),
		TEST(any_code_does_no_harm),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
