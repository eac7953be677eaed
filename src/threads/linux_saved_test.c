/* SPDX-License-Identifier: BSD-3-Clause */
#include "threads/linux_testing.h"

#define STACK_OF(i) (START + 0x20000 + 0x4000 * (uint64_t)(i))

/* A thread that sleeps, with the registers that a switch has left on its stack. */
static struct guest_thread asleep(struct kernel *kernel, unsigned i)
{
	const uint64_t sp = STACK_OF(i) + 0x3e00;

	put_word(kernel, TASK(i) + layout.at[TASK_STACK], STACK_OF(i));
	put_word(kernel, TASK(i) + layout.saved.sp, sp);
	put_word(kernel, sp + layout.saved.fp, 0xf0);
	put_word(kernel, sp + layout.saved.pc, 0xffffffff81000010);
	return (struct guest_thread){.at = TASK(i), .pid = i, .tid = i, .start_ns = 1000ull * i};
}

static void a_thread_that_does_not_run_has_its_registers_on_its_stack(void **state)
{
	struct kernel *kernel = *state;
	struct guest_thread thread = asleep(kernel, 4);
	struct thread_saved saved;

	put_word(kernel, TASK(4) + layout.at[TASK_SWITCHES], 7);
	assert_true(threads_linux.saved(&layout, &kernel->memory, &thread, &saved));
	assert_true(saved.pc == 0xffffffff81000010 && saved.fp == 0xf0);
	assert_true(saved.sp == STACK_OF(4) + 0x3e00 + 56);
	assert_true(saved.stack_end == STACK_OF(4) + 0x4000);
	assert_string_equal(thread.name, "task-4");
	assert_int_equal(thread.switches, 7);
	assert_true(threads_linux.stands(&layout, &kernel->memory, &thread));
}

static void a_thread_that_has_run_meanwhile_does_not_stand(void **state)
{
	struct kernel *kernel = *state;
	struct guest_thread thread = asleep(kernel, 4);
	struct thread_saved saved;

	assert_true(threads_linux.saved(&layout, &kernel->memory, &thread, &saved));
	put_word(kernel, TASK(4) + layout.at[TASK_SWITCHES_FORCED], 1);
	assert_false(threads_linux.stands(&layout, &kernel->memory, &thread));
	put_word(kernel, TASK(4) + layout.at[TASK_SWITCHES_FORCED], 0);
	put(kernel, 4, TASK_ON_CPU, 1);
	assert_false(threads_linux.stands(&layout, &kernel->memory, &thread));
	assert_false(threads_linux.saved(&layout, &kernel->memory, &thread, &saved));
	put(kernel, 4, TASK_ON_CPU, 0);
	assert_true(threads_linux.stands(&layout, &kernel->memory, &thread));
	put_word(kernel, TASK(4) + layout.at[TASK_START], 5);
	assert_false(threads_linux.stands(&layout, &kernel->memory, &thread));
}

static void a_thread_that_is_another_or_has_ended_has_no_registers(void **state)
{
	struct kernel *kernel = *state;
	struct guest_thread thread = asleep(kernel, 4);
	struct thread_saved saved;

	put(kernel, 4, TASK_EXIT_STATE, 0x20);
	assert_false(threads_linux.saved(&layout, &kernel->memory, &thread, &saved));
	put(kernel, 4, TASK_EXIT_STATE, 0);
	put(kernel, 4, TASK_PID, 40);
	thread = asleep(kernel, 4);
	assert_false(threads_linux.saved(&layout, &kernel->memory, &thread, &saved));
}

static void a_stack_pointer_that_is_wild_is_none(void **state)
{
	const uint64_t wild[] = {0, STACK_OF(4) - 64, STACK_OF(4) + 0x4000, STACK_OF(4) + 0x3e01,
				 UINT64_MAX - 7};
	struct kernel *kernel = *state;
	struct guest_thread thread = asleep(kernel, 4);
	struct linux_threads blind = layout;
	struct thread_saved saved;

	for (size_t i = 0; i < sizeof(wild) / sizeof(*wild); i++) {
		put_word(kernel, TASK(4) + layout.saved.sp, wild[i]);
		assert_false(threads_linux.saved(&layout, &kernel->memory, &thread, &saved));
	}
	thread = asleep(kernel, 4);
	blind.saved.known = false;
	assert_false(threads_linux.saved(&blind, &kernel->memory, &thread, &saved));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(a_thread_that_does_not_run_has_its_registers_on_its_stack),
		TEST(a_thread_that_has_run_meanwhile_does_not_stand),
		TEST(a_thread_that_is_another_or_has_ended_has_no_registers),
		TEST(a_stack_pointer_that_is_wild_is_none),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
