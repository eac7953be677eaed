/* SPDX-License-Identifier: BSD-3-Clause */

/* Stacks of a process that runs CPython: its functions in place of the loop, where the two prove each other. */

#include "runtime/python_testing.h"

static void functions_stand_in_place_of_the_loop_with_c_code_between(void **state)
{
	struct process *process = *state;

	sample(process);
	assert_string_equal(runtime_name(process->runtime), "CPython 3.11.2");
	assert_int_equal(process->stack.n, 7);
	assert_int_equal(process->frames[0].addr, c_code);
	check_frame(process, 1, "cart.Cart.key", 101);
	check_frame(process, 2, "cart.Cart.key", 100);
	assert_int_equal(process->frames[3].addr, c_code);
	check_frame(process, 4, "cart.middle.<locals>.<lambda>", 38);
	check_frame(process, 5, "cart.<module>", 1);
	assert_int_equal(process->frames[6].addr, c_start);
	assert_int_equal(runtime_count(process->runtime).merged, 1);
}

/* An entry's frame on the C stack is the caller of its outermost function. */
static void put_c_frame(struct process *process, uint64_t at, unsigned last, uint64_t previous,
			uint64_t returns_to)
{
	put(process, at + 8, previous);
	process->bytes[at + 70] = 3;
	put(process, at + LEAD, returns_to);
	put(process, FRAMES + 0x100 * last + 8, BASE + at);
}

static void entries_of_3_12_are_frames_on_the_c_stack(void **state)
{
	struct process *process = *state;

	process->is_12 = true;
	memset(process->bytes + STATE, 0, STACK + STACK_SIZE - STATE);
	put_threads(process);
	put(process, VERSION, 0x030c01f0);
	put(process, INTERPRETER + 16, 0);
	put(process, INTERPRETER + 72, BASE + STATE);
	put(process, STATE + 160, 0);
	put(process, STATE + 144, TID);
	memset(process->bytes + STACK, 0, STACK_SIZE);
	put(process, STACK + 0x100, BASE + FRAMES);
	put_c_frame(process, STACK + 0x110, 1, BASE + FRAMES + 0x200, vector);
	put_c_frame(process, STACK + 0x310, 3, 0, vector);
	sample(process);
	assert_string_equal(runtime_name(process->runtime), "CPython 3.12.1");
	check_frame(process, 1, "cart.Cart.key", 101);
	check_frame(process, 2, "cart.Cart.key", 100);
	assert_int_equal(process->frames[3].addr, c_code);
	check_frame(process, 4, "cart.middle.<locals>.<lambda>", 38);
	check_frame(process, 5, "cart.<module>", 1);
	assert_int_equal(process->stack.n, 7);
}

static void a_loop_that_is_just_entered_stays(void **state)
{
	struct process *process = *state;

	memmove(process->frames + 2, process->frames, 7 * sizeof(*process->frames));
	process->frames[0] = (struct frame){BASE + LOOP + 4, FRAME_PC, 0};
	process->frames[1] = (struct frame){vector, FRAME_RETURN, 0};
	process->frames[2].kind = FRAME_RETURN;
	process->stack.n += 2;
	sample(process);
	assert_int_equal(process->frames[0].addr, BASE + LOOP + 4);
	assert_int_equal(process->frames[1].addr, c_code);
	check_frame(process, 2, "cart.Cart.key", 101);
	check_frame(process, 6, "cart.<module>", 1);
}

static void a_stack_whose_entries_return_elsewhere_stays(void **state)
{
	struct process *process = *state;

	put(process, STACK + 0x300 + LEAD, c_start);
	sample(process);
	check_untouched(process);
}

static void entries_return_at_one_distance_from_their_markers(void **state)
{
	struct process *process = *state;

	sample(process);
	put(process, STACK + 0x300 + LEAD, 0);
	put(process, STACK + 0x300 + LEAD + 8, vector);
	put_stack(process);
	sample(process);
	check_untouched(process);
}

static void entries_that_the_stack_lacks_leave_it_as_it_is(void **state)
{
	struct process *process = *state;

	process->frames[4].addr = c_code;
	sample(process);
	assert_int_equal(process->stack.n, 7);
	assert_int_equal(process->frames[1].addr, loop_call);
	assert_int_equal(runtime_count(process->runtime).unproven, 1);
}

static void a_list_of_entries_that_disagrees_with_the_frames_stays_unread(void **state)
{
	struct process *process = *state;

	put(process, STACK + 0x308, BASE + FRAMES + 0x300);
	sample(process);
	check_untouched(process);
}

static void a_thread_that_is_none_of_the_interpreters_has_its_c_stack(void **state)
{
	struct process *process = *state;

	sample_as(process, TID + 1);
	check_untouched(process);
}

/* The rest of the stack, from `at` on, as a piece of its own. */
static struct window cut_stack(struct process *process, uint32_t at)
{
	const struct window rest = {.va = process->window.va + at,
				    .len = process->window.len - at,
				    .bytes = process->window.bytes + at};

	process->window.len = at;
	return rest;
}

static void entries_are_proven_in_each_piece_of_a_stack(void **state)
{
	struct process *process = *state;
	const struct window rest = cut_stack(process, 0x280);

	process->stack.others = &rest;
	process->stack.n_others = 1;
	sample(process);
	assert_int_equal(runtime_count(process->runtime).merged, 1);
	check_frame(process, 1, "cart.Cart.key", 101);
	check_frame(process, 5, "cart.<module>", 1);
}

static void entries_in_a_piece_that_was_not_copied_are_not_proven(void **state)
{
	struct process *process = *state;

	(void)cut_stack(process, 0x280);
	sample(process);
	check_untouched(process);
}

static void a_thread_has_no_more_pages_read_than_it_may(void **state)
{
	struct process *process = *state;

	/* The thread's state and the frames, and no function. */
	process->pages = 2;
	sample(process);
	assert_true(process->copy.there);
	assert_int_equal(process->reads, 2);
	check_untouched(process);
	process->pages = 1;
	sample(process);
	assert_int_equal(process->reads, 1);
	assert_true(process->copy.more);
}

static void a_list_without_end_is_cut(void **state)
{
	struct process *process = *state;

	put(process, FRAMES + 48, BASE + FRAMES);
	sample(process);
	assert_true(process->copy.more);
	assert_int_equal(process->copy.n, RUNTIME_FRAMES_MAX);
	assert_int_equal(process->stack.end, UNWIND_FRAMES);
	assert_int_equal(process->stack.n, 64);
}

static void versions_that_are_not_known_are_left_alone(void **state)
{
	/* 3.13 tells its own offsets, which are not there. */
	const uint64_t versions[] = {0x030a02f0, 0x030b00a1, 0x030d00f0, 0x040000f0, 0};
	struct process *process = *state;
	const struct guest_memory memory = {process, read_bytes, NULL};
	const uint64_t code[] = {BASE + LOOP, 0x1000};

	for (size_t i = 0; i < sizeof(versions) / sizeof(*versions); i++) {
		put(process, VERSION, versions[i]);
		assert_null(runtime_new(&memory, code, 2, process->stand_ins, &process->runtime));
		assert_null(process->runtime);
	}
}

static void files_of_any_contents_end_the_search(void **state)
{
	struct process *process = *state;
	const struct guest_memory memory = {process, read_bytes, NULL};
	const uint64_t code = BASE + LOOP;

	srand(1);
	for (unsigned round = 0; round < 2000; round++) {
		const unsigned at = (unsigned)rand() % 0x2000;

		process->bytes[at] = (uint8_t)rand();
		assert_null(runtime_new(&memory, &code, 1, process->stand_ins, &process->runtime));
		runtime_free(process->runtime);
		process->runtime = NULL;
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(functions_stand_in_place_of_the_loop_with_c_code_between),
		TEST(entries_of_3_12_are_frames_on_the_c_stack),
		TEST(a_loop_that_is_just_entered_stays),
		TEST(a_stack_whose_entries_return_elsewhere_stays),
		TEST(entries_return_at_one_distance_from_their_markers),
		TEST(entries_that_the_stack_lacks_leave_it_as_it_is),
		TEST(a_list_of_entries_that_disagrees_with_the_frames_stays_unread),
		TEST(a_thread_that_is_none_of_the_interpreters_has_its_c_stack),
		TEST(entries_are_proven_in_each_piece_of_a_stack),
		TEST(entries_in_a_piece_that_was_not_copied_are_not_proven),
		TEST(a_thread_has_no_more_pages_read_than_it_may),
		TEST(a_list_without_end_is_cut),
		TEST(versions_that_are_not_known_are_left_alone),
		TEST(files_of_any_contents_end_the_search),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
