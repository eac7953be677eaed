/* SPDX-License-Identifier: BSD-3-Clause */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include "base/clock.h"
#include "cmd/cmd.h"

static struct progress_line display;

static int set_up(void **state)
{
	progress_line_init(&display, "uniprof");
	return 0;
}

/* The line at `ms` milliseconds after the start. */
static const char *at(uint64_t ms, const char *what, uint64_t done, uint64_t all)
{
	progress_line_update(&display, what, done, all, NS_PER_S + ms * 1000000);
	return display.text;
}

static void test_work_of_less_than_a_second_shows_nothing(void **state)
{
	for (uint64_t ms = 0; ms < 1000; ms += 10)
		assert_string_equal(at(ms, "reading", ms, 10000), "");
	assert_string_not_equal(at(1000, "reading", 1000, 10000), "");
}

static void test_it_tells_how_much_is_done_and_how_long_the_rest_will_take(void **state)
{
	at(0, "reading", 0, 100);
	assert_string_equal(at(5000, "reading", 25, 100), "uniprof: reading, 25 %, 16 s left");
	assert_string_equal(at(100000, "reading", 25, 100),
			    "uniprof: reading, 25 %, 5 min 1 s left");
	assert_string_equal(at(10000000, "reading", 50, 100),
			    "uniprof: reading, 50 %, 2 h 46 min left");
}

static void test_each_stage_has_an_estimate_of_its_own(void **state)
{
	at(0, "reading", 0, 100);
	at(9000, "reading", 100, 100);
	at(10000, "naming", 0, 100);
	assert_string_equal(at(11000, "naming", 50, 100), "uniprof: naming, 50 %, 2 s left");
}

static void test_lines_do_not_come_more_often_than_people_read(void **state)
{
	unsigned lines = 0;

	for (uint64_t ms = 0; ms < 3000; ms++)
		lines += *at(ms, "reading", ms, 10000) != '\0';
	assert_in_range(lines, 5, 12);
}

static void test_what_has_no_known_end_is_counted(void **state)
{
	at(0, "reading", 0, 0);
	assert_string_equal(at(2000, "reading", 5 << 20, 0), "uniprof: reading, 5.0 MiB");
}

static void test_more_than_there_should_be_is_all(void **state)
{
	at(0, "reading", 0, 100);
	assert_string_equal(at(2000, "reading", 500, 100), "uniprof: reading, 100 %, 1 s left");
}

#define TEST(name) cmocka_unit_test_setup(name, set_up)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(test_work_of_less_than_a_second_shows_nothing),
		TEST(test_it_tells_how_much_is_done_and_how_long_the_rest_will_take),
		TEST(test_each_stage_has_an_estimate_of_its_own),
		TEST(test_lines_do_not_come_more_often_than_people_read),
		TEST(test_what_has_no_known_end_is_counted),
		TEST(test_more_than_there_should_be_is_all),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
