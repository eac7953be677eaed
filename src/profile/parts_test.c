/* SPDX-License-Identifier: BSD-3-Clause */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include "profile/parts.h"

static struct parts *parts;

static int set_up(void **state)
{
	return parts_new(&parts) ? -1 : 0;
}

static int tear_down(void **state)
{
	parts_free(parts);
	return 0;
}

static void add(uint32_t stack, uint32_t vcpu, uint8_t state, uint64_t weight_ns)
{
	const struct tick_entry entry = {.stack = stack, .vcpu = vcpu, .state = state};

	assert_null(parts_add(parts, &entry, 1, weight_ns));
}

static void test_stack_vcpu_and_state_are_told_apart_and_what_is_equal_is_summed(void **state)
{
	add(1, 0, VCPU_RUNNING, 10);
	add(1, 1, VCPU_RUNNING, 10);
	add(1, 0, VCPU_BLOCKED, 10);
	add(2, 0, VCPU_RUNNING, 10);
	add(1, 0, VCPU_RUNNING, 5);
	assert_int_equal(parts_count(parts), 4);
	assert_int_equal(parts_at(parts, 0)->cell.samples, 2);
	assert_int_equal(parts_at(parts, 0)->cell.weight_ns, 15);
}

static void test_it_grows_and_forgets_nothing(void **state)
{
	for (int round = 0; round < 2; round++)
		for (uint32_t i = 0; i < 10000; i++)
			add(i, i % RECORDING_MAX_VCPUS, VCPU_RUNNING, i);
	assert_int_equal(parts_count(parts), 10000);
	for (size_t i = 0; i < 10000; i++) {
		assert_int_equal(parts_at(parts, i)->cell.samples, 2);
		assert_int_equal(parts_at(parts, i)->cell.weight_ns, 2 * parts_at(parts, i)->stack);
	}
}

static void test_sums_of_weights_stop_at_the_top(void **state)
{
	add(1, 0, VCPU_RUNNING, UINT64_MAX);
	add(1, 0, VCPU_RUNNING, 2);
	assert_true(parts_at(parts, 0)->cell.weight_ns == UINT64_MAX);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(
			test_stack_vcpu_and_state_are_told_apart_and_what_is_equal_is_summed,
			set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_it_grows_and_forgets_nothing, set_up,
						tear_down),
		cmocka_unit_test_setup_teardown(test_sums_of_weights_stop_at_the_top, set_up,
						tear_down),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
