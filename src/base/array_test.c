/* SPDX-License-Identifier: BSD-3-Clause */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include "base/array.h"

static void small_arrays_take_what_was_asked_for(void **state)
{
	size_t bytes;

	assert_true(array_bytes(3, 8, &bytes));
	assert_int_equal(bytes, 24);
	assert_true(array_bytes(1, ARRAY_LARGE - 1, &bytes));
	assert_int_equal(bytes, ARRAY_LARGE - 1);
}

/* malloc() adds less than a small page to them. */
static void large_arrays_end_with_a_large_page(void **state)
{
	size_t bytes;

	for (size_t asked = ARRAY_LARGE; asked < 4 * ARRAY_LARGE; asked += 4099) {
		assert_true(array_bytes(asked, 1, &bytes));
		assert_true(bytes >= asked && bytes < asked + ARRAY_PAGE);
		assert_int_equal((bytes + 4096) % ARRAY_PAGE, 0);
	}
}

static void too_much_is_refused(void **state)
{
	size_t bytes;

	assert_false(array_bytes(SIZE_MAX / 8 + 1, 8, &bytes));
	assert_false(array_bytes(PTRDIFF_MAX, 1, &bytes));
	assert_null(array_zeros(SIZE_MAX / 2, 4));
	assert_null(array_resize(NULL, SIZE_MAX / 2, 4));
}

static void what_grows_keeps_its_elements_and_adds_zeros(void **state)
{
	const size_t most = (ARRAY_LARGE + ARRAY_PAGE) / sizeof(uint64_t);
	uint64_t *numbers = NULL;
	size_t room = 0, before;

	for (size_t i = 0; i < most; i++) {
		before = room;
		assert_null(ARRAY_RESERVE_ZERO(&numbers, &room, i + 1));
		for (size_t j = before; j < room; j += 97)
			assert_int_equal(numbers[j], 0);
		numbers[i] = i + 1;
	}
	for (size_t i = 0; i < most; i++)
		assert_int_equal(numbers[i], i + 1);
	free(numbers);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(small_arrays_take_what_was_asked_for),
		cmocka_unit_test(large_arrays_end_with_a_large_page),
		cmocka_unit_test(too_much_is_refused),
		cmocka_unit_test(what_grows_keeps_its_elements_and_adds_zeros),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
