/* SPDX-License-Identifier: BSD-3-Clause */
#include "symbol/names/table.h"
#include "threads/freertos_testing.h"

static bool is_saved(struct guest *guest, unsigned i, struct thread_saved *saved)
{
	struct guest_thread thread;

	list(guest);
	if (!find(guest, i))
		return false;
	thread = *find(guest, i);
	return threads_freertos.saved(guest->threads, &guest->memory, &thread, saved);
}

static void all_tasks_but_idle_ones_are_listed_with_their_names_and_states(void **state)
{
	static const struct {
		const char *name;
		enum guest_thread_state state;
	} known[] = {
		[RUNS] = {"runs", THREAD_RUNNING},	[READIES] = {"readies", THREAD_RUNNABLE},
		[SLEEPS] = {"sleeps", THREAD_SLEEPING}, [WAITS] = {"waits", THREAD_SLEEPING},
		[STOPS] = {"stops", THREAD_STOPPED},	[LISTENS] = {"listens", THREAD_SLEEPING},
		[ENDS] = {"ends", THREAD_DEAD}};
	struct guest *guest = *state;

	list(guest);
	assert_null(guest->list.trouble);
	assert_int_equal(guest->list.n, TASKS - 1);
	for (unsigned i = 0; i < IDLES; i++) {
		const struct guest_thread *thread = find(guest, i);

		assert_non_null(thread);
		assert_string_equal(thread->name, known[i].name);
		assert_int_equal(thread->state, known[i].state);
		assert_true(thread->tid == NUMBER(i) && thread->pid == RECORDED_ID_UNKNOWN);
		assert_int_equal(thread->cpu, i == RUNS ? 0 : -1);
	}
}

static void a_task_that_is_woken_while_the_scheduler_stands_waits_for_a_cpu(void **state)
{
	struct guest *guest = *state;

	take_out(guest, event_item(WAITS));
	append(guest, LIST(TASKS_PENDING), event_item(WAITS));
	assert_int_equal(state_of(guest, WAITS), THREAD_RUNNABLE);
	assert_null(guest->list.trouble);
	assert_int_equal(guest->list.n, TASKS - 1);
}

static void a_task_sleeps_in_either_list_of_those_that_time_wakes(void **state)
{
	struct guest *guest = *state;

	put(guest, VARIABLE(TASKS_DELAYED), LIST(TASKS_OVERFLOW));
	put(guest, VARIABLE(TASKS_OVERFLOW), LIST(TASKS_DELAYED));
	assert_int_equal(state_of(guest, SLEEPS), THREAD_SLEEPING);
	assert_null(guest->list.trouble);
}

static void without_types_nobody_says_why_a_task_is_suspended(void **state)
{
	struct guest *guest = *state;

	guest->file.threads.typed = 0;
	guest->file.threads.at[MEMBER_NOTIFIED] = guest->file.threads.at[MEMBER_NOTIFICATION] = 0;
	open_guest(guest);
	assert_int_equal(state_of(guest, STOPS), THREAD_OTHER);
	assert_int_equal(state_of(guest, LISTENS), THREAD_OTHER);
	assert_int_equal(state_of(guest, WAITS), THREAD_SLEEPING);
}

static void a_task_that_has_no_number_is_told_by_its_address(void **state)
{
	struct guest *guest = *state;

	guest->file.threads.at[MEMBER_NUMBER] = 0;
	open_guest(guest);
	list(guest);
	assert_int_equal(find(guest, SLEEPS)->tid, TASK(SLEEPS) / THREAD_NUMBER_UNIT);
}

static void idle_tasks_are_told_by_the_handle_or_else_by_the_name(void **state)
{
	struct guest *guest = *state;
	struct guest_thread thread;

	put(guest, CURRENT, TASK(IDLES));
	assert_true(threads_freertos.running(guest->threads, &guest->memory, 0, &thread));
	assert_true(thread.idle);
	put(guest, VARIABLE(TASKS_IDLE), TASK(SLEEPS));
	list(guest);
	assert_null(find(guest, SLEEPS));
	guest->file.threads.variables[TASKS_IDLE] = 0;
	open_guest(guest);
	list(guest);
	assert_true(find(guest, SLEEPS) && !find(guest, IDLES));
}

static void all_have_their_turns(void **state)
{
	struct guest *guest = *state;
	struct guest_thread thread = {0};

	for (unsigned i = 0; i < IDLES; i++) {
		assert_int_equal(threads_freertos.next(guest->threads, &guest->memory, &thread),
				 TURN_THREAD);
		assert_true(thread.at == TASK(i));
		/* Wherever it stands, it hides none of the others. */
		if (i != RUNS && i != WAITS)
			move_to(guest, i, i % 2 ? READY(2) : LIST(TASKS_OVERFLOW));
	}
	assert_int_equal(threads_freertos.next(guest->threads, &guest->memory, &thread), TURN_END);
}

static void a_task_that_does_not_run_has_all_its_registers(void **state)
{
	struct guest *guest = *state;
	struct thread_saved saved;

	assert_true(is_saved(guest, SLEEPS, &saved));
	assert_true(saved.pc == RESUMES && saved.sp == SP(SLEEPS) && saved.stack_end > saved.sp);
	assert_true(saved.fp == 0x100 * SLEEPS + 29 && saved.gp_valid == UINT32_MAX);
	for (unsigned n = 0; n < 30; n++)
		assert_true(saved.gp[n] == 0x100 * SLEEPS + n);
	assert_true(saved.gp[30] == RESUMES + 0x30 && saved.gp[31] == saved.sp && !saved.tables);
	assert_false(is_saved(guest, RUNS, &saved));
	assert_false(is_saved(guest, ENDS, &saved));
}

static void registers_of_floating_point_lie_before_the_others(void **state)
{
	struct guest *guest = *state;
	struct thread_saved saved;
	uint8_t *at = guest->bytes + (TOP(SLEEPS) + 16 - START);

	memmove(at + 512, at, 34 * 8);
	memset(at, 0xff, 512);
	put(guest, TOP(SLEEPS), 1);
	assert_true(is_saved(guest, SLEEPS, &saved));
	assert_true(saved.pc == RESUMES && saved.sp == SP(SLEEPS) + 512);
	/* The port writes no other number than 0 and 1. */
	memmove(at + 1024, at + 512, 34 * 8);
	put(guest, TOP(SLEEPS), 2);
	assert_false(is_saved(guest, SLEEPS, &saved));
}

static void saved_registers_that_make_no_sense_are_none(void **state)
{
	struct guest *guest = *state;
	struct thread_saved saved;
	static const uint64_t wild[] = {
		0, 8, TOP(SLEEPS) + 8, STACK(SLEEPS) - 16, START + SIZE - 16, UINT64_MAX - 15};

	for (size_t i = 0; i < sizeof(wild) / sizeof(*wild); i++) {
		put_member(guest, TASK(SLEEPS), MEMBER_SP, wild[i]);
		assert_false(is_saved(guest, SLEEPS, &saved));
	}
	put_member(guest, TASK(SLEEPS), MEMBER_SP, TOP(SLEEPS));
	assert_true(is_saved(guest, SLEEPS, &saved));
	put(guest, TOP(SLEEPS) + 16, CODE - 4);
	assert_false(is_saved(guest, SLEEPS, &saved));
	put(guest, TOP(SLEEPS) + 16, RESUMES);
	/* A state in which the stack is another one, and one of 32 bits. */
	put(guest, TOP(SLEEPS) + 24, 0x5);
	assert_false(is_saved(guest, SLEEPS, &saved));
	put(guest, TOP(SLEEPS) + 24, 0x10);
	assert_false(is_saved(guest, SLEEPS, &saved));
}

static bool stands(struct guest *guest, const struct guest_thread *thread)
{
	return threads_freertos.stands(guest->threads, &guest->memory, thread);
}

static void a_task_that_has_run_does_not_stand(void **state)
{
	struct guest *guest = *state;
	struct guest_thread thread;

	list(guest);
	thread = *find(guest, SLEEPS);
	assert_true(stands(guest, &thread));
	/* Back at the same place, by another way; or asleep anew. */
	put(guest, SP(SLEEPS) + 0x20, 0x1234);
	assert_false(stands(guest, &thread));
	put(guest, SP(SLEEPS) + 0x20, 0);
	put(guest, state_item(SLEEPS), 5);
	assert_false(stands(guest, &thread));
	put(guest, state_item(SLEEPS), 0);
	assert_true(stands(guest, &thread));
	put(guest, CURRENT, TASK(SLEEPS));
	assert_false(stands(guest, &thread));
}

static void what_lies_behind_a_stack_moves_no_task(void **state)
{
	struct guest *guest = *state;
	struct guest_thread thread;

	list(guest);
	thread = *find(guest, SLEEPS);
	put(guest, SP(SLEEPS) + 0x60, 0x1234);
	assert_true(stands(guest, &thread));
	/* Neighbours in its list come and go. */
	move_to(guest, READIES, LIST(TASKS_DELAYED));
	assert_true(stands(guest, &thread));
}

static void another_task_in_the_same_memory_is_not_this_one(void **state)
{
	struct guest *guest = *state;
	struct guest_thread thread;
	struct thread_saved saved;

	list(guest);
	thread = *find(guest, SLEEPS);
	put_member(guest, TASK(SLEEPS), MEMBER_NUMBER, 7);
	assert_false(stands(guest, &thread));
	assert_false(threads_freertos.saved(guest->threads, &guest->memory, &thread, &saved));
}

/* Lists that no honest guest has: each is told, and comes to an end. */
static void expect_trouble(struct guest *guest)
{
	struct guest_thread thread = {0};

	guest->reads = 0;
	list(guest);
	assert_non_null(guest->list.trouble);
	assert_true(guest->reads < 1000000);
	for (unsigned i = 0; i <= TASKS; i++)
		if (threads_freertos.next(guest->threads, &guest->memory, &thread) != TURN_THREAD)
			return;
	fail();
}

static void lists_that_loop_or_lead_nowhere_come_to_an_end(void **state)
{
	struct guest *guest = *state;
	static const uint64_t links[] = {TASK(STOPS) + 8,
					 TASK(WAITS) + 8,
					 TASK(RUNS) + 8,
					 TASK(LISTENS) + 9,
					 8,
					 UINT64_MAX - 7,
					 START + SIZE - 8,
					 0};
	const uint64_t at = state_item(STOPS) + 8, right = get(guest, at);

	for (size_t i = 0; i < sizeof(links) / sizeof(*links); i++) {
		put(guest, at, links[i]);
		expect_trouble(guest);
	}
	put(guest, at, right);
	put(guest, state_item(STOPS) + ITEM_LIST, LIST(TASKS_ENDED));
	expect_trouble(guest);
	put(guest, state_item(STOPS) + ITEM_LIST, LIST(TASKS_SUSPENDED));
	put(guest, VARIABLE(TASKS_DELAYED), 0xdead0000beef);
	expect_trouble(guest);
	put(guest, VARIABLE(TASKS_DELAYED), LIST(TASKS_DELAYED));
	list(guest);
	assert_null(guest->list.trouble);
}

/* Each walk meets two tasks more, which lead to each other: who believed them would never end. */
static void grow(struct guest *guest, uint64_t va)
{
	if (va != state_item(STOPS) && va != state_item(LISTENS))
		return;
	put(guest, state_item(LISTENS) + 8, state_item(STOPS));
	put(guest, state_item(STOPS) + ITEM_PREVIOUS,
	    va == state_item(STOPS) && guest->changes ? state_item(LISTENS) : state_item(WAITS));
	guest->changes++;
}

static void a_list_that_is_made_to_loop_as_it_is_walked_comes_to_an_end(void **state)
{
	struct guest *guest = *state;

	guest->runs = grow;
	list(guest);
	assert_true(guest->changes > 100);
	assert_non_null(guest->list.trouble);
	assert_true(guest->reads < 1000000);
}

static void tasks_that_are_fewer_than_the_guest_says_are_not_all(void **state)
{
	struct guest *guest = *state;

	put(guest, VARIABLE(TASKS_COUNT), TASKS + 1);
	list(guest);
	assert_int_equal(guest->list.n, TASKS - 1);
	assert_non_null(guest->list.trouble);
}

/* While the list of those that sleep is entered, the next one moves to a list that was walked before. */
static void move_away(struct guest *guest, uint64_t va)
{
	if (va == end_of(LIST(TASKS_DELAYED)) + 8 && !guest->changes++)
		move_to(guest, SLEEPS, READY(1));
}

static void tasks_that_change_their_list_hide_none(void **state)
{
	struct guest *guest = *state;

	guest->runs = move_away;
	list(guest);
	assert_true(guest->changes > 1);
	assert_null(guest->list.trouble);
	assert_int_equal(guest->list.n, TASKS - 1);
}

static void a_task_that_is_in_no_list_that_tells_is_left_out_and_said(void **state)
{
	struct guest *guest = *state;

	put_member(guest, TASK(SLEEPS), MEMBER_PRIORITY, PRIORITIES);
	list(guest);
	assert_null(find(guest, SLEEPS));
	assert_non_null(guest->list.trouble);
	put_member(guest, TASK(SLEEPS), MEMBER_PRIORITY, 1);
	put(guest, event_item(SLEEPS) + 24, TASK(STOPS));
	list(guest);
	assert_null(find(guest, SLEEPS));
}

static void a_search_without_steps_tells_nothing_as_whole(void **state)
{
	struct guest *guest = *state;

	guest->budget.left = 10 * GUEST_MEMORY_PAGE_STEPS;
	list(guest);
	assert_non_null(guest->list.trouble);
}

static void before_its_start_there_are_no_tasks(void **state)
{
	struct guest *guest = *state;
	struct guest_thread thread = {0};

	memset(guest->bytes, 0, sizeof(guest->bytes));
	list(guest);
	assert_null(guest->list.trouble);
	assert_int_equal(guest->list.n, 0);
	assert_int_equal(threads_freertos.next(guest->threads, &guest->memory, &thread), TURN_END);
	assert_false(threads_freertos.running(guest->threads, &guest->memory, 0, &thread));
}

static void a_copy_tells_which_task_runs(void **state)
{
	struct guest *guest = *state;
	struct thread_request request;
	struct thread_copy copy = {.own = CURRENT, .at = TASK(READIES)};
	struct guest_thread thread;

	assert_true(threads_freertos.request(guest->threads, &request));
	assert_true(request.address == CURRENT && !request.stack_size && !request.pointer);
	assert_int_equal(request.at[0], layout.at[MEMBER_LINK] + layout.at[ITEM_OWNER]);
	memcpy(copy.piece[0], &copy.at, 8);
	assert_true(threads_freertos.decode(&copy, &thread));
	assert_true(threads_freertos.complete(guest->threads, &guest->memory, &thread));
	assert_string_equal(thread.name, "readies");
	/* A structure that owns no item is no task. */
	copy.piece[0][0] ^= 8;
	assert_false(threads_freertos.decode(&copy, &thread));
	/* With several CPUs, a copy does not tell whose task it is. */
	guest->file.threads.cpus = 2;
	open_guest(guest);
	assert_false(threads_freertos.request(guest->threads, &request));
}

static void a_task_that_runs_is_told_though_it_is_in_no_list(void **state)
{
	struct guest *guest = *state;
	struct guest_thread thread;

	take_out(guest, state_item(RUNS));
	assert_true(threads_freertos.running(guest->threads, &guest->memory, 0, &thread));
	assert_true(thread.at == TASK(RUNS) && thread.state == THREAD_RUNNING && !thread.idle);
}

static void the_schedulers_code_is_told(void **state)
{
	struct guest *guest = *state;
	const struct symbol_candidate code = {.start = CODE + 0x300 - SLIDE,
					      .size = 0x40,
					      .name = "vTaskSwitchContext"};
	struct symbol_candidates list = {0};

	assert_false(threads_freertos.switches(guest->threads, CODE + 0x300));
	assert_null(symbol_candidates_add(&list, &code));
	assert_null(symbols_build(&list, NULL, &guest->file.symbols));
	symbol_candidates_free(&list);
	guest->file.threads.switches[0] = code.start;
	open_guest(guest);
	assert_true(threads_freertos.switches(guest->threads, CODE + 0x33f));
	assert_false(threads_freertos.switches(guest->threads, CODE + 0x340));
	assert_false(threads_freertos.switches(guest->threads, CODE + 0x2ff));
	symbols_free(guest->file.symbols);
}

static void usual_offsets_are_believed_where_tasks_make_sense_by_them(void **state)
{
	struct guest *guest = *state;

	guest->file.threads.typed = 0;
	open_guest(guest);
	assert_non_null(guest->threads);
	guest->file.threads.at[MEMBER_LINK] += 8;
	open_guest(guest);
	assert_null(guest->threads);
	guest->file.threads.at[MEMBER_LINK] -= 8;
	guest->file.threads.at[LIST_END] += 8;
	open_guest(guest);
	assert_null(guest->threads);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, make, drop)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(all_tasks_but_idle_ones_are_listed_with_their_names_and_states),
		TEST(a_task_that_is_woken_while_the_scheduler_stands_waits_for_a_cpu),
		TEST(a_task_sleeps_in_either_list_of_those_that_time_wakes),
		TEST(without_types_nobody_says_why_a_task_is_suspended),
		TEST(a_task_that_has_no_number_is_told_by_its_address),
		TEST(idle_tasks_are_told_by_the_handle_or_else_by_the_name),
		TEST(all_have_their_turns),
		TEST(a_task_that_does_not_run_has_all_its_registers),
		TEST(registers_of_floating_point_lie_before_the_others),
		TEST(saved_registers_that_make_no_sense_are_none),
		TEST(a_task_that_has_run_does_not_stand),
		TEST(what_lies_behind_a_stack_moves_no_task),
		TEST(another_task_in_the_same_memory_is_not_this_one),
		TEST(lists_that_loop_or_lead_nowhere_come_to_an_end),
		TEST(a_list_that_is_made_to_loop_as_it_is_walked_comes_to_an_end),
		TEST(tasks_that_are_fewer_than_the_guest_says_are_not_all),
		TEST(tasks_that_change_their_list_hide_none),
		TEST(a_task_that_is_in_no_list_that_tells_is_left_out_and_said),
		TEST(a_search_without_steps_tells_nothing_as_whole),
		TEST(before_its_start_there_are_no_tasks),
		TEST(a_copy_tells_which_task_runs),
		TEST(a_task_that_runs_is_told_though_it_is_in_no_list),
		TEST(the_schedulers_code_is_told),
		TEST(usual_offsets_are_believed_where_tasks_make_sense_by_them),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
