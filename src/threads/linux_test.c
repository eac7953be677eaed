/* SPDX-License-Identifier: BSD-3-Clause */
#include "threads/linux_testing.h"

static const struct guest_thread *list(struct kernel *kernel)
{
	guest_thread_list_free(&kernel->list);
	assert_null(threads_linux.list(&layout, &kernel->memory, &kernel->list));
	return kernel->list.at;
}

static void assert_tids(const struct kernel *kernel, const char *tids)
{
	char text[1024] = "";

	for (size_t i = 0; i < kernel->list.n; i++)
		snprintf(text + strlen(text), sizeof(text) - strlen(text), "%s%u", i ? " " : "",
			 kernel->list.at[i].tid);
	assert_string_equal(text, tids);
}

#define ALL "1 2 3 4 5 20 21 6 7 8 9"

static void threads_stand_behind_their_leader(void **state)
{
	struct kernel *kernel = *state;
	const struct guest_thread *thread = list(kernel);

	assert_tids(kernel, ALL);
	assert_null(kernel->list.trouble);
	assert_int_equal(thread[5].pid, 5);
	assert_int_equal(thread[5].start_ns, 20000);
	assert_string_equal(thread[5].name, "task-20");
	assert_int_equal(thread[5].at, TASK(20));
}

static void states_are_those_of_proc(void **state)
{
	static const struct {
		uint32_t state, ended, on_cpu;
		enum guest_thread_state told;
	} known[] = {
		{0, 0, 1, THREAD_RUNNING},
		{0, 0, 0, THREAD_RUNNABLE},
		/* In Linux 7.2, the byte behind says something else. */
		{1, 0, 0x100, THREAD_SLEEPING},
		{1, 0, 0, THREAD_SLEEPING},
		{2, 0, 0, THREAD_DISK},
		{0x402, 0, 0, THREAD_IDLE},
		{0x2402, 0, 0, THREAD_IDLE},
		{4, 0, 0, THREAD_STOPPED},
		{8, 0, 0, THREAD_TRACED},
		{0x40, 0, 0, THREAD_PARKED},
		{0x80, 0x20, 1, THREAD_ZOMBIE},
		{0x80, 0x10, 0, THREAD_DEAD},
		{0x8000, 0, 0, THREAD_OTHER},
	};
	struct kernel *kernel = *state;

	for (size_t i = 0; i < sizeof(known) / sizeof(*known); i++) {
		put(kernel, 1, TASK_STATE, known[i].state);
		put(kernel, 1, TASK_EXIT_STATE, known[i].ended);
		put(kernel, 1, TASK_ON_CPU, known[i].on_cpu);
		assert_string_equal(guest_thread_state_name(list(kernel)->state),
				    guest_thread_state_name(known[i].told));
	}
}

static void threads_of_the_kernel_are_told_apart(void **state)
{
	struct kernel *kernel = *state;

	put(kernel, 2, TASK_FLAGS, 0x00208040);
	assert_false(list(kernel)[0].kernel);
	assert_true(kernel->list.at[1].kernel);
}

static void a_name_without_an_end_is_cut(void **state)
{
	struct kernel *kernel = *state;

	memset(kernel->bytes + (TASK(1) - START) + layout.at[TASK_COMM], 'x', 64);
	assert_string_equal(list(kernel)->name, "xxxxxxxxxxxxxxxx");
}

static void each_cpu_has_its_thread(void **state)
{
	struct kernel *kernel = *state;
	struct guest_thread thread;

	assert_int_equal(threads_linux.cpus(&layout, &kernel->memory), CPUS);
	assert_true(threads_linux.running(&layout, &kernel->memory, 0, &thread));
	assert_int_equal(thread.tid, 5);
	assert_int_equal(thread.state, THREAD_RUNNING);
	assert_false(thread.idle);
	assert_true(threads_linux.running(&layout, &kernel->memory, 1, &thread));
	assert_true(thread.idle);
	assert_int_equal(thread.cpu, 1);
}

static void a_cpu_that_is_off_line_has_none(void **state)
{
	struct kernel *kernel = *state;
	struct guest_thread thread;

	put_word(kernel, layout.online, 1);
	assert_false(threads_linux.running(&layout, &kernel->memory, 1, &thread));
	assert_false(threads_linux.running(&layout, &kernel->memory, UINT32_MAX, &thread));
}

static void no_number_of_cpus_is_believed(void **state)
{
	struct kernel *kernel = *state;

	put_word(kernel, layout.cpus, UINT32_MAX);
	assert_int_equal(threads_linux.cpus(&layout, &kernel->memory), GUEST_THREADS_CPUS_MAX);
}

/* What a target would copy for CPU `i`. */
static struct thread_copy copy_of(struct kernel *kernel, unsigned i)
{
	struct thread_copy copy = {.there = true,
				   .own = CPU(i),
				   .at = get_word(kernel, CPU(i) + CURRENT)};
	struct thread_request asked;

	assert_true(threads_linux.request(&layout, &asked));
	assert_int_equal(asked.pointer, CURRENT);
	for (unsigned k = 0; k < THREAD_PIECES; k++)
		memcpy(copy.piece[k], kernel->bytes + (copy.at - START) + asked.at[k],
		       THREAD_PIECE);
	return copy;
}

static void a_copy_tells_the_thread(void **state)
{
	struct kernel *kernel = *state;
	struct guest_thread thread;
	struct thread_copy copy;

	put(kernel, 20, TASK_FLAGS, 0x00208040);
	put_word(kernel, CPU(0) + CURRENT, TASK(20));
	copy = copy_of(kernel, 0);
	/* The task ends, and another one is in its place. */
	put(kernel, 20, TASK_PID, 40);
	memset(kernel->bytes + (TASK(20) - START) + layout.at[TASK_COMM], 'x', 16);
	assert_true(threads_linux.decode(&copy, &thread));
	assert_int_equal(thread.tid, 20);
	assert_int_equal(thread.pid, 5);
	assert_int_equal(thread.start_ns, 20000);
	assert_int_equal(thread.at, TASK(20));
	assert_string_equal(thread.name, "task-20");
	assert_false(thread.idle);
	copy = copy_of(kernel, 1);
	assert_true(threads_linux.decode(&copy, &thread));
	assert_true(thread.idle);
}

static void a_copy_that_is_no_thread_is_refused(void **state)
{
	struct kernel *kernel = *state;
	struct thread_copy copy = copy_of(kernel, 0);
	struct guest_thread thread;

	copy.at = 0x7fffffff0000;
	assert_false(threads_linux.decode(&copy, &thread));
	copy.at = TASK(5) + 1;
	assert_false(threads_linux.decode(&copy, &thread));
	put(kernel, 5, TASK_PID, 1u << 31);
	copy = copy_of(kernel, 0);
	assert_false(threads_linux.decode(&copy, &thread));
}

static void nothing_is_asked_of_a_kernel_that_does_not_tell_which_task_runs(void **state)
{
	struct linux_threads blind = layout;
	struct thread_request asked;

	assert_true(threads_linux.request(&blind, &asked));
	blind.current = 0;
	assert_false(threads_linux.request(&blind, &asked));
}

static void a_cpus_own_data_are_known(void **state)
{
	struct kernel *kernel = *state;

	assert_true(threads_linux.is_cpu(&layout, &kernel->memory, CPU(0)));
	assert_true(threads_linux.is_cpu(&layout, &kernel->memory, CPU(1)));
	assert_false(threads_linux.is_cpu(&layout, &kernel->memory, CPU(2)));
	assert_false(threads_linux.is_cpu(&layout, &kernel->memory, UINT64_MAX));
	put_word(kernel, layout.online, 1);
	assert_false(threads_linux.is_cpu(&layout, &kernel->memory, CPU(1)));
	put_word(kernel, layout.cpus, UINT32_MAX);
	assert_false(threads_linux.is_cpu(&layout, &kernel->memory, UINT64_MAX));
	assert_true(kernel->reads < 2 * GUEST_THREADS_CPUS_MAX);
}

static void details_of_a_thread_are_its_own_and_its_leader_s(void **state)
{
	static const uint64_t wild[] = {
		0, 8, 0x7fffffff0000, START + SIZE, START + 1, UINT64_MAX - 7};
	struct kernel *kernel = *state;
	struct thread_details details = {0};
	const struct guest_thread thread = {.at = TASK(20), .pid = 5, .tid = 20, .start_ns = 20000};

	put(kernel, 20, TASK_FLAGS, 0x00208040);
	put_word(kernel, TASK(20) + layout.at[TASK_STACK], 0xffffc90000010000);
	assert_true(threads_linux.details(&layout, &kernel->memory, &thread, &details));
	assert_string_equal(details.process, "task-5");
	assert_true(details.kernel);
	assert_true(details.stack == 0xffffc90000010000);
	assert_int_equal(details.stack_size, 16384);
	/* The leader has ended, and another task is in its place; or the way to it is wild. */
	details = (struct thread_details){.process = "as it was"};
	put(kernel, 5, TASK_PID, 40);
	assert_true(threads_linux.details(&layout, &kernel->memory, &thread, &details));
	assert_string_equal(details.process, "as it was");
	for (size_t i = 0; i < sizeof(wild) / sizeof(*wild); i++) {
		put_word(kernel, TASK(20) + layout.at[TASK_LEADER], wild[i]);
		assert_true(threads_linux.details(&layout, &kernel->memory, &thread, &details));
		assert_string_equal(details.process, "as it was");
	}
	/* The thread has ended, and its place or even its number are another one's. */
	put_word(kernel, TASK(20) + layout.at[TASK_START], 1);
	assert_false(threads_linux.details(&layout, &kernel->memory, &thread, &details));
	put(kernel, 20, TASK_PID, 40);
	assert_false(threads_linux.details(&layout, &kernel->memory, &thread, &details));
}

/* The lists of a lying guest are never walked for long. */
static void assert_bounded(struct kernel *kernel)
{
	list(kernel);
	assert_non_null(kernel->list.trouble);
	assert_true(kernel->reads < 10000);
}

static void a_loop_without_its_head_ends(void **state)
{
	struct kernel *kernel = *state;

	put_word(kernel, TASK(7) + layout.at[TASK_TASKS], TASK(3) + layout.at[TASK_TASKS]);
	assert_bounded(kernel);
	assert_tids(kernel, "1 2 3 4 5 20 21 6 7");
}

static void a_loop_of_threads_ends(void **state)
{
	struct kernel *kernel = *state;

	put_word(kernel, TASK(21) + layout.at[TASK_THREAD_NODE],
		 TASK(20) + layout.at[TASK_THREAD_NODE]);
	assert_bounded(kernel);
	assert_tids(kernel, "1 2 3 4 5 20 21");
}

static void wild_pointers_lead_nowhere(void **state)
{
	static const uint64_t wild[] = {0,	   8,	       0x7fffffff0000, START + SIZE,
					START + 1, UINT64_MAX, UINT64_MAX - 7};
	struct kernel *kernel = *state;

	for (size_t i = 0; i < sizeof(wild) / sizeof(*wild); i++) {
		kernel->reads = 0;
		put_word(kernel, TASK(3) + layout.at[TASK_TASKS], wild[i]);
		assert_bounded(kernel);
		assert_tids(kernel, "1 2 3");
	}
}

static void wild_signals_lead_nowhere(void **state)
{
	struct kernel *kernel = *state;

	put_word(kernel, TASK(3) + layout.at[TASK_SIGNAL], UINT64_MAX - 3);
	assert_bounded(kernel);
	assert_tids(kernel, "1 2");
}

static void threads_of_another_process_are_none(void **state)
{
	struct kernel *kernel = *state;

	put(kernel, 20, TASK_TGID, 6);
	assert_bounded(kernel);
	assert_tids(kernel, "1 2 3 4 5");
}

/* Once the walk has come to the last task, that one leads to itself, both ways. */
static void grow(struct kernel *kernel, uint64_t va)
{
	const uint64_t node = TASK(9) + layout.at[TASK_TASKS];

	if (va != node)
		return;
	put_word(kernel, node, node);
	put_word(kernel, node + 8, node);
}

static void a_list_without_end_ends(void **state)
{
	struct kernel *kernel = *state;

	kernel->runs = grow;
	list(kernel);
	assert_non_null(kernel->list.trouble);
	assert_int_equal(kernel->list.n, GUEST_THREADS_MAX);
}

static void a_budget_ends_a_walk(void **state)
{
	struct kernel *kernel = *state;

	kernel->runs = grow;
	kernel->budget.left = 1000 * GUEST_MEMORY_PAGE_STEPS;
	list(kernel);
	assert_non_null(kernel->list.trouble);
	assert_in_range(kernel->reads, 1, 1000);
}

/* A task that has ended when it is read for the second time, and is another's now. */
static void reuse(struct kernel *kernel, uint64_t va)
{
	if (va != TASK(4) || ++kernel->changes != 2)
		return;
	put(kernel, 4, TASK_PID, 40);
	put(kernel, 4, TASK_TGID, 40);
}

static void a_task_that_is_used_again_is_read_again(void **state)
{
	struct kernel *kernel = *state;
	const struct guest_thread *thread;

	kernel->runs = reuse;
	thread = list(kernel);
	assert_null(kernel->list.trouble);
	assert_int_equal(thread[3].tid, 40);
	assert_int_equal(thread[3].pid, 40);
}

/* A task that is another one each time. */
static void change(struct kernel *kernel, uint64_t va)
{
	if (va == TASK(4))
		put_word(kernel, TASK(4) + layout.at[TASK_START], ++kernel->changes);
}

static void a_task_that_never_stands_still_is_none(void **state)
{
	struct kernel *kernel = *state;

	kernel->runs = change;
	assert_bounded(kernel);
	assert_tids(kernel, "1 2 3");
}

/* A task that ends while the walk stands on it: it leads on, but nothing leads back to it. */
static void end_task(struct kernel *kernel, uint64_t va)
{
	const uint64_t node = TASK(4) + layout.at[TASK_TASKS];
	const uint64_t next = TASK(5) + layout.at[TASK_TASKS],
		       last = TASK(3) + layout.at[TASK_TASKS];

	if (va != node || kernel->changes++)
		return;
	put_word(kernel, last, next);
	put_word(kernel, next + 8, last);
}

static void a_task_that_ends_under_the_walk_begins_another(void **state)
{
	struct kernel *kernel = *state;

	kernel->runs = end_task;
	list(kernel);
	assert_null(kernel->list.trouble);
	assert_tids(kernel, "1 2 3 5 20 21 6 7 8 9");
}

/* Memory that holds no kernel at all. */
static void what_is_no_linux_says_nothing(void **state)
{
	struct kernel *kernel = *state;
	const struct regs regs = {.word = 8, .isa = ISA_X86, .pc = 0xffffffff81000000};
	const struct regs other = {.word = 8, .isa = ISA_RISCV};
	struct guest_threads *threads;

	assert_null(guest_threads_open(&kernel->memory, &regs, NULL, &threads));
	assert_null(threads);
	assert_null(guest_threads_open(&kernel->memory, &other, NULL, &threads));
	assert_null(threads);
}

static void code_that_changes_the_stack_before_the_task_is_known(void **state)
{
	assert_true(threads_linux.switches(&layout, 0x1000));
	assert_true(threads_linux.switches(&layout, 0x20ff));
	assert_false(threads_linux.switches(&layout, 0xfff));
	assert_false(threads_linux.switches(&layout, 0x1020));
	assert_false(threads_linux.switches(&(struct linux_threads){0}, 0));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(threads_stand_behind_their_leader),
		TEST(states_are_those_of_proc),
		TEST(threads_of_the_kernel_are_told_apart),
		TEST(a_name_without_an_end_is_cut),
		TEST(each_cpu_has_its_thread),
		TEST(a_cpu_that_is_off_line_has_none),
		TEST(no_number_of_cpus_is_believed),
		TEST(a_copy_tells_the_thread),
		TEST(a_copy_that_is_no_thread_is_refused),
		TEST(nothing_is_asked_of_a_kernel_that_does_not_tell_which_task_runs),
		TEST(a_cpus_own_data_are_known),
		TEST(details_of_a_thread_are_its_own_and_its_leader_s),
		TEST(a_loop_without_its_head_ends),
		TEST(a_loop_of_threads_ends),
		TEST(wild_pointers_lead_nowhere),
		TEST(wild_signals_lead_nowhere),
		TEST(threads_of_another_process_are_none),
		TEST(a_list_without_end_ends),
		TEST(a_budget_ends_a_walk),
		TEST(a_task_that_is_used_again_is_read_again),
		TEST(a_task_that_never_stands_still_is_none),
		TEST(a_task_that_ends_under_the_walk_begins_another),
		TEST(what_is_no_linux_says_nothing),
		TEST(code_that_changes_the_stack_before_the_task_is_known),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
