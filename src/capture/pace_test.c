/* SPDX-License-Identifier: BSD-3-Clause */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include "capture/pace.h"

#define PERIOD 1000u

static void without_jitter_deadlines_are_exact_multiples(void **state)
{
	struct pace pace;

	pace_start(&pace, 5000, PERIOD, false, 1);
	for (uint64_t k = 0; k < 100; k++) {
		assert_int_equal(pace_deadline(&pace), 5000 + k * PERIOD);
		assert_int_equal(pace_take(&pace, pace_deadline(&pace) + 10), 1);
	}
}

static void jitter_puts_one_deadline_anywhere_in_each_period(void **state)
{
	uint64_t quarter[4] = {0};
	struct pace pace;

	pace_start(&pace, 0, PERIOD, true, 12345);
	for (uint64_t k = 0; k < 4000; k++) {
		uint64_t deadline = pace_deadline(&pace);

		assert_true(deadline >= k * PERIOD && deadline < (k + 1) * PERIOD);
		quarter[deadline % PERIOD * 4 / PERIOD]++;
		assert_int_equal(pace_take(&pace, deadline), 1);
	}
	for (int i = 0; i < 4; i++)
		assert_in_range(quarter[i], 850, 1150);
}

static void different_seeds_give_different_deadlines(void **state)
{
	struct pace a, b;
	int same = 0;

	pace_start(&a, 0, 1u << 30, true, 111);
	pace_start(&b, 0, 1u << 30, true, 222);
	for (int k = 0; k < 100; k++) {
		same += pace_deadline(&a) == pace_deadline(&b);
		pace_take(&a, pace_deadline(&a));
		pace_take(&b, pace_deadline(&b));
	}
	assert_true(same < 5);
}

static void late_into_the_next_period_is_no_miss(void **state)
{
	struct pace pace;

	pace_start(&pace, 0, PERIOD, false, 1);
	assert_int_equal(pace_take(&pace, 1500), 1);
	assert_int_equal(pace_deadline(&pace), 1000);
	assert_int_equal(pace_take(&pace, 1600), 1);
	assert_int_equal(pace_deadline(&pace), 2000);
}

static void missed_periods_are_counted_and_left_out(void **state)
{
	struct pace pace;

	pace_start(&pace, 0, PERIOD, false, 1);
	assert_int_equal(pace_take(&pace, 5500), 5);
	assert_int_equal(pace_deadline(&pace), 5000);
}

static void weights_add_up_to_the_time_that_passed(void **state)
{
	uint64_t now = 0, sum = 0, random = 7;
	struct pace pace;

	pace_start(&pace, 0, PERIOD, true, 99);
	for (int k = 0; k < 10000; k++) {
		random = random * 6364136223846793005ull + 1442695040888963407ull;
		if (now < pace_deadline(&pace))
			now = pace_deadline(&pace);
		now += random >> 52; /* up to four periods late */
		sum += pace_take(&pace, now) * PERIOD;
	}
	assert_true(sum <= now + PERIOD && now <= sum + 2 * PERIOD);
}

static void periods_with_nothing_to_sample_are_left_out(void **state)
{
	struct pace pace;

	pace_start(&pace, 0, PERIOD, false, 1);
	pace_skip(&pace, 7300);
	assert_int_equal(pace_deadline(&pace), 7000);
	assert_int_equal(pace_take(&pace, 7310), 1);
	pace_skip(&pace, 7400);
	assert_int_equal(pace_deadline(&pace), 8000);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(without_jitter_deadlines_are_exact_multiples),
		cmocka_unit_test(jitter_puts_one_deadline_anywhere_in_each_period),
		cmocka_unit_test(different_seeds_give_different_deadlines),
		cmocka_unit_test(late_into_the_next_period_is_no_miss),
		cmocka_unit_test(missed_periods_are_counted_and_left_out),
		cmocka_unit_test(weights_add_up_to_the_time_that_passed),
		cmocka_unit_test(periods_with_nothing_to_sample_are_left_out),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
