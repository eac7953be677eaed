/* SPDX-License-Identifier: BSD-3-Clause */
#include "sample/rest.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#define US 1000ull
#define MS 1000000ull

/* Takes samples, as many as can be begun before `end`; returns the time that they took. */
static uint64_t sample_without_end(struct rest *rest, uint64_t took, uint64_t end)
{
	uint64_t sum = 0;

	for (uint64_t now = 100 * MS; now < end; now = rest_due(rest, now)) {
		rest_after(rest, now, now + took, took);
		now += took;
		sum += took;
	}
	return sum;
}

static void rests_half_of_the_time_when_the_rate_cannot_be_kept(void **state)
{
	struct rest rest = {0};

	assert_in_range(sample_without_end(&rest, 300 * US, 200 * MS), 49 * MS, 52 * MS);
}

static void rests_as_long_as_a_sample_took_that_took_long(void **state)
{
	struct rest rest = {0};

	assert_in_range(sample_without_end(&rest, 20 * MS, 1100 * MS), 490 * MS, 520 * MS);
}

static void does_not_rest_between_a_few_short_samples(void **state)
{
	struct rest rest = {0};

	for (uint64_t now = 100 * MS; now < 100 * MS + 900 * US; now += 100 * US) {
		assert_false(rest_after(&rest, now, now + 100 * US, 100 * US));
		assert_true(rest_due(&rest, 0) <= now + 100 * US);
	}
}

static void leaves_a_later_deadline_alone(void **state)
{
	struct rest rest = {0};

	assert_false(rest_after(&rest, 100 * MS, 103 * MS, 100 * US));
	assert_int_equal(rest_due(&rest, 110 * MS), 110 * MS);
}

static void keeps_the_paused_share_below_its_bound(void **state)
{
	struct rest rest = {.max_overhead = 0.01};

	assert_true(rest_after(&rest, 100 * MS, 100 * MS + 20 * US, 10 * US));
	assert_in_range(rest_due(&rest, 0), 101 * MS, 101 * MS + 20 * US);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(rests_half_of_the_time_when_the_rate_cannot_be_kept),
		cmocka_unit_test(rests_as_long_as_a_sample_took_that_took_long),
		cmocka_unit_test(does_not_rest_between_a_few_short_samples),
		cmocka_unit_test(leaves_a_later_deadline_alone),
		cmocka_unit_test(keeps_the_paused_share_below_its_bound),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
