/* SPDX-License-Identifier: BSD-3-Clause */
#include "capture/pace.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

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

#define US 1000ull
#define MS 1000000ull

/* Takes samples, as many as can be begun before `end`; returns the time that they took. */
static uint64_t sample_without_end(struct throttle *throttle, uint64_t took, uint64_t end)
{
	uint64_t sum = 0;

	for (uint64_t now = 100 * MS; now < end; now = throttle_due(throttle, now)) {
		throttle_after(throttle, now, now + took, took);
		now += took;
		sum += took;
	}
	return sum;
}

static void rests_half_of_the_time_when_the_rate_cannot_be_kept(void **state)
{
	struct throttle throttle = {0};

	assert_in_range(sample_without_end(&throttle, 300 * US, 200 * MS), 49 * MS, 52 * MS);
}

static void rests_as_long_as_a_sample_took_that_took_long(void **state)
{
	struct throttle throttle = {0};

	assert_in_range(sample_without_end(&throttle, 20 * MS, 1100 * MS), 490 * MS, 520 * MS);
}

static void does_not_rest_between_a_few_short_samples(void **state)
{
	struct throttle throttle = {0};

	for (uint64_t now = 100 * MS; now < 100 * MS + 900 * US; now += 100 * US) {
		assert_false(throttle_after(&throttle, now, now + 100 * US, 100 * US));
		assert_true(throttle_due(&throttle, 0) <= now + 100 * US);
	}
}

static void leaves_a_later_deadline_alone(void **state)
{
	struct throttle throttle = {0};

	assert_false(throttle_after(&throttle, 100 * MS, 103 * MS, 100 * US));
	assert_int_equal(throttle_due(&throttle, 110 * MS), 110 * MS);
}

static void keeps_the_paused_share_below_its_bound(void **state)
{
	struct throttle throttle = {.max_overhead = 0.01};

	assert_true(throttle_after(&throttle, 100 * MS, 100 * MS + 20 * US, 10 * US));
	assert_in_range(throttle_due(&throttle, 0), 101 * MS, 101 * MS + 20 * US);
}

static void rests_no_longer_than_is_allowed_for_one_long_pause(void **state)
{
	struct throttle throttle = {.max_overhead = 0.05, .max_rest_ns = 1000 * MS};

	assert_true(throttle_after(&throttle, 100 * MS, 400 * MS, 300 * MS));
	assert_int_equal(throttle_due(&throttle, 0), 1400 * MS);
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
		cmocka_unit_test(rests_half_of_the_time_when_the_rate_cannot_be_kept),
		cmocka_unit_test(rests_as_long_as_a_sample_took_that_took_long),
		cmocka_unit_test(does_not_rest_between_a_few_short_samples),
		cmocka_unit_test(leaves_a_later_deadline_alone),
		cmocka_unit_test(keeps_the_paused_share_below_its_bound),
		cmocka_unit_test(rests_no_longer_than_is_allowed_for_one_long_pause),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
