/* SPDX-License-Identifier: BSD-3-Clause */
#include "capture/sampler.h"

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
		assert_int_equal(pace.deadline_ns, 5000 + k * PERIOD);
		assert_int_equal(pace_take(&pace, pace.deadline_ns + 10), 1);
	}
}

static void jitter_puts_one_deadline_anywhere_in_each_period(void **state)
{
	uint64_t quarter[4] = {0};
	struct pace pace;

	pace_start(&pace, 0, PERIOD, true, 12345);
	for (uint64_t k = 0; k < 4000; k++) {
		uint64_t deadline = pace.deadline_ns;

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
		same += a.deadline_ns == b.deadline_ns;
		pace_take(&a, a.deadline_ns);
		pace_take(&b, b.deadline_ns);
	}
	assert_true(same < 5);
}

static void late_into_the_next_period_is_no_miss(void **state)
{
	struct pace pace;

	pace_start(&pace, 0, PERIOD, false, 1);
	assert_int_equal(pace_take(&pace, 1500), 1);
	assert_int_equal(pace.deadline_ns, 1000);
	assert_int_equal(pace_take(&pace, 1600), 1);
	assert_int_equal(pace.deadline_ns, 2000);
}

static void missed_periods_are_counted_and_left_out(void **state)
{
	struct pace pace;

	pace_start(&pace, 0, PERIOD, false, 1);
	assert_int_equal(pace_take(&pace, 5500), 5);
	assert_int_equal(pace.deadline_ns, 5000);
}

static void weights_add_up_to_the_time_that_passed(void **state)
{
	uint64_t now = 0, sum = 0, random = 7;
	struct pace pace;

	pace_start(&pace, 0, PERIOD, true, 99);
	for (int k = 0; k < 10000; k++) {
		random = random * 6364136223846793005ull + 1442695040888963407ull;
		if (now < pace.deadline_ns)
			now = pace.deadline_ns;
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
	assert_int_equal(pace.deadline_ns, 7000);
	assert_int_equal(pace_take(&pace, 7310), 1);
	pace_skip(&pace, 7400);
	assert_int_equal(pace.deadline_ns, 8000);
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

#define WANTED 20.0

static struct rate_limits limits_of(double max_cpu)
{
	return (struct rate_limits){.wanted_hz = WANTED, .least_hz = 0.1, .max_cpu = max_cpu};
}

/* Gives samplers their rates by turns until none changes, where a sample takes so much CPU time; returns what all take. */
static double fit(struct rate_share *shares, size_t n, const double *cost,
		  const struct rate_limits *limits)
{
	double all;

	for (int turn = 0; turn < 100; turn++) {
		all = limits->others;
		for (size_t i = 0; i < n; i++) {
			shares[i].cpu = cost[i] * shares[i].rate_hz;
			all += shares[i].cpu;
		}
		if (!rates_fit(shares, n, limits))
			return all;
	}
	fail_msg("rates never come to rest");
	return 0;
}

static void rates_stay_as_wanted_while_the_cpu_time_is_within_its_bound(void **state)
{
	struct rate_share shares[] = {{WANTED, 0.002}, {WANTED, 0.007}};
	struct rate_limits limits = limits_of(0.01);

	limits.may_raise = true;
	assert_false(rates_fit(shares, 2, &limits));
	limits.max_cpu = 0;
	shares[0].cpu = 3;
	assert_false(rates_fit(shares, 2, &limits));
}

static void rates_fall_until_all_samplers_keep_within_the_bound(void **state)
{
	struct rate_share shares[] = {{WANTED, 0}, {WANTED, 0}, {WANTED, 0}};
	const double cost[] = {0.002, 0.002, 0.002};
	struct rate_limits limits = limits_of(0.03);

	limits.others = 0.006;
	assert_in_range((uint64_t)(1e6 * fit(shares, 3, cost, &limits)), 25000, 30000);
	for (size_t i = 0; i < 3; i++)
		assert_in_range((uint64_t)(1e3 * shares[i].rate_hz), 3000, 4000);
}

static void an_expensive_guest_is_sampled_less_often_and_others_as_before(void **state)
{
	struct rate_share shares[] = {{WANTED, 0}, {WANTED, 0}, {WANTED, 0}};
	const double cost[] = {0.0001, 0.01, 0.0002};
	const struct rate_limits limits = limits_of(0.03);

	assert_true(fit(shares, 3, cost, &limits) <= 0.03);
	assert_true(shares[0].rate_hz == WANTED && shares[2].rate_hz == WANTED);
	assert_in_range((uint64_t)(1e3 * shares[1].rate_hz), 2000, 2200);
}

static void rates_rise_again_by_steps_once_there_is_room_and_time_enough(void **state)
{
	struct rate_share shares[] = {{2, 0.0002}, {2, 0.0002}};
	const double cost[] = {0.0001, 0.0001};
	struct rate_limits limits = limits_of(0.03);

	assert_false(rates_fit(shares, 2, &limits));
	limits.may_raise = true;
	assert_true(rates_fit(shares, 2, &limits));
	assert_true(shares[0].rate_hz == 4);
	fit(shares, 2, cost, &limits);
	assert_true(shares[0].rate_hz == WANTED && shares[1].rate_hz == WANTED);
}

static void no_rate_falls_below_the_least_whatever_else_takes_the_cpu(void **state)
{
	struct rate_share shares[] = {{WANTED, 0}, {WANTED, -1}};
	const double cost[] = {0.001};
	struct rate_limits limits = limits_of(0.01);

	limits.others = 0.5;
	fit(shares, 1, cost, &limits);
	assert_true(shares[0].rate_hz == 0.1);
	/* The cost of this one's samples is not known yet. */
	rates_fit(shares, 2, &limits);
	assert_true(shares[1].rate_hz == WANTED);
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
		cmocka_unit_test(rates_stay_as_wanted_while_the_cpu_time_is_within_its_bound),
		cmocka_unit_test(rates_fall_until_all_samplers_keep_within_the_bound),
		cmocka_unit_test(an_expensive_guest_is_sampled_less_often_and_others_as_before),
		cmocka_unit_test(rates_rise_again_by_steps_once_there_is_room_and_time_enough),
		cmocka_unit_test(no_rate_falls_below_the_least_whatever_else_takes_the_cpu),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
