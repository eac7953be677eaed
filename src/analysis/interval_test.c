/* SPDX-License-Identifier: BSD-3-Clause */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "analysis/diff.h"

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

static void the_interval_is_newcombes(void **state)
{
	/* R. G. Newcombe, 1998, table II (a) and (h), method 10. */
	struct difference a = difference_of(48.0 / 80, 80, 56.0 / 70, 70);
	struct difference h = difference_of(0, 10, 1, 10);

	assert_float_equal(a.low, 0.0524, 0.0001);
	assert_float_equal(a.high, 0.3339, 0.0001);
	assert_float_equal(h.high, 1, 0.0001);
	assert_float_equal(h.low, 0.6075, 0.0001);
}

static void many_draws_are_tested_by_chi_squared(void **state)
{
	assert_float_equal(difference_of(0.10, 1000, 0.15, 1000).p, 0.00072546, 1e-7);
	assert_float_equal(difference_of(0.15, 1000, 0.10, 1000).p, 0.00072546, 1e-7);
	assert_float_equal(difference_of(0.25, 1000, 0.25, 3000).p, 1, 1e-9);
}

static void few_draws_are_tested_exactly(void **state)
{
	assert_float_equal(difference_of(0.3, 10, 0.9, 10).p, 0.01976661, 1e-7);
	assert_float_equal(difference_of(0, 2000, 0.006, 1000).p, 0.00135806, 1e-7);
	/* One of a thousand is no news where there was none of a thousand. */
	assert_float_equal(difference_of(0, 1000, 0.001, 1000).p, 1, 1e-9);
}

static void nothing_is_known_without_draws(void **state)
{
	struct difference d = difference_of(0.1, 0, 0.9, 100);

	assert_float_equal(d.low, -1, 0);
	assert_float_equal(d.high, 1, 0);
	assert_float_equal(d.p, 1, 0);
}

/* The example of Benjamini and Hochberg, 1995: 15 tests, four of which are significant. */
static void discoveries_are_those_of_benjamini_and_hochberg(void **state)
{
	static const double p[] = {0.7590, 0.0001, 0.0004, 0.0019, 0.0095, 0.0201, 0.0278, 0.0298,
				   0.0344, 0.0459, 0.3240, 0.4262, 0.5719, 0.6528, 1.0000};
	struct difference all[15] = {0}, *pointers[15];

	for (int i = 0; i < 15; i++) {
		all[i].p = p[i];
		all[i].significant = true;
		pointers[i] = &all[i];
	}
	assert_true(differences_mark(pointers, 15));
	for (int i = 0; i < 15; i++)
		assert_int_equal(all[i].significant, i >= 1 && i <= 4);
}

/* A simulation with a fixed seed: two samples of the same 200 functions, 1000 draws each. */
static void of_the_same_guest_nearly_nothing_is_significant(void **state)
{
	unsigned seed = 2026;
	int false_alarms = 0;

	for (int round = 0; round < 40; round++) {
		struct difference all[200], *pointers[200];
		unsigned seen[2][200] = {0};

		for (int i = 0; i < 2000; i++) {
			seed = seed * 1103515245 + 12345;
			seen[i & 1][(seed >> 12) % 200 * ((seed >> 20) % 8 > 2)]++;
		}
		for (int i = 0; i < 200; i++) {
			all[i] = difference_of(seen[0][i] / 1e3, 1e3, seen[1][i] / 1e3, 1e3);
			pointers[i] = &all[i];
		}
		assert_true(differences_mark(pointers, 200));
		for (int i = 0; i < 200; i++)
			false_alarms += all[i].significant;
	}
	/* One false alarm in 20 tables is allowed: two are expected here. */
	assert_in_range(false_alarms, 0, 3);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(agrees_with_the_known_values_of_wilsons_interval),
		cmocka_unit_test(is_open_to_one_side_at_the_ends),
		cmocka_unit_test(tells_nothing_without_draws),
		cmocka_unit_test(the_interval_is_newcombes),
		cmocka_unit_test(many_draws_are_tested_by_chi_squared),
		cmocka_unit_test(few_draws_are_tested_exactly),
		cmocka_unit_test(nothing_is_known_without_draws),
		cmocka_unit_test(discoveries_are_those_of_benjamini_and_hochberg),
		cmocka_unit_test(of_the_same_guest_nearly_nothing_is_significant),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
