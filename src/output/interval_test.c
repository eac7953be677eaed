/* SPDX-License-Identifier: BSD-3-Clause */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include "output/interval.h"

static void agrees_with_the_known_values_of_wilsons_interval(void **state)
{
	struct interval half = interval_of_share(0.5, 100), few = interval_of_share(0.1, 10);

	assert_float_equal(half.low, 0.4038, 0.0001);
	assert_float_equal(half.high, 0.5962, 0.0001);
	assert_float_equal(few.low, 0.0179, 0.0001);
	assert_float_equal(few.high, 0.4042, 0.0001);
}

static void is_open_to_one_side_at_the_ends(void **state)
{
	struct interval none = interval_of_share(0, 100), all = interval_of_share(1, 100);

	assert_float_equal(none.low, 0, 1e-9);
	assert_float_equal(none.high, 0.0370, 0.0001);
	assert_float_equal(all.low, 0.9630, 0.0001);
	assert_float_equal(all.high, 1, 1e-9);
}

static void tells_nothing_without_draws(void **state)
{
	struct interval nothing = interval_of_share(0, 0);

	assert_float_equal(nothing.low, 0, 0);
	assert_float_equal(nothing.high, 1, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(agrees_with_the_known_values_of_wilsons_interval),
		cmocka_unit_test(is_open_to_one_side_at_the_ends),
		cmocka_unit_test(tells_nothing_without_draws),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
