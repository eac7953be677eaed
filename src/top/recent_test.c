/* SPDX-License-Identifier: BSD-3-Clause */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include "top/recent.h"

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

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(test_ticks_come_back_oldest_first_with_their_entries),
		TEST(test_what_is_older_than_the_span_is_forgotten),
		TEST(test_a_shorter_span_forgets_at_once),
		TEST(test_memory_is_bounded_whatever_the_span),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
