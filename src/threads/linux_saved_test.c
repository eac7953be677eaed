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

#define MM	      0xffff888000020000ull
#define PT_REGS(word) (STACK_OF(4) + 0x4000 - 168 + 8 * (word))

/* Puts the registers of a program at the top of the kernel's stack: each its own word, but for these. */
static void enter_kernel(struct kernel *kernel, uint64_t ip, uint64_t cs, uint64_t sp)
{
	for (uint64_t word = 0; word < 21; word++)
		put_word(kernel, PT_REGS(word), 0x100 + word);
	put_word(kernel, PT_REGS(16), ip);
	put_word(kernel, PT_REGS(17), cs);
	put_word(kernel, PT_REGS(19), sp);
	put_word(kernel, TASK(4) + layout.saved.mm, MM);
	put_word(kernel, MM + layout.saved.pgd, 0xffff888012345000);
}

static void a_program_has_its_registers_at_the_top_of_the_kernels_stack(void **state)
{
	struct kernel *kernel = *state;
	struct guest_thread thread = asleep(kernel, 4);
	struct thread_saved saved;

	enter_kernel(kernel, 0x401103, 0x33, 0x7ffc1000);
	assert_true(threads_linux.saved(&layout, &kernel->memory, &thread, &saved));
	assert_true(saved.tables == 0xffff888012345000);
	assert_true(saved.program.pc == 0x401103 && saved.program.sp == 0x7ffc1000);
	assert_true(saved.program.user && saved.program.word == 8);
	/* Registers by DWARF's numbers: rax, rbx, rbp, rsp, r15. */
	assert_int_equal(saved.program.fp, 0x104);
	assert_int_equal(saved.program.gp[0], 0x10a);
	assert_int_equal(saved.program.gp[3], 0x105);
	assert_int_equal(saved.program.gp[6], 0x104);
	assert_int_equal(saved.program.gp[7], 0x7ffc1000);
	assert_int_equal(saved.program.gp[15], 0x100);
	assert_int_equal(saved.program.gp_valid, 0xffff);
	enter_kernel(kernel, 0x8049000, 0x23, 0xffffd000);
	assert_true(threads_linux.saved(&layout, &kernel->memory, &thread, &saved));
	assert_int_equal(saved.program.word, 4);
	assert_int_equal(saved.program.gp_valid, 0);
}

/* On arm64: struct cpu_context is in the task, and struct pt_regs has more behind what programs have. */
static void a_program_on_arm64_has_its_registers_there_too(void **state)
{
	struct kernel *kernel = *state;
	struct guest_thread thread = asleep(kernel, 4);
	const uint64_t at = STACK_OF(4) + 0x4000 - 336;
	struct linux_threads arm64 = layout;
	struct thread_saved saved;

	arm64.saved.framed = false;
	arm64.saved.fp = 168;
	arm64.saved.pc = 176;
	arm64.saved.entered = 336;
	for (uint64_t word = 0; word < 42; word++)
		put_word(kernel, at + 8 * word, 0x100 + word);
	put_word(kernel, at + 8 * 33, 0x60000000);
	put_word(kernel, TASK(4) + 168, 0xf0);
	put_word(kernel, TASK(4) + 176, 0xffff800008011234);
	put_word(kernel, TASK(4) + layout.saved.mm, MM);
	put_word(kernel, MM + layout.saved.pgd, 0xffff888012345000);
	assert_true(threads_linux.saved(&arm64, &kernel->memory, &thread, &saved));
	assert_true(saved.pc == 0xffff800008011234 && saved.fp == 0xf0);
	assert_true(saved.tables == 0xffff888012345000);
	assert_true(saved.program.isa == ISA_ARM && saved.program.user);
	assert_int_equal(saved.program.gp[0], 0x100);
	assert_int_equal(saved.program.fp, 0x11d);
	assert_int_equal(saved.program.gp[30], 0x11e);
	assert_int_equal(saved.program.sp, 0x11f);
	assert_int_equal(saved.program.pc, 0x120);
	/* A program of 32 bits, and the kernel. */
	put_word(kernel, at + 8 * 33, 0x10);
	assert_true(threads_linux.saved(&arm64, &kernel->memory, &thread, &saved));
	assert_true(saved.tables == 0);
	put_word(kernel, at + 8 * 33, 5);
	assert_true(threads_linux.saved(&arm64, &kernel->memory, &thread, &saved));
	assert_true(saved.tables == 0);
}

static void what_is_no_programs_is_not_taken_for_it(void **state)
{
	struct kernel *kernel = *state;
	struct guest_thread thread = asleep(kernel, 4);
	struct linux_threads blind = layout;
	struct thread_saved saved;

	/* Code of the kernel, and addresses of its own. */
	enter_kernel(kernel, 0x401103, 0x10, 0x7ffc1000);
	assert_true(threads_linux.saved(&layout, &kernel->memory, &thread, &saved));
	assert_true(saved.tables == 0);
	enter_kernel(kernel, UINT64_MAX, 0x33, 0x7ffc1000);
	assert_true(threads_linux.saved(&layout, &kernel->memory, &thread, &saved));
	assert_true(saved.tables == 0);
	/* An address space that has ended; one whose tables are nowhere. */
	enter_kernel(kernel, 0x401103, 0x33, 0x7ffc1000);
	put_word(kernel, TASK(4) + layout.saved.mm, 0);
	assert_true(threads_linux.saved(&layout, &kernel->memory, &thread, &saved));
	assert_true(saved.tables == 0);
	enter_kernel(kernel, 0x401103, 0x33, 0x7ffc1000);
	put_word(kernel, MM + layout.saved.pgd, 0x1001);
	assert_true(threads_linux.saved(&layout, &kernel->memory, &thread, &saved));
	assert_true(saved.tables == 0);
	/* A thread of the kernel that uses a program's memory. */
	enter_kernel(kernel, 0x401103, 0x33, 0x7ffc1000);
	put(kernel, 4, TASK_FLAGS, 0x00200000);
	assert_true(threads_linux.saved(&layout, &kernel->memory, &thread, &saved));
	assert_true(saved.tables == 0);
	put(kernel, 4, TASK_FLAGS, 0);
	blind.saved.entered = 0;
	assert_true(threads_linux.saved(&blind, &kernel->memory, &thread, &saved));
	assert_true(saved.tables == 0);
}

/* Goes on through a whole turn; returns how many threads there were, by their numbers in `tids`. */
static size_t turn_of(struct kernel *kernel, uint32_t *tids, size_t most)
{
	struct guest_thread thread = {0};
	size_t n = 0;

	while (n < most && threads_linux.next(&layout, &kernel->memory, &thread) == TURN_THREAD)
		tids[n++] = thread.tid;
	return n;
}

static void all_threads_come_by_turns(void **state)
{
	static const uint32_t all[] = {1, 2, 3, 4, 5, 20, 21, 6, 7, 8, 9};
	struct kernel *kernel = *state;
	struct guest_thread thread = {0};
	uint32_t tids[64];

	assert_int_equal(turn_of(kernel, tids, 64), sizeof(all) / sizeof(*all));
	assert_memory_equal(tids, all, sizeof(all));
	for (unsigned i = 0; i < sizeof(all) / sizeof(*all); i++)
		threads_linux.next(&layout, &kernel->memory, &thread);
	assert_string_equal(thread.name, "task-9");
	/* A process that was added meanwhile comes, too. */
	put_task(kernel, 30, 30);
	assert_int_equal(threads_linux.next(&layout, &kernel->memory, &thread), TURN_THREAD);
	assert_int_equal(thread.tid, 30);
	assert_int_equal(threads_linux.next(&layout, &kernel->memory, &thread), TURN_END);
}

static void nothing_is_behind_a_thread_that_has_ended(void **state)
{
	struct kernel *kernel = *state;
	const struct guest_thread four = {.at = TASK(4), .pid = 4, .tid = 4, .start_ns = 4000};
	struct guest_thread thread = four;

	/* Its place is another's. */
	put_word(kernel, TASK(4) + layout.at[TASK_START], 4001);
	assert_int_equal(threads_linux.next(&layout, &kernel->memory, &thread), TURN_LOST);
	/* It is on no list any more, but its links are still there. */
	put_word(kernel, TASK(4) + layout.at[TASK_START], 4000);
	put_word(kernel, TASK(3) + layout.at[TASK_TASKS], TASK(5) + layout.at[TASK_TASKS]);
	put_word(kernel, TASK(5) + layout.at[TASK_TASKS] + 8, TASK(3) + layout.at[TASK_TASKS]);
	thread = four;
	assert_int_equal(threads_linux.next(&layout, &kernel->memory, &thread), TURN_LOST);
	/* Those before it do not lead to it. */
	thread = (struct guest_thread){.at = TASK(3), .pid = 3, .tid = 3, .start_ns = 3000};
	assert_int_equal(threads_linux.next(&layout, &kernel->memory, &thread), TURN_THREAD);
	assert_int_equal(thread.tid, 5);
}

static void a_turn_through_lists_that_lie_costs_no_more(void **state)
{
	const uint64_t wild[] = {0, 8, TASK(3) + 1, START + SIZE, UINT64_MAX - 7, GLOBALS, TASK(3)};
	struct guest_thread thread = {.at = TASK(8), .pid = 8, .tid = 8, .start_ns = 8000};
	struct kernel *kernel = *state;
	uint32_t tids[64];

	for (size_t i = 0; i < sizeof(wild) / sizeof(*wild); i++) {
		put_word(kernel, TASK(3) + layout.at[TASK_TASKS], wild[i]);
		kernel->reads = 0;
		assert_in_range(turn_of(kernel, tids, 64), 3, 4);
		assert_true(kernel->reads < 200);
	}
	/* A loop without its head never ends, but each thread is read for the same. */
	put_word(kernel, TASK(9) + layout.at[TASK_TASKS], TASK(7) + layout.at[TASK_TASKS]);
	put_word(kernel, TASK(7) + layout.at[TASK_TASKS] + 8, TASK(9) + layout.at[TASK_TASKS]);
	kernel->reads = 0;
	for (unsigned i = 0; i < 100; i++)
		assert_int_equal(threads_linux.next(&layout, &kernel->memory, &thread),
				 TURN_THREAD);
	assert_in_range(thread.tid, 7, 9);
	assert_true(kernel->reads < 100 * 20);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(a_thread_that_does_not_run_has_its_registers_on_its_stack),
		TEST(a_thread_that_has_run_meanwhile_does_not_stand),
		TEST(a_thread_that_is_another_or_has_ended_has_no_registers),
		TEST(a_stack_pointer_that_is_wild_is_none),
		TEST(a_program_has_its_registers_at_the_top_of_the_kernels_stack),
		TEST(a_program_on_arm64_has_its_registers_there_too),
		TEST(what_is_no_programs_is_not_taken_for_it),
		TEST(all_threads_come_by_turns),
		TEST(nothing_is_behind_a_thread_that_has_ended),
		TEST(a_turn_through_lists_that_lie_costs_no_more),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
