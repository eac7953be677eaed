/* SPDX-License-Identifier: BSD-3-Clause */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <string.h>

#include "recording/stacks.h"
#include "symbol/names/symbolizer.h"
#include "top/top.h"

static struct recent_ticks *recent;

static int set_up(void **state)
{
	return recent_new(100, &recent) ? -1 : 0;
}

static int tear_down(void **state)
{
	recent_free(recent);
	return 0;
}

/* A tick whose entries are on stacks `first`, `first` + 1, ... */
static void add(uint64_t time_ns, uint32_t n, uint32_t first)
{
	struct tick_entry entries[8];

	for (uint32_t i = 0; i < n; i++)
		entries[i] = (struct tick_entry){.vcpu = i, .stack = first + i};
	assert_null(
		recent_add(recent, &(struct tick){.time_ns = time_ns, .n = n, .entries = entries}));
}

static void test_ticks_come_back_oldest_first_with_their_entries(void **state)
{
	struct tick tick;

	add(10, 2, 7);
	add(20, 1, 5);
	assert_int_equal(recent_count(recent), 2);
	recent_get(recent, 0, &tick);
	assert_int_equal(tick.time_ns, 10);
	assert_int_equal(tick.entries[1].stack, 8);
	recent_get(recent, 1, &tick);
	assert_int_equal(tick.n, 1);
	assert_int_equal(tick.entries[0].stack, 5);
}

static void test_what_is_older_than_the_span_is_forgotten(void **state)
{
	struct tick tick;

	for (uint32_t i = 0; i < 100000; i++)
		add(i, 3, i);
	assert_int_equal(recent_count(recent), 100);
	for (uint32_t i = 0; i < 100; i++) {
		recent_get(recent, i, &tick);
		assert_int_equal(tick.time_ns, 99900 + i);
		assert_int_equal(tick.entries[2].stack, 99900 + i + 2);
	}
}

static void test_a_shorter_span_forgets_at_once(void **state)
{
	for (uint32_t i = 0; i < 100; i++)
		add(i, 1, i);
	recent_set_span(recent, 10);
	assert_int_equal(recent_count(recent), 10);
	recent_clear(recent);
	assert_int_equal(recent_count(recent), 0);
}

static void test_memory_is_bounded_whatever_the_span(void **state)
{
	recent_set_span(recent, UINT64_MAX);
	for (uint32_t i = 0; i < RECENT_MAX_ENTRIES; i++)
		add(i, 2, i);
	assert_true(recent_count(recent) <= RECENT_MAX_ENTRIES / 2);
	assert_true(recent_count(recent) > RECENT_MAX_ENTRIES / 4);
}

/* Samples of a thread of two processes each, and of none that is known, each in a function of its own. */
static struct recorded_thread threads[] = {{.pid = 7, .tid = 7, .name = "web", .process = "web"},
					   {.pid = 8, .tid = 8, .name = "db", .process = "db"}};
static struct stacks *stacks;
static struct symbolizer *symbolizer;

static void record_threads(void)
{
	assert_null(stacks_new(&stacks));
	assert_null(symbolizer_new(NULL, NULL, &symbolizer));
	for (uint32_t thread = 0; thread <= 2; thread++) {
		const struct frame frame = {.addr = 0x1000 * (thread + 1)};
		struct tick_entry entry = {.thread = thread, .ran_ns = 1};

		assert_null(stacks_child(stacks, STACK_ROOT, &frame, &entry.stack));
		assert_null(recent_add(recent, &(struct tick){.time_ns = 10 + 10ull * thread,
							      .weight_ns = 10,
							      .n = 1,
							      .entries = &entry}));
	}
}

static void assert_rows(struct summary_options options, size_t n, const char *const *names)
{
	struct summary summary;

	options.vcpu = -1;
	options.all_states = true;
	options.threads = threads;
	options.n_threads = 2;
	assert_null(summary_make(recent, stacks, 1, symbolizer, &options, &summary));
	assert_int_equal(summary.n_rows, n);
	for (size_t i = 0; i < n; i++) {
		bool found = false;

		for (size_t k = 0; k < n; k++)
			found |= !strcmp(summary.rows[k].name, names[i]);
		assert_true(found);
	}
	assert_int_equal(summary.profile.selected.samples, options.inside ? 1 : 3);
	summary_free(&summary);
}

static void test_processes_are_rows_and_their_functions_those_inside(void **state)
{
	record_threads();
	assert_rows((struct summary_options){.by = GROUP_PROCESS}, 3,
		    (const char *const[]){"web (7)", "db (8)", "[unknown]"});
	assert_rows((struct summary_options){.by = GROUP_PROCESS, .inside = "db (8)"}, 1,
		    (const char *const[]){"0x3000"});
	assert_rows((struct summary_options){.by = GROUP_THREAD, .inside = "[unknown]"}, 1,
		    (const char *const[]){"0x1000"});
	assert_rows((struct summary_options){0}, 3,
		    (const char *const[]){"0x1000", "0x2000", "0x3000"});
	symbolizer_free(symbolizer);
	stacks_free(stacks);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(test_ticks_come_back_oldest_first_with_their_entries),
		TEST(test_what_is_older_than_the_span_is_forgotten),
		TEST(test_a_shorter_span_forgets_at_once),
		TEST(test_memory_is_bounded_whatever_the_span),
		TEST(test_processes_are_rows_and_their_functions_those_inside),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
