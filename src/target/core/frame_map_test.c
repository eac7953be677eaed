/* SPDX-License-Identifier: BSD-3-Clause */
#include "target/core/frame_map.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

#include "arch/arch.h"

static void add(struct frame_map *map, uint64_t gfn, uint64_t n, uint64_t at)
{
	assert_null(frame_map_add(map, gfn, n, at));
}

static void assert_at(const struct frame_map *map, uint64_t gfn, uint64_t wanted)
{
	uint64_t at;

	assert_true(frame_map_find(map, gfn, &at));
	assert_int_equal(at, wanted);
}

static void assert_absent(const struct frame_map *map, uint64_t gfn)
{
	uint64_t at;

	assert_false(frame_map_find(map, gfn, &at));
}

static void test_nothing_is_found_where_nothing_is(void **state)
{
	struct frame_map map = {0};

	frame_map_sort(&map);
	assert_absent(&map, 0);
	frame_map_free(&map);
}

static void test_what_goes_on_here_and_there_is_one_run(void **state)
{
	struct frame_map map = {0};

	add(&map, 10, 2, 0x1000);
	add(&map, 12, 1, 0x1000 + 2 * FRAME_SIZE);
	assert_int_equal(map.n, 1);
	add(&map, 13, 1, 0x9000);
	add(&map, 20, 1, 0xa000);
	assert_int_equal(map.n, 3);
	frame_map_free(&map);
}

static void test_frames_are_found_in_whatever_order_they_came(void **state)
{
	struct frame_map map = {0};

	add(&map, 100, 4, 0x50000);
	add(&map, 7, 1, 0x30000);
	add(&map, 1ull << 51, 2, 0x40000);
	frame_map_sort(&map);
	assert_at(&map, 7, 0x30000);
	assert_at(&map, 100, 0x50000);
	assert_at(&map, 103, 0x50000 + 3 * FRAME_SIZE);
	assert_at(&map, (1ull << 51) + 1, 0x40000 + FRAME_SIZE);
	assert_absent(&map, 6);
	assert_absent(&map, 8);
	assert_absent(&map, 99);
	assert_absent(&map, 104);
	frame_map_free(&map);
}

static void test_frames_that_came_twice_are_there_once(void **state)
{
	struct frame_map map = {0};

	add(&map, 10, 10, 0x100000);
	add(&map, 15, 10, 0x200000);
	add(&map, 12, 2, 0x300000);
	frame_map_sort(&map);
	assert_int_equal(map.n, 2);
	assert_at(&map, 12, 0x100000 + 2 * FRAME_SIZE);
	assert_at(&map, 19, 0x100000 + 9 * FRAME_SIZE);
	assert_at(&map, 20, 0x200000 + 5 * FRAME_SIZE);
	assert_at(&map, 24, 0x200000 + 9 * FRAME_SIZE);
	assert_absent(&map, 25);
	frame_map_free(&map);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_nothing_is_found_where_nothing_is),
		cmocka_unit_test(test_what_goes_on_here_and_there_is_one_run),
		cmocka_unit_test(test_frames_are_found_in_whatever_order_they_came),
		cmocka_unit_test(test_frames_that_came_twice_are_there_once),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
