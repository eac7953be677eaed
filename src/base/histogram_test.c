/* SPDX-License-Identifier: BSD-3-Clause */
#include "base/histogram.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static void test_an_empty_one_says_zero(void **state)
{
	static struct histogram h;

	assert_int_equal(histogram_quantile(&h, 0), 0);
	assert_int_equal(histogram_quantile(&h, 0.5), 0);
	assert_int_equal(histogram_quantile(&h, 1), 0);
}

static void test_small_values_are_exact(void **state)
{
	for (uint64_t value = 0; value < 32; value++) {
		struct histogram h = {0};

		histogram_add(&h, value);
		histogram_add(&h, UINT64_MAX);
		assert_int_equal(histogram_quantile(&h, 0.5), value);
		assert_int_equal(h.count[value], 1);
	}
}

/* Returns the value that `value` is counted as: the median of it and a larger one. */
static uint64_t taken_for(uint64_t value)
{
	struct histogram h = {0};

	histogram_add(&h, value);
	histogram_add(&h, UINT64_MAX);
	assert_int_equal(h.n, 2);
	return histogram_quantile(&h, 0.5);
}

static void test_no_value_is_more_than_a_sixteenth_off(void **state)
{
	uint64_t below = 31;

	for (unsigned power = 5; power < 64; power++) {
		for (uint64_t part = 16; part < 32; part++) {
			uint64_t first = part << (power - 4);
			uint64_t last = first + (UINT64_C(1) << (power - 4)) - 1;

			assert_int_equal(first, below + 1);
			assert_int_equal(taken_for(first), last);
			assert_int_equal(taken_for(last), last);
			assert_true(last - first <= first / 16);
			below = last;
		}
	}
	assert_int_equal(below, UINT64_MAX);
}

static void test_each_bucket_is_one_range(void **state)
{
	struct histogram h = {0};

	for (uint64_t value = 0; value < 32; value++)
		histogram_add(&h, value);
	for (unsigned power = 5; power < 64; power++)
		for (uint64_t part = 16; part < 32; part++)
			histogram_add(&h, part << (power - 4));
	for (size_t i = 0; i < HISTOGRAM_BUCKETS; i++)
		assert_int_equal(h.count[i], 1);
	assert_int_equal(h.n, HISTOGRAM_BUCKETS);
}

static void test_quantiles_count_exactly(void **state)
{
	struct histogram h = {0};

	/* Values 1 to 20, five times each: the p-th of 100 percent is value (p + 4) / 5. */
	for (uint64_t value = 1; value <= 20; value++)
		for (int i = 0; i < 5; i++)
			histogram_add(&h, value);
	assert_int_equal(histogram_quantile(&h, 0), 1);
	for (unsigned percent = 1; percent <= 100; percent++)
		assert_int_equal(histogram_quantile(&h, percent / 100.0), (percent + 4) / 5);
	assert_int_equal(histogram_quantile(&h, 0.0500001), 2);
	assert_int_equal(h.max, 20);
}

static void test_no_quantile_is_above_the_maximum(void **state)
{
	struct histogram h = {0};

	histogram_add(&h, 1000);
	histogram_add(&h, 1001);
	assert_int_equal(histogram_quantile(&h, 0.5), 1001);
	assert_int_equal(histogram_quantile(&h, 1), 1001);
	histogram_add(&h, 5000000);
	assert_int_equal(histogram_quantile(&h, 0.5), 1023);
	assert_int_equal(histogram_quantile(&h, 0.99), 5000000);
	assert_int_equal(h.max, 5000000);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_an_empty_one_says_zero),
		cmocka_unit_test(test_small_values_are_exact),
		cmocka_unit_test(test_no_value_is_more_than_a_sixteenth_off),
		cmocka_unit_test(test_each_bucket_is_one_range),
		cmocka_unit_test(test_quantiles_count_exactly),
		cmocka_unit_test(test_no_quantile_is_above_the_maximum),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
