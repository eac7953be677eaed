/* SPDX-License-Identifier: BSD-3-Clause */
/* The stack cache with many threads, with chains without an end, and its cost. */
#include "unwind/pc_info.h"
#include "unwind/guest_testing.h"

#define STRIDE 0x100 /* from stack to stack: several share a page */

static uint64_t threads[300 * STRIDE / 8];

/*
 * A thread in LEAF, which F has called, which MAIN has, whose frame record is
 * at `record`; its stack ends where the next one begins.
 */
static void unwind_thread_from(unsigned n, uint64_t record, uint64_t last)
{
	const uint64_t va = STACK + (uint64_t)n * STRIDE;
	uint64_t *words = threads + n * STRIDE / 8;
	const struct window all = {.va = va,
				   .len = (uint32_t)(sizeof(threads) - (size_t)n * STRIDE),
				   .bytes = (const uint8_t *)words};

	words[0] = IN_F;
	words[5] = record;
	words[6] = IN_MAIN;
	words[8] = 0;
	words[9] = last;
	unwind_on(&all, TEXT + LEAF, va + 0x28);
}

static void unwind_thread(unsigned n, uint64_t last)
{
	unwind_thread_from(n, STACK + (uint64_t)n * STRIDE + 0x40, last);
}

static int begin(void **state)
{
	memset(threads, 0, sizeof(threads));
	return build(state);
}

static void a_stack_is_known_again_after_a_hundred_others(void **state)
{
	for (unsigned round = 0; round < 2; round++) {
		for (unsigned n = 0; n < 100; n++) {
			unwind_thread(n, IN_START);
			EXPECT(UNWIND_OUTERMOST, IN_F, IN_MAIN, IN_START);
			assert_int_equal(out.common, round ? 3 : 0);
			assert_non_null(out.ids);
			for (size_t i = 0; i < out.n - out.common; i++)
				out.ids[i] = n * 16 + (uint32_t)i;
			for (size_t i = 1; i < out.n; i++)
				assert_int_equal(out.ids[i], n * 16 + i);
		}
	}
}

static void more_stacks_than_are_remembered_are_walked_rightly(void **state)
{
	for (unsigned i = 0; i < 900; i++) {
		unwind_thread(i * 7 % 300, IN_START);
		EXPECT(UNWIND_OUTERMOST, IN_F, IN_MAIN, IN_START);
	}
}

static void a_stack_that_has_changed_is_walked_anew_from_there(void **state)
{
	unwind_thread(3, IN_START);
	expect_sure();
	unwind_thread(3, IN_START);
	assert_int_equal(out.common, 3);
	threads[3 * STRIDE / 8 + 2] = 1; /* of F's own */
	unwind_thread(3, IN_START);
	EXPECT(UNWIND_OUTERMOST, IN_F, IN_MAIN, IN_START);
	assert_int_equal(out.common, 2);
	unwind_thread(3, NO_CALL);
	EXPECT(UNWIND_BROKEN, IN_F, IN_MAIN);
	assert_int_equal(out.common, 0);
}

/* Each thread's variables differ from time to time, and its callers do not. */
static void variables_between_the_frames_do_not_matter(void **state)
{
	uint64_t *words = threads + 3 * STRIDE / 8;

	for (unsigned i = 0; i < 5; i++) {
		words[2] = words[4] = words[7] = i;
		unwind_thread(3, IN_START);
		EXPECT(UNWIND_OUTERMOST, IN_F, IN_MAIN, IN_START);
		/* The first two walks learn the steps, and note the chain. */
		if (i > 1)
			assert_int_equal(out.common, 3);
	}
}

static void a_frame_pointer_that_differs_does_matter(void **state)
{
	const uint64_t va = STACK + 3 * STRIDE;
	uint64_t *words = threads + 3 * STRIDE / 8;

	for (unsigned i = 0; i < 3; i++) {
		words[2] = i;
		unwind_thread(3, IN_START);
		EXPECT(UNWIND_OUTERMOST, IN_F, IN_MAIN, IN_START);
	}
	words[2] = 3;
	words[11] = IN_F;
	unwind_thread_from(3, va + 0x50, IN_START);
	EXPECT(UNWIND_OUTERMOST, IN_F, IN_MAIN, IN_F);
}

static void a_chain_without_an_end_is_known_again(void **state)
{
	for (unsigned round = 0; round < 3; round++) {
		unwind_thread(1, NO_CALL);
		EXPECT(UNWIND_BROKEN, IN_F, IN_MAIN);
		assert_int_equal(out.common, round ? 2 : 0);
	}
}

/* Bytes that were missing may hold the caller. */
static void a_chain_without_an_end_is_walked_again_when_more_is_at_hand(void **state)
{
	struct window few = {.va = STACK, .len = 0x50, .bytes = (uint8_t *)stack, .cut = true};

	record(STACK + 0x28, STACK + 0x40, IN_MAIN);
	record(STACK + 0x40, 0, NO_CALL);
	*at(STACK) = IN_F;
	for (unsigned i = 0; i < 2; i++) {
		unwind_on(&few, TEXT + LEAF, STACK + 0x28);
		EXPECT(UNWIND_BROKEN, IN_F, IN_MAIN);
		assert_int_equal(out.common, i ? 2 : 0);
		assert_true(out.searched);
	}
	few.len = 0x80;
	unwind_on(&few, TEXT + LEAF, STACK + 0x28);
	EXPECT(UNWIND_BROKEN, IN_F, IN_MAIN);
	assert_int_equal(out.common, 0);
}

/* Each stack has other words, which might be return addresses: searching them all takes long. */
static void searches_in_vain_are_made_less_and_less(void **state)
{
	unsigned searches = 0;

	for (unsigned n = 0; n < 200; n++) {
		for (unsigned i = 10; i < STRIDE / 8; i++)
			threads[i] = TEXT + 0x240 + (n * 31 + i) % 0x500;
		unwind_thread(0, NO_CALL);
		EXPECT(UNWIND_BROKEN, IN_F, IN_MAIN);
		searches += unwinder->lent - unwinder->steps > 200;
	}
	assert_in_range(searches, 1, 8 + 200 / 16);
}

static void the_largest_gap_between_frames_is_told(void **state)
{
	struct stack_gap gap;

	unwind_thread(1, IN_START);
	EXPECT(UNWIND_OUTERMOST, IN_F, IN_MAIN, IN_START);
	assert_false(out.searched);
	assert_true(unwinder_gap(&out, 2, &gap));
	/* From where F runs to where MAIN does. */
	assert_int_equal(gap.from, STACK + STRIDE + 8);
	assert_int_equal(gap.to, STACK + STRIDE + 0x38);
	/* One of which less is above. */
	assert_true(unwinder_gap(&out, 1, &gap));
	assert_int_equal(gap.from, STACK + STRIDE + 0x38);
	unwind_thread(2, IN_START);
	out.ids = NULL;
	assert_false(unwinder_gap(&out, 2, &gap));
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, begin, clean)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(a_stack_is_known_again_after_a_hundred_others),
		TEST(more_stacks_than_are_remembered_are_walked_rightly),
		TEST(a_stack_that_has_changed_is_walked_anew_from_there),
		TEST(variables_between_the_frames_do_not_matter),
		TEST(a_frame_pointer_that_differs_does_matter),
		TEST(a_chain_without_an_end_is_known_again),
		TEST(a_chain_without_an_end_is_walked_again_when_more_is_at_hand),
		TEST(searches_in_vain_are_made_less_and_less),
		TEST(the_largest_gap_between_frames_is_told),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
