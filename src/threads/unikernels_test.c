/* SPDX-License-Identifier: BSD-3-Clause */
#include "symbol/names/table.h"
#include "threads/unikernels_testing.h"

static void all_threads_are_listed_with_their_names_and_states(void **state)
{
	struct guest *guest = *state;

	list(guest);
	assert_null(guest->list.trouble);
	assert_int_equal(guest->list.n, THREADS);
	for (unsigned i = 0; i < THREADS; i++) {
		const struct guest_thread *thread = &guest->list.at[i];
		char name[32];

		snprintf(name, sizeof(name), "thread-%u", i);
		assert_string_equal(thread->name, name);
		assert_true(thread->at == THREAD(i) && thread->pid == RECORDED_ID_UNKNOWN);
		assert_int_equal(thread->state,
				 i == THREADS - 1 ? THREAD_RUNNING : THREAD_SLEEPING);
		assert_int_equal(thread->cpu, i == THREADS - 1 ? 0 : -1);
	}
}

static void all_have_their_turns(void **state)
{
	struct guest *guest = *state;
	struct guest_thread thread = {0};

	for (unsigned i = 0; i < THREADS; i++) {
		assert_int_equal(guest->system->next(guest->threads, &guest->memory, &thread),
				 TURN_THREAD);
		assert_true(thread.at == THREAD(i));
		/* The thread that runs moves to the end of its list, and hides none of the others. */
		take_out(guest, head_of(guest), THREAD(i));
		append(guest, head_of(guest), THREAD(i));
	}
	assert_int_equal(guest->system->next(guest->threads, &guest->memory, &thread), TURN_END);
}

static void a_thread_that_does_not_run_has_its_registers(void **state)
{
	struct guest *guest = *state;
	struct guest_thread thread;
	struct thread_saved saved;

	list(guest);
	thread = guest->list.at[2];
	assert_true(guest->system->saved(guest->threads, &guest->memory, &thread, &saved));
	assert_true(saved.pc == RESUMES && saved.sp == STACK(2) + STACK_SIZE - 0x80);
	assert_true(saved.stack_end > saved.sp && !saved.tables);
	assert_true(guest->system->stands(guest->threads, &guest->memory, &thread));
	thread = guest->list.at[THREADS - 1];
	assert_false(guest->system->saved(guest->threads, &guest->memory, &thread, &saved));
}

static void a_stack_pointer_that_leads_nowhere_is_none(void **state)
{
	struct guest *guest = *state;
	struct guest_thread thread;
	struct thread_saved saved;
	static const uint64_t wild[] = {0, 1, STACK(2) + 1, UINT64_MAX - 7, STACK(2) - 8};

	list(guest);
	for (size_t i = 0; i < sizeof(wild) / sizeof(*wild); i++) {
		thread = guest->list.at[2];
		put_member(guest, THREAD(2), MEMBER_SP, wild[i]);
		assert_false(guest->system->saved(guest->threads, &guest->memory, &thread, &saved));
	}
	thread = guest->list.at[3];
	put_member(guest, THREAD(3), MEMBER_IP, CODE - 1);
	assert_false(guest->system->saved(guest->threads, &guest->memory, &thread, &saved));
}

static void another_thread_in_the_same_memory_is_not_this_one(void **state)
{
	struct guest *guest = *state;
	struct guest_thread thread;
	struct thread_saved saved;

	list(guest);
	thread = guest->list.at[2];
	put_member(guest, THREAD(2), MEMBER_NAME, NAME(9));
	strcpy((char *)guest->bytes + (NAME(9) - START), "another");
	assert_false(guest->system->stands(guest->threads, &guest->memory, &thread));
	assert_false(guest->system->saved(guest->threads, &guest->memory, &thread, &saved));
}

static void the_thread_that_runs_is_told(void **state)
{
	struct guest *guest = *state;
	struct guest_thread thread;

	assert_int_equal(guest->system->cpus(guest->threads, &guest->memory), 1);
	assert_true(guest->system->running(guest->threads, &guest->memory, 0, &thread));
	assert_true(thread.at == THREAD(THREADS - 1) && !thread.idle);
	assert_int_equal(thread.state, THREAD_RUNNING);
}

/* Lists that no honest guest has: each is told, and comes to an end. */
static void expect_trouble(struct guest *guest)
{
	struct guest_thread thread = {0};

	guest->reads = 0;
	list(guest);
	assert_non_null(guest->list.trouble);
	assert_true(guest->reads < 1000000);
	for (unsigned i = 0; i < THREADS; i++)
		if (guest->system->next(guest->threads, &guest->memory, &thread) != TURN_THREAD)
			return;
}

static void lists_that_loop_or_lead_nowhere_come_to_an_end(void **state)
{
	struct guest *guest = *state;
	static const uint64_t wild[] = {THREAD(0), THREAD(3),	   THREAD(1) + 1,
					8,	   UINT64_MAX - 7, START + SIZE - 8};
	const uint64_t right = get(guest, THREAD(3) + LINK);

	for (size_t i = 0; i < sizeof(wild) / sizeof(*wild); i++) {
		put(guest, THREAD(3) + LINK, wild[i]);
		expect_trouble(guest);
	}
	put(guest, THREAD(3) + LINK, right);
	list(guest);
	assert_null(guest->list.trouble);
	assert_int_equal(guest->list.n, THREADS);
}

static void a_thread_that_makes_no_sense_is_left_out_and_said(void **state)
{
	struct guest *guest = *state;

	put_member(guest, THREAD(1), MEMBER_NAME, 0xdead0000beef);
	list(guest);
	assert_int_equal(guest->list.n, THREADS - 1);
	assert_non_null(guest->list.trouble);
}

static void a_thread_without_a_name_is_called_by_its_address(void **state)
{
	struct guest *guest = *state;

	put_member(guest, THREAD(1), MEMBER_NAME, 0);
	list(guest);
	assert_null(guest->list.trouble);
	assert_string_equal(guest->list.at[1].name, "0x100200");
}

/* A list without an end that grows as it is walked: each link leads to another thread, and back. */
static void grow(struct guest *guest, uint64_t va)
{
	const uint64_t last = THREAD(THREADS - 1) + LINK;

	if (va != last && va != THREAD(0) + LINK)
		return;
	put(guest, last, THREAD(0));
	put(guest, THREAD(0) + LINK + 8, va == last ? last : head_of(guest));
	guest->changes++;
}

static void a_list_that_is_made_to_loop_as_it_is_walked_comes_to_an_end(void **state)
{
	struct guest *guest = *state;

	guest->runs = grow;
	list(guest);
	assert_true(guest->changes > 1);
	assert_non_null(guest->list.trouble);
	assert_true(guest->reads < 1000000);
}

/* Each time that thread 0 is read, thread 1 goes to the end: who stood there would miss the others. */
static void rotate(struct guest *guest, uint64_t va)
{
	if (va != THREAD(1) + LINK || guest->changes++ > 3)
		return;
	take_out(guest, head_of(guest), THREAD(1));
	append(guest, head_of(guest), THREAD(1));
}

static void threads_that_move_in_their_list_hide_none(void **state)
{
	struct guest *guest = *state;

	guest->runs = rotate;
	list(guest);
	assert_null(guest->list.trouble);
	assert_int_equal(guest->list.n, THREADS);
}

static void a_search_without_steps_tells_nothing_as_whole(void **state)
{
	struct guest *guest = *state;

	guest->budget.left = 10 * GUEST_MEMORY_PAGE_STEPS;
	list(guest);
	assert_non_null(guest->list.trouble);
}

static void unikrafts_idle_thread_is_in_no_list(void **state)
{
	struct guest *guest = *state;
	struct guest_thread thread;

	put_thread(guest, 9, SCHEDULER(0) + IDLE);
	append(guest, head_of(guest), SCHEDULER(0) + IDLE);
	list(guest);
	assert_int_equal(guest->list.n, THREADS);
	assert_null(guest->list.trouble);
	put(guest, CURRENT, SCHEDULER(0) + IDLE);
	assert_true(guest->system->running(guest->threads, &guest->memory, 0, &thread));
	assert_true(thread.idle);
}

static void all_of_unikrafts_schedulers_are_asked(void **state)
{
	struct guest *guest = *state;

	put(guest, SCHEDULER(0) + NEXT, SCHEDULER(1));
	put_head(guest, SCHEDULER(1) + FIRST);
	put_thread(guest, 7, THREAD(7));
	put_member(guest, THREAD(7), MEMBER_SCHEDULER, SCHEDULER(1));
	append(guest, SCHEDULER(1) + FIRST, THREAD(7));
	list(guest);
	assert_null(guest->list.trouble);
	assert_int_equal(guest->list.n, THREADS + 1);
	/* Schedulers in a ring. */
	put(guest, SCHEDULER(1) + NEXT, SCHEDULER(0));
	expect_trouble(guest);
	put(guest, SCHEDULER(1) + NEXT, 4);
	expect_trouble(guest);
}

static void unikraft_before_its_start_has_no_threads(void **state)
{
	struct guest *guest = *state;

	put(guest, HEAD, 0);
	list(guest);
	assert_null(guest->list.trouble);
	assert_int_equal(guest->list.n, 0);
}

static void unikrafts_threads_that_have_run_do_not_stand(void **state)
{
	struct guest *guest = *state;
	struct guest_thread thread;

	list(guest);
	thread = guest->list.at[2];
	put_member(guest, THREAD(2), MEMBER_CPU_TIME, 1000);
	assert_false(guest->system->stands(guest->threads, &guest->memory, &thread));
	put_member(guest, THREAD(2), MEMBER_CPU_TIME, 0);
	assert_true(guest->system->stands(guest->threads, &guest->memory, &thread));
	put(guest, CURRENT, THREAD(2));
	assert_false(guest->system->stands(guest->threads, &guest->memory, &thread));
	put(guest, CURRENT, 0);
	put_member(guest, THREAD(2), MEMBER_FLAGS, 0x8);
	list(guest);
	assert_int_equal(guest->list.at[2].state, THREAD_RUNNABLE);
	put_member(guest, THREAD(2), MEMBER_FLAGS, 0x18);
	list(guest);
	assert_int_equal(guest->list.at[2].state, THREAD_DEAD);
}

static void mini_oss_threads_that_have_run_do_not_stand(void **state)
{
	struct guest *guest = *state;
	struct guest_thread thread;

	list(guest);
	thread = guest->list.at[2];
	/* Back at the same place, by another way. */
	put(guest, STACK(2) + STACK_SIZE - 0x40, 0x1234);
	assert_false(guest->system->stands(guest->threads, &guest->memory, &thread));
	put(guest, STACK(2) + STACK_SIZE - 0x40, 0);
	assert_true(guest->system->stands(guest->threads, &guest->memory, &thread));
	take_out(guest, HEAD, THREAD(2));
	append(guest, HEAD, THREAD(2));
	assert_false(guest->system->stands(guest->threads, &guest->memory, &thread));
}

static void mini_oss_new_threads_do_not_run_though_they_are_last(void **state)
{
	struct guest *guest = *state;
	struct guest_thread thread;
	struct thread_saved saved;
	const uint64_t sp = STACK(7) + STACK_SIZE - 0x18;

	put_thread(guest, 7, THREAD(7));
	put_member(guest, THREAD(7), MEMBER_IP, STARTER);
	put_member(guest, THREAD(7), MEMBER_SP, sp);
	put(guest, sp + 8, RESUMES);
	append(guest, HEAD, THREAD(7));
	assert_true(guest->system->running(guest->threads, &guest->memory, 0, &thread));
	assert_true(thread.at == THREAD(THREADS - 1));
	list(guest);
	thread = guest->list.at[THREADS];
	assert_true(guest->system->saved(guest->threads, &guest->memory, &thread, &saved));
	assert_true(saved.pc == STARTER);
	/* It starts: its function's word becomes 0, its registers are as they were. */
	put(guest, sp + 8, 0);
	assert_false(guest->system->saved(guest->threads, &guest->memory, &thread, &saved));
	assert_true(guest->system->running(guest->threads, &guest->memory, 0, &thread));
	assert_true(thread.at == THREAD(7));
}

static void mini_oss_cpu_is_idle_on_the_stack_of_a_thread_that_waits(void **state)
{
	struct guest *guest = *state;
	struct guest_thread thread;

	put_member(guest, THREAD(THREADS - 1), MEMBER_FLAGS, 0);
	assert_true(guest->system->running(guest->threads, &guest->memory, 0, &thread));
	assert_true(thread.idle);
	list(guest);
	assert_int_equal(guest->list.at[THREADS - 1].state, THREAD_SLEEPING);
}

static void mini_oss_stacks_tell_whose_they_are(void **state)
{
	struct guest *guest = *state;
	struct thread_request request;
	struct thread_copy copy = {.own = STACK(3), .at = THREAD(3)};
	struct guest_thread thread;

	assert_true(guest->system->request(guest->threads, &request));
	assert_int_equal(request.stack_size, STACK_SIZE);
	assert_int_equal(request.at[0], guest->file.threads.at[MEMBER_STACK]);
	memcpy(copy.piece[0], &copy.own, 8);
	assert_true(guest->system->decode(&copy, &thread));
	assert_true(guest->system->complete(guest->threads, &guest->memory, &thread));
	assert_string_equal(thread.name, "thread-3");
	copy.own += 0x10000;
	assert_false(guest->system->decode(&copy, &thread));
	put(guest, STACK(1), THREAD(2));
	list(guest);
	assert_int_equal(guest->list.n, THREADS - 1);
	assert_non_null(guest->list.trouble);
}

static void the_schedulers_code_is_told(void **state)
{
	struct guest *guest = *state;
	const struct symbol_candidate code = {.start = CODE + 0x300 - SLIDE,
					      .size = 0x40,
					      .name = "schedule"};
	struct symbol_candidates list = {0};
	const bool minios = guest->file.threads.system == UNIKERNEL_MINIOS;

	assert_null(symbol_candidates_add(&list, &code));
	assert_null(symbols_build(&list, NULL, &guest->file.symbols));
	symbol_candidates_free(&list);
	guest->file.threads.switches[0] = code.start;
	free(guest->threads);
	open_guest(guest);
	assert_true(guest->system->switches(guest->threads, CODE + 0x33f));
	assert_false(guest->system->switches(guest->threads, CODE + 0x340));
	assert_false(guest->system->switches(guest->threads, CODE + 0x2ff));
	assert_true(!guest->system->idles == !minios);
	symbols_free(guest->file.symbols);
}

static void unikrafts_cpu_tells_which_thread_runs(void **state)
{
	struct guest *guest = *state;
	struct thread_request request;
	struct thread_copy copy = {.own = CURRENT, .at = THREAD(3)};
	struct guest_thread thread;

	assert_true(guest->system->request(guest->threads, &request));
	assert_true(request.address == CURRENT && !request.stack_size && !request.pointer);
	assert_true(guest->system->decode(&copy, &thread));
	assert_true(guest->system->complete(guest->threads, &guest->memory, &thread));
	assert_string_equal(thread.name, "thread-3");
	copy.at = 0;
	assert_false(guest->system->decode(&copy, &thread));
	/* With several CPUs, a copy does not tell whose thread it is. */
	free(guest->threads);
	guest->file.threads.cpus = 2;
	open_guest(guest);
	assert_false(guest->system->request(guest->threads, &request));
}

static void usual_offsets_are_believed_where_threads_make_sense_by_them(void **state)
{
	struct guest *guest = *state;

	free(guest->threads);
	guest->file.threads.typed = 0;
	open_guest(guest);
	assert_non_null(guest->threads);
	free(guest->threads);
	guest->file.threads.at[MEMBER_LINK] += 8;
	open_guest(guest);
	assert_null(guest->threads);
	guest->file.threads = layouts[guest->file.threads.system];
	guest->file.threads.typed = 0;
	guest->file.threads.at[MEMBER_NAME] = 8;
	guest->file.threads.at[MEMBER_STACK] = 0x28;
	guest->file.threads.at[MEMBER_SCHEDULER] = 0x18;
	open_guest(guest);
	assert_null(guest->threads);
}

#define BOTH(name)                                                  \
	cmocka_unit_test_setup_teardown(name, make_unikraft, drop), \
		cmocka_unit_test_setup_teardown(name, make_minios, drop)
#define UNIKRAFT(name) cmocka_unit_test_setup_teardown(name, make_unikraft, drop)
#define MINIOS(name)   cmocka_unit_test_setup_teardown(name, make_minios, drop)

int main(void)
{
	const struct CMUnitTest tests[] = {
		BOTH(all_threads_are_listed_with_their_names_and_states),
		BOTH(all_have_their_turns),
		BOTH(a_thread_that_does_not_run_has_its_registers),
		BOTH(a_stack_pointer_that_leads_nowhere_is_none),
		BOTH(another_thread_in_the_same_memory_is_not_this_one),
		BOTH(the_thread_that_runs_is_told),
		BOTH(the_schedulers_code_is_told),
		BOTH(lists_that_loop_or_lead_nowhere_come_to_an_end),
		BOTH(a_thread_that_makes_no_sense_is_left_out_and_said),
		BOTH(a_thread_without_a_name_is_called_by_its_address),
		BOTH(a_list_that_is_made_to_loop_as_it_is_walked_comes_to_an_end),
		BOTH(threads_that_move_in_their_list_hide_none),
		BOTH(a_search_without_steps_tells_nothing_as_whole),
		BOTH(usual_offsets_are_believed_where_threads_make_sense_by_them),
		UNIKRAFT(unikrafts_idle_thread_is_in_no_list),
		UNIKRAFT(all_of_unikrafts_schedulers_are_asked),
		UNIKRAFT(unikraft_before_its_start_has_no_threads),
		UNIKRAFT(unikrafts_threads_that_have_run_do_not_stand),
		UNIKRAFT(unikrafts_cpu_tells_which_thread_runs),
		MINIOS(mini_oss_threads_that_have_run_do_not_stand),
		MINIOS(mini_oss_new_threads_do_not_run_though_they_are_last),
		MINIOS(mini_oss_cpu_is_idle_on_the_stack_of_a_thread_that_waits),
		MINIOS(mini_oss_stacks_tell_whose_they_are),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
