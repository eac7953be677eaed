/* SPDX-License-Identifier: BSD-3-Clause */

/* Names of functions in a process that goes on after each stop. */

#include "runtime/python_testing.h"

static void an_object_that_is_another_one_now_has_its_name(void **state)
{
	struct process *process = *state;

	sample(process);
	check_frame(process, 1, "cart.Cart.key", 101);
	put_text(process, CODES + 0x600, "Cart.sum");
	put_stack(process);
	sample(process);
	check_frame(process, 1, "cart.Cart.sum", 101);
}

/* Samples so often that its functions are read in stops no more. */
static void sample_until_stable(struct process *process)
{
	for (unsigned i = 0; i < 5; i++) {
		put_stack(process);
		sample(process);
		check_frame(process, 1, "cart.Cart.key", 101);
	}
	put_stack(process);
}

static void a_function_that_is_another_one_after_the_stop_has_no_name(void **state)
{
	struct process *process = *state;

	stop_as(process, TID);
	put_text(process, CODES + 0x600, "Cart.sum");
	merge(process);
	check_untouched(process);
	sample(process);
	check_frame(process, 1, "cart.Cart.sum", 101);
}

static void a_function_that_is_met_again_and_then_is_another_one_has_no_name(void **state)
{
	struct process *process = *state;

	sample_until_stable(process);
	stop_as(process, TID);
	put_text(process, CODES + 0x600, "Cart.sum");
	merge(process);
	check_untouched(process);
	sample(process);
	check_frame(process, 1, "cart.Cart.sum", 101);
}

/* Three stops in a row may meet one of two by chance, and names be read when it has come back. */
static void functions_that_take_turns_at_an_address_have_their_own_names(void **state)
{
	struct process *process = *state;

	for (unsigned i = 0; i < 3; i++) {
		sample(process);
		check_frame(process, 1, "cart.Cart.key", 101);
		put_stack(process);
	}
	put_text(process, CODES + 0x600, "Cart.sum");
	stop_as(process, TID);
	put_text(process, CODES + 0x600, "Cart.key");
	merge(process);
	check_untouched(process);
}

static void a_function_is_another_one_by_each_of_its_parts(void **state)
{
	/* Bytes of its size, its first line, its file, its name (the last of 60) and its lines. */
	const uint64_t at[] = {16, 72, 0x400 + 48 + 3, 0x600 + 48 + 59, 0x800 + 32 + 8};
	struct process *process = *state;
	char name[61] = {0};

	memset(name, 'n', 60);
	put_text(process, CODES + 0x600, name);
	for (size_t i = 0; i < sizeof(at) / sizeof(*at); i++) {
		put_stack(process);
		stop_as(process, TID);
		process->bytes[CODES + at[i]]++;
		merge(process);
		assert_int_equal(process->frames[1].addr, loop_call);
		assert_int_equal(runtime_count(process->runtime).unproven, i + 1);
	}
}

static void a_function_that_was_known_in_the_stop_has_its_name_whatever_is_there_now(void **state)
{
	struct process *process = *state;

	sample(process);
	put_stack(process);
	stop_as(process, TID);
	put_text(process, CODES + 0x600, "Cart.sum");
	merge(process);
	check_frame(process, 1, "cart.Cart.key", 101);
}

static void functions_of_an_address_that_is_used_again_are_read_in_each_stop(void **state)
{
	struct process *process = *state;

	for (unsigned i = 0; i < 8; i++) {
		const char *names[] = {"Cart.key", "Cart.sum"};

		put_text(process, CODES + 0x600, names[i % 2]);
		put_stack(process);
		stop_as(process, TID);
		assert_true(process->copy.at[0].identity);
		put_text(process, CODES + 0x600, names[(i + 1) % 2]);
		merge(process);
		assert_int_equal(process->frames[1].addr, loop_call);
		put_text(process, CODES + 0x600, names[i % 2]);
		sample(process);
		check_frame(process, 1, i % 2 ? "cart.Cart.sum" : "cart.Cart.key", 101);
	}
}

static void functions_that_stay_make_no_stop_longer(void **state)
{
	struct process *process = *state;

	stop_as(process, TID);
	assert_int_equal(process->reads, 2 + 3);
	merge(process);
	sample_until_stable(process);
	stop_as(process, TID);
	/* The thread's state, and its frames. */
	assert_int_equal(process->reads, 2);
	assert_false(process->copy.at[0].identity);
}

static void a_stop_reads_so_many_functions_at_most(void **state)
{
	const unsigned n = RUNTIME_IDENTITIES_MAX + 6;
	struct process *process = *state;
	const struct frame innermost = process->frames[0];

	for (unsigned i = 0; i < n; i++)
		put_frame(process, i, put_code(process, i, "made", 1 + i), 0, i == n - 1,
			  i == n - 1);
	put_entry(process, STACK + 0x100, STACK + 0x500, 0, vector);
	for (unsigned i = 0; i < 8; i++) {
		put_stack(process);
		memmove(process->frames + 3, process->frames + 6, sizeof(innermost));
		process->stack.n = 4;
		process->stack.max = n + 4;
		stop_as(process, TID);
		assert_true(process->reads <= RUNTIME_IDENTITIES_MAX + n * 0x100 / 0x1000 + 3);
		merge(process);
	}
	assert_int_equal(runtime_count(process->runtime).unproven, 4);
	assert_int_equal(runtime_count(process->runtime).merged, 4);
	check_frame(process, n, "cart.made", n);
}

static void names_of_other_alphabets_are_told(void **state)
{
	struct process *process = *state;
	const uint16_t name[] = {0x0436, 0x00fc, 'x', 0xd800};

	put(process, CODES + 0x600 + 16, 4);
	put32(process, CODES + 0x600 + 32, 2 << 2 | 1 << 5);
	memcpy(process->bytes + CODES + 0x600 + 72, name, sizeof(name));
	sample(process);
	check_frame(process, 1, "cart.\xd0\xb6\xc3\xbcx?", 101);
}

static void objects_that_are_none_have_no_names(void **state)
{
	struct process *process = *state;
	/* Type and length of the name, of the table of lines, of the code; an address that is not there. */
	const uint64_t at[] = {CODES + 0x608, CODES + 0x810, CODES + 0x808, CODES + 8,
			       CODES + 16,    CODES + 128,   CODES + 136,   CODES + 112};

	for (size_t i = 0; i < sizeof(at) / sizeof(*at); i++) {
		runtime_free(process->runtime);
		process->runtime = NULL;
		put_threads(process);
		put_stack(process);
		put(process, at[i], UINT64_MAX - 100);
		sample(process);
		check_untouched(process);
	}
}

static void damaged_tables_and_lengths_are_bounded(void **state)
{
	struct process *process = *state;

	memset(process->bytes + CODES + 0x820, 0xff, 11);
	put(process, CODES + 0x610, UINT64_MAX);
	sample(process);
	assert_int_equal(runtime_count(process->runtime).merged, 1);
	assert_int_equal(process->frames[0].addr, c_code);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(an_object_that_is_another_one_now_has_its_name),
		TEST(a_function_that_is_another_one_after_the_stop_has_no_name),
		TEST(a_function_that_is_met_again_and_then_is_another_one_has_no_name),
		TEST(functions_that_take_turns_at_an_address_have_their_own_names),
		TEST(a_function_is_another_one_by_each_of_its_parts),
		TEST(a_function_that_was_known_in_the_stop_has_its_name_whatever_is_there_now),
		TEST(functions_of_an_address_that_is_used_again_are_read_in_each_stop),
		TEST(functions_that_stay_make_no_stop_longer),
		TEST(a_stop_reads_so_many_functions_at_most),
		TEST(names_of_other_alphabets_are_told),
		TEST(objects_that_are_none_have_no_names),
		TEST(damaged_tables_and_lengths_are_bounded),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
