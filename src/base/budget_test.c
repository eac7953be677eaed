/* SPDX-License-Identifier: BSD-3-Clause */
#include "base/budget.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

/* A search for nothing. */
struct search {
	uint64_t steps; /* that it wants */
	uint64_t done;
	bool fails;
};

static struct error *search(void *ctx, struct budget *budget)
{
	struct search *search = ctx;
	char *held = malloc(100);

	assert_non_null(held);
	while (search->done < search->steps && budget_spend(budget, 1))
		search->done++;
	free(held);
	return search->fails ? error_new(ERR_FAILED, "found nothing") : NULL;
}

static void it_runs_in_slices_to_its_end(void **state)
{
	struct search one = {.steps = 10 * BUDGET_CHECK + 1};
	struct background *background;
	unsigned slices = 1;
	struct error *err;

	assert_null(background_new(search, &one, UINT64_MAX, &background));
	for (; background_run(background, 0, &err); slices++) {
		assert_null(err);
		assert_int_equal(one.done, slices * BUDGET_CHECK - 1);
	}
	assert_null(err);
	assert_int_equal(slices, 11);
	assert_int_equal(one.done, one.steps);
	assert_false(background_exhausted(background));
	background_free(background);
}

static void it_is_not_left_before_its_slice_is_over(void **state)
{
	struct search one = {.steps = 10 * BUDGET_CHECK};
	struct background *background;
	struct error *err;

	assert_null(background_new(search, &one, UINT64_MAX, &background));
	assert_false(background_run(background, UINT64_MAX, &err));
	assert_int_equal(one.done, one.steps);
	background_free(background);
}

static void it_ends_when_its_steps_are_spent(void **state)
{
	struct search one = {.steps = UINT64_MAX};
	struct background *background;
	struct error *err;

	assert_null(background_new(search, &one, 1000, &background));
	assert_false(background_run(background, UINT64_MAX, &err));
	assert_null(err);
	assert_int_equal(one.done, 1000);
	assert_true(background_exhausted(background));
	background_free(background);
}

static void its_error_is_handed_on(void **state)
{
	struct search one = {.fails = true};
	struct background *background;
	struct error *err;

	assert_null(background_new(search, &one, 1, &background));
	assert_false(background_run(background, 0, &err));
	assert_non_null(err);
	error_free(err);
	background_free(background);
}

/* LeakSanitizer checks that the search's memory and its error are freed. */
static void it_is_cancelled_at_any_time(void **state)
{
	struct search begun = {.steps = UINT64_MAX, .fails = true}, not_begun = {.steps = 1};
	struct background *background;
	struct error *err;

	assert_null(background_new(search, &begun, UINT64_MAX, &background));
	assert_true(background_run(background, 0, &err));
	background_free(background);
	assert_int_equal(begun.done, BUDGET_CHECK - 1);
	assert_null(background_new(search, &not_begun, UINT64_MAX, &background));
	background_free(background);
	assert_int_equal(not_begun.done, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(it_runs_in_slices_to_its_end),
		cmocka_unit_test(it_is_not_left_before_its_slice_is_over),
		cmocka_unit_test(it_ends_when_its_steps_are_spent),
		cmocka_unit_test(its_error_is_handed_on),
		cmocka_unit_test(it_is_cancelled_at_any_time),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
