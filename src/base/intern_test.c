/* SPDX-License-Identifier: BSD-3-Clause */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include "base/intern.h"

static uint32_t get(struct ids *ids, uint64_t a, uint64_t b, bool is_new)
{
	uint32_t id;
	bool added;

	assert_null(ids_get(ids, a, b, &id, &added));
	assert_int_equal(added, is_new);
	return id;
}

static void numbers_rise_from_zero_and_stay(void **state)
{
	struct ids *ids;

	assert_null(ids_new(&ids));
	assert_int_equal(get(ids, 7, 7, true), 0);
	assert_int_equal(get(ids, 7, 8, true), 1);
	assert_int_equal(get(ids, 8, 7, true), 2);
	assert_int_equal(get(ids, 0, 0, true), 3);
	assert_int_equal(get(ids, 7, 8, false), 1);
	assert_int_equal(ids_count(ids), 4);
	ids_free(ids);
}

static void many_are_told_apart(void **state)
{
	struct ids *ids;

	assert_null(ids_new(&ids));
	for (uint64_t i = 0; i < 20000; i++)
		assert_int_equal(get(ids, i << 12, i & 3, true), i);
	for (uint64_t i = 0; i < 20000; i++)
		assert_int_equal(get(ids, i << 12, i & 3, false), i);
	ids_free(ids);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(numbers_rise_from_zero_and_stay),
		cmocka_unit_test(many_are_told_apart),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
